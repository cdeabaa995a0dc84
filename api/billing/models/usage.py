"""Counted usage: settled hours with their sums by day, what the live meter has read of later hours, and which tags a
queue had when."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from api.billing import limits
from api.limits import ACCOUNT_ID_DIGITS


def quantity_field() -> models.DecimalField:
    """Returns a field for a quantity of a meter, with room for the largest."""
    return models.DecimalField(max_digits=limits.QUANTITY_DIGITS, decimal_places=0, default=0)


class UsageCounters(models.Model):
    """The counters of a row of usage, in the order of `UsageMeter`."""

    messages_sent = models.BigIntegerField(default=0)
    messages_delivered = models.BigIntegerField(default=0)
    messages_deleted = models.BigIntegerField(default=0)
    messages_moved = models.BigIntegerField(default=0)
    messages_dead_lettered = models.BigIntegerField(default=0)
    messages_scheduled = models.BigIntegerField(default=0)
    sent_bytes = models.BigIntegerField(default=0)
    delivered_bytes = models.BigIntegerField(default=0)
    sent_units = models.BigIntegerField(default=0)
    delivered_units = models.BigIntegerField(default=0)
    stored_byte_ms = quantity_field()
    requests = models.BigIntegerField(default=0)
    empty_receives = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class UsageHours(models.Model):
    """The settled hours of a queue's day, for one origin: what `hourly_usage` shows hour by hour. Written by a merge
    with the row of `daily_usage` that has the same key.

    `partition_id`: a partition, or 0 for all of the queue's together, or -1 for what front ends counted (`requests`,
    `empty_receives`; the nil UUID where a request is of no queue). No foreign keys: usage outlives its queue.

    `hours`: `HOUR,SENT,...` in the order of `UsageMeter`, figures at the end that are 0 may be left out, of one hour
    after the other, with `;` between them. `levels`: `HOUR,HOURS,BYTE_MS`, what was stored in each of so many hours.
    Entries of one hour are added.
    """

    pk = models.CompositePrimaryKey("account_id", "day", "queue_uuid", "partition_id", "origin")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    day = models.DateTimeField()
    queue_uuid = models.UUIDField()
    partition_id = models.BigIntegerField()
    origin = models.CharField(max_length=8)
    hours = models.TextField()
    levels = models.TextField()

    class Meta:
        db_table = "usage_hours"

    def __str__(self) -> str:
        return f"{self.account_id} {self.day:%Y-%m-%d} {self.queue_uuid}/{self.partition_id} {self.origin}"


class HourlyUsage(UsageCounters):
    """What was counted of a queue in one hour, for one origin: a view of `usage_hours` (migration 0017). A reader
    names the days, too: they are found by an index, and hours are not."""

    pk = models.CompositePrimaryKey("account_id", "hour", "queue_uuid", "partition_id", "origin")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    day = models.DateTimeField()
    hour = models.DateTimeField()
    queue_uuid = models.UUIDField()
    partition_id = models.BigIntegerField()
    origin = models.CharField(max_length=8)

    class Meta:
        db_table = "hourly_usage"
        managed = False

    def __str__(self) -> str:
        return f"{self.account_id} {self.hour:%Y-%m-%dT%H} {self.queue_uuid}/{self.partition_id} {self.origin}"


def _sum() -> models.DecimalField:
    return models.DecimalField(max_digits=limits.SUM_DIGITS, decimal_places=0, default=0)


class DailyUsage(models.Model):
    """The sums of a queue's hours by day: written by a merge, with the hours themselves (`UsageHours`).

    `hour_bits`: a bit for each hour of the day that is in it. The counters are wider than those of an hour, so that no
    sum overflows.
    """

    pk = models.CompositePrimaryKey("account_id", "day", "queue_uuid", "partition_id", "origin")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    day = models.DateTimeField()
    queue_uuid = models.UUIDField()
    partition_id = models.BigIntegerField()
    origin = models.CharField(max_length=8)
    hour_bits = models.IntegerField()
    messages_sent = _sum()
    messages_delivered = _sum()
    messages_deleted = _sum()
    messages_moved = _sum()
    messages_dead_lettered = _sum()
    messages_scheduled = _sum()
    sent_bytes = _sum()
    delivered_bytes = _sum()
    sent_units = _sum()
    delivered_units = _sum()
    stored_byte_ms = _sum()
    requests = _sum()
    empty_receives = _sum()

    class Meta:
        db_table = "daily_usage"
        indexes = (models.Index(fields=["day"], name="daily_usage_day"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.day:%Y-%m-%d} {self.queue_uuid}/{self.partition_id} {self.origin}"


class ProvisionalUsage(UsageCounters):
    """What the usage stream says of an hour that is not settled. A later record of its key replaces it.

    `source`: the partition that metered it (`cluster/partition`), or the front end with the access key.
    """

    pk = models.CompositePrimaryKey("hour", "account_id", "queue_uuid", "source", "origin")
    hour = models.DateTimeField()
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    queue_uuid = models.UUIDField()
    source = models.CharField(max_length=limits.USAGE_SOURCE_CHARACTERS_MAX)
    origin = models.CharField(max_length=8)
    # Requests that were throttled, and that failed or were refused for another reason: for the series of metrics.
    throttled = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)

    class Meta:
        db_table = "provisional_usage"
        indexes = (models.Index(fields=["account_id", "hour"], name="provisional_by_account"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.hour:%Y-%m-%dT%H} {self.queue_uuid} {self.source} {self.origin}"


class KeyUsage(models.Model):
    """Requests by access key and day, of hours that are settled: kept when the live meter drops such an hour. Shown,
    never priced: what a front end told after its hour was settled is not in it."""

    pk = models.CompositePrimaryKey("account_id", "day", "access_key_id")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    day = models.DateTimeField()
    access_key_id = models.CharField(max_length=limits.USAGE_SOURCE_CHARACTERS_MAX)
    requests = models.DecimalField(max_digits=limits.SUM_DIGITS, decimal_places=0)
    empty_receives = models.DecimalField(max_digits=limits.SUM_DIGITS, decimal_places=0)

    class Meta:
        db_table = "key_usage"

    def __str__(self) -> str:
        return f"{self.account_id} {self.day:%Y-%m-%d} {self.access_key_id}"


class UsageStreamPosition(models.Model):
    """Up to where a partition of the usage stream was read into `provisional_usage`."""

    partition = models.CharField(primary_key=True, max_length=limits.USAGE_SOURCE_CHARACTERS_MAX)
    next_offset = models.BigIntegerField(default=0)

    class Meta:
        db_table = "usage_stream_position"

    def __str__(self) -> str:
        return f"{self.partition} at {self.next_offset}"


class MeterReading(models.Model):
    """One row: how far the provisional usage goes. `as_of`: all that was acknowledged before is in it."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    as_of = models.DateTimeField(null=True)
    # How long the last look took, and when it ended: the next one leaves the nodes a multiple of that.
    took_ms = models.BigIntegerField(default=0)
    ended_at = models.DateTimeField(null=True)
    # Why it is not the whole; empty: it is.
    missing = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX, default="")

    class Meta:
        db_table = "meter_reading"
        constraints = (models.CheckConstraint(condition=Q(id=1), name="meter_reading_once"),)

    def __str__(self) -> str:
        return f"as of {self.as_of}"


class QueueTags(models.Model):
    """The tags of a queue from the hour `since` on; the first row of a queue counts for what lies before it, too.

    Written by a trigger of the table of queues (migration 0009), and by nothing else: one row of a queue and hour, with
    the tags as they were when the hour began. No foreign keys: the history outlives its queue.
    """

    pk = models.CompositePrimaryKey("account_id", "queue_uuid", "since")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    queue_uuid = models.UUIDField()
    since = models.DateTimeField()
    tags = models.JSONField()

    class Meta:
        db_table = "queue_tags"

    def __str__(self) -> str:
        return f"{self.queue_uuid} from {self.since:%Y-%m-%dT%H}"
