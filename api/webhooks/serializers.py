"""JSON of webhooks."""

from __future__ import annotations

from rest_framework import serializers

from api.people.strict import StrictCharField, StrictIntegerField, StrictSerializer
from api.webhooks import limits
from api.webhooks.models import CallResult, DeliveryState


class WebhookRequestSerializer(StrictSerializer):
    url = StrictCharField(max_length=limits.WEBHOOK_URL_CHARACTERS_MAX, trim_whitespace=False)


class WebhookRotationSerializer(StrictSerializer):
    grace_seconds = StrictIntegerField(
        min_value=0, max_value=limits.WEBHOOK_GRACE_S_MAX, default=limits.WEBHOOK_GRACE_S_DEFAULT,
        help_text="The old secret signs beside the new one for so long.",
    )  # fmt: skip


class WebhookSerializer(serializers.Serializer):
    name = serializers.CharField()
    url = serializers.CharField(source="shown_url", help_text="Without path and query.")
    created_at = serializers.DateTimeField()
    rotated_at = serializers.DateTimeField(allow_null=True)
    previous_until = serializers.DateTimeField(
        allow_null=True, help_text="Until then the secret of before the rotation signs, too."
    )


class WebhookWithSecretSerializer(WebhookSerializer):
    secret = serializers.CharField(
        help_text="Shown in this answer alone. Empty: the webhook keeps the one that it had."
    )


class WebhooksSerializer(serializers.Serializer):
    webhooks = WebhookSerializer(many=True)


class WebhookDeliverySerializer(serializers.Serializer):
    id = serializers.CharField(source="public_id", help_text="The webhook-id of every attempt.")
    alarm = serializers.CharField(source="about", help_text="Empty: a test.")
    state = serializers.ChoiceField(choices=[one.value for one in DeliveryState])
    attempts = serializers.IntegerField()
    result = serializers.ChoiceField(
        choices=[one.value for one in CallResult], help_text="Of the last attempt. Empty: there was none yet."
    )
    status_code = serializers.IntegerField(allow_null=True)
    latency_ms = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField(allow_null=True)
    next_at = serializers.DateTimeField(help_text="While it waits: when it is called.")


class WebhookDeliveriesSerializer(serializers.Serializer):
    deliveries = WebhookDeliverySerializer(many=True)
