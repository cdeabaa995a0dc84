"""JSON of quotas."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from api import limits
from api.people.strict import StrictCharField, StrictIntegerField, StrictSerializer
from frontend.limits.quotas import SOFT_LEVEL_PERCENT


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


class AskQuotaSerializer(StrictSerializer):
    name = StrictCharField(max_length=64)
    value = StrictIntegerField()
    reason = StrictCharField(max_length=limits.QUOTA_REASON_CHARACTERS_MAX, default="", allow_blank=True)


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
