"""How settlement and the other work on the schedule went: runs, the hours they filled, what was left out, and why."""

from __future__ import annotations

from django.db import models

from api.billing import limits
from api.limits import ACCOUNT_ID_DIGITS


class FillLedger(models.Model):
    """Which run filled which hour. A row that stays `started` is of a run that crashed: the hour is counted again."""

    hour = models.DateTimeField(primary_key=True)
    run = models.UUIDField()
    state = models.CharField(max_length=7, choices=[("started", "started"), ("done", "done")])
    times_done = models.IntegerField(default=0)
    rows = models.BigIntegerField(default=0)
    quarantined = models.BigIntegerField(default=0)
    started_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "fill_ledger"

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%dT%H} {self.state}"


class UsageRunState(models.TextChoices):
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    # A later run began hours of this one before it was merged: it may not be merged.
    OVERTAKEN = "overtaken"


class UsageRun(models.Model):
    """A run that settles hours, for operators. The fill ledger names the last run of each hour."""

    id = models.UUIDField(primary_key=True)
    hour_from = models.DateTimeField()
    hour_to = models.DateTimeField()
    state = models.CharField(max_length=9, choices=UsageRunState.choices)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    merged = models.BigIntegerField(default=0)
    removed = models.BigIntegerField(default=0)
    quarantined = models.BigIntegerField(default=0)
    # What was left out, or why it failed; empty: nothing.
    note = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX, default="")

    class Meta:
        db_table = "usage_run"
        indexes = (models.Index(fields=["-started_at"], name="usage_run_latest"),)

    def __str__(self) -> str:
        return f"{self.hour_from:%Y-%m-%dT%H} {self.state}"

    @property
    def took_s(self) -> float | None:
        return None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds()


class WorkRound(models.Model):
    """The last round of each work on the schedule, for operators. `trouble`: why it did not do all; empty: it did."""

    work = models.CharField(primary_key=True, max_length=limits.WORK_CHARACTERS_MAX)
    ended_at = models.DateTimeField()
    took_ms = models.BigIntegerField()
    done = models.BigIntegerField()
    # One after the other, up to the last one.
    troubled_rounds = models.BigIntegerField(default=0)
    trouble = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX, default="")

    class Meta:
        db_table = "work_round"

    def __str__(self) -> str:
        return self.work


class WorkFailure(models.Model):
    """One piece of a work that failed when it was tried last: an account's draft, a mail. Goes when it is done."""

    work = models.CharField(max_length=limits.WORK_CHARACTERS_MAX)
    subject = models.CharField(max_length=limits.WORK_CHARACTERS_MAX)
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS, default="")
    period_start = models.DateTimeField(null=True)
    failures = models.BigIntegerField()
    error = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        db_table = "work_failure"
        constraints = (models.UniqueConstraint(fields=["work", "subject"], name="work_failure_once"),)

    def __str__(self) -> str:
        return f"{self.work} {self.subject}"


class MonthLook(models.Model):
    """What the last round of closing found of a month that is over and settled. A month without a row was not looked
    at yet."""

    period_start = models.DateTimeField(primary_key=True)
    looked_at = models.DateTimeField()
    # Accounts whose invoice was due, up to INVOICES_AT_ONCE_MAX, and those of them that had failed before.
    to_issue = models.IntegerField()
    failing = models.IntegerField()

    class Meta:
        db_table = "month_look"

    def __str__(self) -> str:
        return f"{self.period_start:%Y-%m}"


class QuarantinedUsage(models.Model):
    """A record that is not billed, and why. The same record with the same reason is one row, however often it comes."""

    fingerprint = models.CharField(max_length=32, unique=True)
    run = models.UUIDField(null=True)
    reason = models.CharField(max_length=limits.REASON_CHARACTERS_MAX)
    detail = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX, default="")
    account_id = models.CharField(max_length=64, default="")
    hour = models.DateTimeField(null=True)
    record = models.JSONField()
    seen_at = models.DateTimeField()
    # A record of the same key was merged later, or a price came.
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "quarantined_usage"
        indexes = (models.Index(fields=["account_id", "hour"], name="quarantined_by_account"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.reason}"
