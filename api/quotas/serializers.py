"""JSON of quotas."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from api import limits
from api.people.strict import StrictCharField, StrictIntegerField, StrictSerializer
from frontend.limits.quotas import SINGLE_QUOTAS, SOFT_LEVEL_PERCENT

HELD = "Messages a second that may be sent, while a budget is used up. Null: as the quotas say."


class QuotaSerializer(serializers.Serializer):
    name = serializers.CharField(source="kind.name")
    unit = serializers.CharField(source="kind.unit")
    description = serializers.CharField(source="kind.text")
    value = serializers.IntegerField(allow_null=True, help_text="Null: no limit of its own.")
    default = serializers.IntegerField(source="kind.default", allow_null=True)
    least = serializers.IntegerField(source="kind.least", help_text="Smallest value it can have.")
    most = serializers.IntegerField(source="kind.most", help_text="Largest value it can have.")
    soft_level = serializers.SerializerMethodField(help_text="From here on its use is told as a warning.")
    in_use = serializers.IntegerField(allow_null=True, help_text="Null: not counted here (rates: see RateLimit).")

    def get_soft_level(self, quota: Any) -> int | None:
        return None if quota.value is None else quota.value * SOFT_LEVEL_PERCENT // 100


class QuotasSerializer(serializers.Serializer):
    quotas = QuotaSerializer(many=True)
    sending_stopped = serializers.CharField(allow_null=True, help_text="Why messages cannot be sent; null: they can.")
    sends_per_s = serializers.IntegerField(allow_null=True, help_text=HELD)


class AskQuotaSerializer(StrictSerializer):
    name = StrictCharField(max_length=64)
    value = StrictIntegerField()
    reason = StrictCharField(max_length=limits.QUOTA_REASON_CHARACTERS_MAX, default="", allow_blank=True)


class RatesSerializer(serializers.Serializer):
    requests_per_s = serializers.IntegerField(allow_null=True)
    messages_per_s = serializers.IntegerField(allow_null=True)
    bytes_per_s = serializers.IntegerField(allow_null=True)


class OwnQuotasSerializer(serializers.Serializer):
    quotas = RatesSerializer(source="given", help_text="What it was given itself. Null: nothing.")
    in_force = RatesSerializer(help_text="With what its account has: the lowest holds.")


class QueueOwnQuotasSerializer(OwnQuotasSerializer):
    sending_stopped = serializers.CharField(
        allow_null=True, help_text="Why nothing can be sent to the queue; null: it can."
    )
    sends_per_s = serializers.IntegerField(allow_null=True, help_text=HELD)


def _rate(name: str) -> StrictIntegerField:
    kind = SINGLE_QUOTAS[name]
    return StrictIntegerField(
        min_value=kind.least, max_value=kind.most, default=None, allow_null=True, help_text=kind.text
    )


class SetOwnQuotasSerializer(StrictSerializer):
    requests_per_s = _rate("requests_per_s")
    messages_per_s = _rate("messages_per_s")
    bytes_per_s = _rate("bytes_per_s")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """A body that says nothing is a mistake, and takes no quota away."""
        if not self.initial_data:
            raise serializers.ValidationError("Name at least one of the quotas; null takes one away.")
        return attrs


class QuotaRequestSerializer(serializers.Serializer):
    id = serializers.CharField(source="pk")
    name = serializers.CharField()
    value = serializers.IntegerField()
    reason = serializers.CharField()
    state = serializers.CharField(help_text="open, approved or refused")
    answer = serializers.CharField()
    created_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)


class QuotaRequestPageSerializer(serializers.Serializer):
    requests = QuotaRequestSerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)
