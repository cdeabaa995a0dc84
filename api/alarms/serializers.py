"""JSON of alarms."""

from __future__ import annotations

from rest_framework import serializers

from api.alarms import limits
from api.alarms.actions import AlarmSpec
from api.alarms.judging import AlarmState, Comparison, MissingData
from api.limits import QUEUE_NAME_CHARACTERS_MAX
from api.people.strict import (
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictNumberField,
    StrictSerializer,
)
from api.series.metrics import METRICS, Statistic


class AlarmRequestSerializer(StrictSerializer):
    queue = StrictCharField(max_length=QUEUE_NAME_CHARACTERS_MAX)
    metric = StrictChoiceField(choices=list(METRICS))
    statistic = StrictChoiceField(choices=[one.value for one in Statistic], required=False)
    period_s = StrictIntegerField(min_value=60, max_value=limits.ALARM_PERIOD_S_MAX, default=60)
    comparison = StrictChoiceField(choices=[one.value for one in Comparison], default=Comparison.AT_LEAST.value)
    threshold = StrictNumberField(min_value=-limits.ALARM_THRESHOLD_MAX, max_value=limits.ALARM_THRESHOLD_MAX)
    periods = StrictIntegerField(min_value=1, max_value=limits.ALARM_PERIODS_MAX, default=1)
    breaching = StrictIntegerField(
        min_value=1, max_value=limits.ALARM_PERIODS_MAX, required=False, help_text="All of the periods if not given."
    )
    missing = StrictChoiceField(choices=[one.value for one in MissingData], default=MissingData.MISSING.value)
    mail_to = serializers.ListField(child=StrictCharField(), default=list, max_length=limits.ALARM_MAILS_MAX)
    webhooks = serializers.ListField(
        child=StrictCharField(), default=list, max_length=limits.ALARM_WEBHOOKS_MAX,
        help_text="Names of webhooks of the account.",
    )  # fmt: skip

    def spec(self) -> AlarmSpec:
        given = self.validated_data
        statistic = given.get("statistic", METRICS[given["metric"]].statistics[0])
        return AlarmSpec(
            given["queue"], given["metric"], Statistic(statistic), given["period_s"], Comparison(given["comparison"]),
            given["threshold"], given["periods"], given.get("breaching", given["periods"]),
            MissingData(given["missing"]), given["mail_to"], given["webhooks"],
        )  # fmt: skip


class AlarmMuteSerializer(StrictSerializer):
    until = serializers.DateTimeField(allow_null=True, help_text="Null: mails are sent and webhooks are called again.")


class MetricAlarmSerializer(serializers.Serializer):
    name = serializers.CharField()
    queue = serializers.CharField(help_text="Empty: the queue is gone.")
    metric = serializers.CharField()
    statistic = serializers.CharField()
    period_s = serializers.IntegerField()
    comparison = serializers.CharField()
    threshold = serializers.FloatField()
    periods = serializers.IntegerField()
    breaching = serializers.IntegerField()
    missing = serializers.CharField()
    mail_to = serializers.ListField(child=serializers.CharField())
    webhooks = serializers.ListField(child=serializers.CharField())
    muted_until = serializers.DateTimeField(allow_null=True)
    state = serializers.ChoiceField(choices=[one.value for one in AlarmState])
    state_reason = serializers.CharField()
    state_since = serializers.DateTimeField()
    judged_up_to = serializers.DateTimeField(allow_null=True)


class MetricAlarmsSerializer(serializers.Serializer):
    alarms = MetricAlarmSerializer(many=True)


class AlarmEventSerializer(serializers.Serializer):
    alarm = serializers.CharField(source="alarm_name")
    before = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField()
    at = serializers.DateTimeField()
    not_mailed = serializers.CharField(help_text="Why no mail was sent. Empty: it was, or there is no address.")
    not_called = serializers.CharField(help_text="Why a webhook was not called. Empty: all were, or there is none.")


class AlarmEventsSerializer(serializers.Serializer):
    events = AlarmEventSerializer(many=True)
