"""JSON of metrics."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from api.limits import QUEUE_NAME_CHARACTERS_MAX
from api.people.strict import StrictCharField, StrictChoiceField, StrictIntegerField, StrictSerializer
from api.series import limits
from api.series.metrics import METRICS, Statistic

_ID = r"^[A-Za-z][A-Za-z0-9_.-]*\Z"


class MetricQuerySerializer(StrictSerializer):
    id = serializers.RegexField(
        _ID, max_length=limits.METRIC_QUERY_ID_CHARACTERS_MAX, help_text="Names the result; unique in the request."
    )
    queue = StrictCharField(max_length=QUEUE_NAME_CHARACTERS_MAX)
    metric = StrictChoiceField(choices=list(METRICS))
    statistic = StrictChoiceField(
        choices=[statistic.value for statistic in Statistic],
        required=False,
        help_text="The metric's first one if not given.",
    )
    period_s = StrictIntegerField(
        min_value=limits.METRIC_PERIOD_S_MIN, max_value=limits.METRIC_PERIOD_S_MAX, default=300,
        help_text="A multiple of 60; of 300 for what is older than a day, of 3600 for what is older than a week.",
    )  # fmt: skip


class MetricDataRequestSerializer(StrictSerializer):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    queries = serializers.ListField(child=MetricQuerySerializer(), min_length=1, max_length=limits.METRIC_QUERIES_MAX)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["start"] >= attrs["end"]:
            raise serializers.ValidationError({"end": "must come after the start"})
        names = [query["id"] for query in attrs["queries"]]
        if len(set(names)) < len(names):
            raise serializers.ValidationError({"queries": "each needs an id of its own"})
        return attrs


class MetricResultSerializer(serializers.Serializer):
    """`timestamps` are the beginnings of periods, `values` what belongs to them. Periods without a known
    figure are left out."""

    id = serializers.CharField()
    queue = serializers.CharField()
    metric = serializers.CharField()
    statistic = serializers.CharField()
    unit = serializers.CharField()
    period_s = serializers.IntegerField()
    timestamps = serializers.ListField(child=serializers.DateTimeField())
    values = serializers.ListField(child=serializers.FloatField())


class MetricDataSerializer(serializers.Serializer):
    collected_up_to = serializers.DateTimeField(allow_null=True, help_text="What happened before is in the values.")
    results = MetricResultSerializer(many=True)


class MetricSerializer(serializers.Serializer):
    name = serializers.CharField()
    unit = serializers.CharField()
    statistics = serializers.ListField(child=serializers.CharField(), help_text="The first one is the default.")
    meaning = serializers.CharField()


class MetricsSerializer(serializers.Serializer):
    metrics = MetricSerializer(many=True)
