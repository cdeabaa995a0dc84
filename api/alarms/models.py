"""Alarms and their history. Written by `actions.py` only."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from api.accounts.models import Account
from api.alarms import limits
from api.alarms.judging import AlarmRule, AlarmState, Comparison, MissingData
from api.limits import ACCOUNT_ID_DIGITS

_WORD_CHARACTERS = 40


class MetricAlarm(models.Model):
    """A threshold for a metric of a queue. `judged_up_to`: the end of the last period that was judged."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="alarms", db_index=False)
    name = models.CharField(max_length=limits.ALARM_NAME_CHARACTERS_MAX)
    queue_uuid = models.UUIDField()
    metric = models.CharField(max_length=_WORD_CHARACTERS)
    statistic = models.CharField(max_length=_WORD_CHARACTERS)
    period_s = models.IntegerField()
    comparison = models.CharField(max_length=_WORD_CHARACTERS)
    threshold = models.FloatField()
    periods = models.IntegerField()
    breaching = models.IntegerField()
    missing = models.CharField(max_length=_WORD_CHARACTERS)
    mail_to = models.JSONField(default=list)
    # Names of webhooks of the account, which are called with every change.
    webhooks = models.JSONField(default=list)
    # Until then changes are noted and not told.
    muted_until = models.DateTimeField(null=True)
    state = models.CharField(max_length=_WORD_CHARACTERS, default=AlarmState.NO_DATA.value)
    state_reason = models.CharField(max_length=limits.ALARM_REASON_CHARACTERS_MAX, default="")
    state_since = models.DateTimeField()
    judged_up_to = models.DateTimeField(null=True)
    # When the next period will have ended.
    next_at = models.DateTimeField(db_index=True)
    created_at = models.DateTimeField()
    modified_at = models.DateTimeField()

    class Meta:
        db_table = "metric_alarm"
        constraints = (models.UniqueConstraint(fields=["account", "name"], name="metric_alarm_name"),)
        indexes = (models.Index(fields=["account", "state"], name="metric_alarm_by_state"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.name} {self.state}"

    @property
    def rule(self) -> AlarmRule:
        return AlarmRule(
            Comparison(self.comparison), self.threshold, self.periods, self.breaching, MissingData(self.missing)
        )


class AlarmEvent(models.Model):
    """A change of state. `mailed_at` is null until its mail was handed over; where none is to be sent it is `at`."""

    alarm = models.ForeignKey(MetricAlarm, on_delete=models.SET_NULL, null=True, related_name="events")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    alarm_name = models.CharField(max_length=limits.ALARM_NAME_CHARACTERS_MAX)
    before = models.CharField(max_length=_WORD_CHARACTERS)
    state = models.CharField(max_length=_WORD_CHARACTERS)
    reason = models.CharField(max_length=limits.ALARM_REASON_CHARACTERS_MAX)
    at = models.DateTimeField()
    mail_to = models.JSONField(default=list)
    # Why no mail was sent; empty: one was, or will be, or there is no address.
    not_mailed = models.CharField(max_length=_WORD_CHARACTERS, default="")
    mailed_at = models.DateTimeField(null=True)
    # Why a webhook of the alarm is not called; empty: all are, or there is none.
    not_called = models.CharField(max_length=_WORD_CHARACTERS, default="")

    class Meta:
        db_table = "alarm_event"
        indexes = (
            models.Index(fields=["account_id", "-id"], name="alarm_event_by_account"),
            models.Index(fields=["id"], condition=Q(mailed_at=None), name="alarm_event_unmailed"),
            models.Index(fields=["at"], name="alarm_event_by_time"),
        )

    def __str__(self) -> str:
        return f"{self.alarm_name} {self.state}"
