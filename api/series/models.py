"""Rows of the series. Written by `collecting.py` and `rolling.py` only. A queue that does nothing has no new rows.

series_mark      of an hour, what was collected of the live meter's figures
series_queue     of a queue that was ever used: totals since the first, what it held when it was looked at last
series_minute    of a queue and minute: what happened; what it holds, if that changed
series_rollup    the same of 5 minutes or an hour
series_coverage  minutes and buckets whose figures are known: where a queue has no row, nothing happened

Rows of flows with the queue 0 are those of the whole account.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from api.limits import ACCOUNT_ID_DIGITS


class _Flows(models.Model):
    """What happened: names as those of the live meter, so that each is summed from the column of its name."""

    messages_sent = models.BigIntegerField(default=0)
    messages_delivered = models.BigIntegerField(default=0)
    messages_deleted = models.BigIntegerField(default=0)
    messages_dead_lettered = models.BigIntegerField(default=0)
    sent_bytes = models.BigIntegerField(default=0)
    requests = models.BigIntegerField(default=0)
    empty_receives = models.BigIntegerField(default=0)
    throttled = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class SeriesMark(_Flows):
    """What was collected of the figures of a queue's hour: the difference to what they are now is new."""

    pk = models.CompositePrimaryKey("hour", "account_id", "queue_uuid")
    hour = models.DateTimeField()
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    queue_uuid = models.UUIDField()
    marked_at = models.DateTimeField()

    class Meta:
        db_table = "series_mark"

    def __str__(self) -> str:
        return f"{self.account_id} {self.queue_uuid} {self.hour:%Y-%m-%dT%H}"


class SeriesQueue(_Flows):
    """Totals never fall. `looked_at` null: the queue was used since, so what it holds is to be asked."""

    pk = models.CompositePrimaryKey("account_id", "queue_uuid")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    queue_uuid = models.UUIDField()
    waiting = models.BigIntegerField(default=0)
    in_flight = models.BigIntegerField(default=0)
    delayed = models.BigIntegerField(default=0)
    # 0: nothing waits.
    oldest_sent_ms = models.BigIntegerField(default=0)
    looked_at = models.DateTimeField(null=True)
    # When a row of a minute said so.
    written_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "series_queue"
        indexes = (
            models.Index(
                fields=["looked_at"],
                condition=~Q(waiting=0) | ~Q(in_flight=0) | ~Q(delayed=0),
                name="series_queue_holding",
            ),
        )

    def __str__(self) -> str:
        return f"{self.account_id} {self.queue_uuid}"


class SeriesMinute(_Flows):
    """`waiting` to `oldest_sent_ms`: as the last look of the minute saw them; null: as they were before."""

    pk = models.CompositePrimaryKey("account_id", "queue_uuid", "at")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    queue_uuid = models.UUIDField()
    at = models.DateTimeField(db_index=True)
    waiting = models.BigIntegerField(null=True)
    in_flight = models.BigIntegerField(null=True)
    delayed = models.BigIntegerField(null=True)
    oldest_sent_ms = models.BigIntegerField(null=True)

    class Meta:
        db_table = "series_minute"

    def __str__(self) -> str:
        return f"{self.account_id} {self.queue_uuid} {self.at:%Y-%m-%dT%H:%M}"


class SeriesRollup(_Flows):
    """`minutes`: 5 or 60. Of each level the mean over time, the least, the greatest, and the last; of the age of the
    oldest message, in seconds, the last is given by `oldest_sent_ms`."""

    pk = models.CompositePrimaryKey("account_id", "queue_uuid", "minutes", "at")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    queue_uuid = models.UUIDField()
    minutes = models.SmallIntegerField()
    at = models.DateTimeField()
    waiting_mean = models.FloatField()
    waiting_low = models.BigIntegerField()
    waiting_high = models.BigIntegerField()
    waiting = models.BigIntegerField()
    in_flight_mean = models.FloatField()
    in_flight_low = models.BigIntegerField()
    in_flight_high = models.BigIntegerField()
    in_flight = models.BigIntegerField()
    delayed_mean = models.FloatField()
    delayed_low = models.BigIntegerField()
    delayed_high = models.BigIntegerField()
    delayed = models.BigIntegerField()
    age_s_mean = models.FloatField()
    age_s_low = models.FloatField()
    age_s_high = models.FloatField()
    oldest_sent_ms = models.BigIntegerField()

    class Meta:
        db_table = "series_rollup"
        indexes = (models.Index(fields=["minutes", "at"], name="series_rollup_by_time"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.queue_uuid} {self.minutes} min {self.at:%Y-%m-%dT%H:%M}"


class SeriesCoverage(models.Model):
    """How many minutes of a bucket are covered, for the whole installation. A bucket has its row once it is rolled
    up, in the same transaction."""

    pk = models.CompositePrimaryKey("minutes", "at")
    minutes = models.SmallIntegerField()
    at = models.DateTimeField()
    covered = models.SmallIntegerField()

    class Meta:
        db_table = "series_coverage"

    def __str__(self) -> str:
        return f"{self.minutes} min {self.at:%Y-%m-%dT%H:%M}"


class SeriesClock(models.Model):
    """One row: which look of the live meter was collected last. Locked while one is collected."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    # `MeterReading.ended_at` of that look; when it began; when the last complete one began.
    read_at = models.DateTimeField(null=True)
    looked_at = models.DateTimeField(null=True)
    complete_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "series_clock"
        constraints = (models.CheckConstraint(condition=Q(id=1), name="series_clock_once"),)

    def __str__(self) -> str:
        return f"collected up to {self.looked_at}"
