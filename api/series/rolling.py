"""Rolls the minutes up into buckets of 5 minutes and of an hour, and removes what is older than it is kept.

A bucket and the row that says so are one transaction, so it is rolled up once, whichever worker does it. A level holds
from the minute that names it to the next one: means are over time, not over rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection, transaction

from api.series import limits
from api.series.collecting import FLOWS, OF_ACCOUNT

_FLOWS = ", ".join(FLOWS)
_HELD = ("waiting", "in_flight", "delayed")


def _span_columns(form: str) -> str:
    return ", ".join(form.format(name=name) for name in _HELD)


_ROLLED = ", ".join(f"{name}_mean, {name}_low, {name}_high, {name}" for name in _HELD)
_LEVELS = _span_columns(
    "(sum({name} * length) / sum(length))::float8 AS {name}_mean, min({name}) AS {name}_low,"
    " max({name}) AS {name}_high, (array_agg({name} ORDER BY at DESC))[1] AS {name}"
)
# Seconds by which the oldest message is older than a moment.
_AGE = (
    "CASE WHEN oldest_sent_ms = 0 THEN 0 ELSE greatest(0, extract(epoch FROM {moment}) - oldest_sent_ms / 1000.0) END"
)
_ROLL = f"""
WITH touched AS (
    SELECT account_id, queue_uuid, {", ".join(f"sum({name})::bigint AS {name}" for name in FLOWS)} FROM series_minute
     WHERE at >= %(start)s AND at < %(end)s GROUP BY account_id, queue_uuid
), levels AS (
    SELECT account_id, queue_uuid, at, {_span_columns("{name}")}, oldest_sent_ms, 1 AS place FROM series_minute
     WHERE at >= %(start)s AND at < %(end)s AND waiting IS NOT NULL
    UNION ALL
    SELECT t.account_id, t.queue_uuid, %(start)s, {_span_columns("coalesce(held.{name}, 0)")},
           coalesce(held.oldest_sent_ms, 0), 0
      FROM touched t LEFT JOIN LATERAL (
        SELECT * FROM series_minute m
         WHERE m.account_id = t.account_id AND m.queue_uuid = t.queue_uuid AND m.waiting IS NOT NULL
           AND m.at < %(start)s AND m.at >= %(held_since)s
         ORDER BY m.at DESC LIMIT 1) held ON true
), spans AS (
    SELECT *, lead(at, 1, %(end)s) OVER (PARTITION BY account_id, queue_uuid ORDER BY at, place) AS until FROM levels
), measured AS (
    SELECT *, extract(epoch FROM until - at) AS length, {_AGE.format(moment="at")} AS age_at_first,
           {_AGE.format(moment="until")} AS age_at_last
      FROM spans WHERE until > at
), held AS (
    SELECT account_id, queue_uuid, {_LEVELS},
           (sum((age_at_first + age_at_last) / 2 * length) / sum(length))::float8 AS age_s_mean,
           min(age_at_first)::float8 AS age_s_low, max(age_at_last)::float8 AS age_s_high,
           (array_agg(oldest_sent_ms ORDER BY at DESC))[1] AS oldest_sent_ms
      FROM measured GROUP BY account_id, queue_uuid
)
INSERT INTO series_rollup (account_id, queue_uuid, minutes, at, {_FLOWS}, {_ROLLED}, age_s_mean, age_s_low, age_s_high,
       oldest_sent_ms)
SELECT account_id, queue_uuid, %(minutes)s, %(start)s, {_FLOWS}, {_ROLLED}, age_s_mean, age_s_low, age_s_high,
       oldest_sent_ms
  FROM touched JOIN held USING (account_id, queue_uuid)
"""
_NOTE = """
INSERT INTO series_coverage (minutes, at, covered)
SELECT %(minutes)s, %(start)s, count(*) FROM series_coverage WHERE minutes = 1 AND at >= %(start)s AND at < %(end)s
    ON CONFLICT DO NOTHING
"""
_LAST = "SELECT max(at) FROM series_coverage WHERE minutes = %s"
_FIRST_MINUTE = "SELECT min(at) FROM series_coverage WHERE minutes = 1"
_REMOVE = "DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE {old} LIMIT %s))"
_GONE = (
    f"queue_uuid <> '{OF_ACCOUNT}' AND NOT EXISTS (SELECT FROM queue q WHERE q.account_id = series_queue.account_id"
    " AND q.uuid = series_queue.queue_uuid AND q.state <> 'deleted')"
)


class Bucket(NamedTuple):
    minutes: int
    start: datetime

    @property
    def end(self) -> datetime:
        return self.start + timedelta(minutes=self.minutes)


def buckets_due(now: datetime) -> Iterator[Bucket]:
    """Those that are over and were not rolled up, the earliest first, while their minutes are kept."""
    first = now - timedelta(hours=limits.MINUTES_KEPT_HOURS)
    for minutes in (5, 60):
        begins = _begin(minutes, first)
        if begins is None:
            continue
        bucket = Bucket(minutes, begins)
        while bucket.end + timedelta(seconds=limits.ROLL_GRACE_S) <= now:
            yield bucket
            bucket = Bucket(minutes, bucket.end)


@transaction.atomic
def roll_up(bucket: Bucket) -> bool:
    """False: another worker did."""
    given: dict[str, Any] = {
        "minutes": bucket.minutes,
        "start": bucket.start,
        "end": bucket.end,
        "held_since": bucket.start - timedelta(seconds=limits.LEVEL_HELD_S),
    }
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, given)
        if not cursor.rowcount:
            return False
        cursor.execute(_ROLL, given)
    return True


def remove_old(now: datetime) -> int:
    """How many rows went: those that are older than they are kept, and the totals of queues that are gone."""
    minutes, fives, hours = (
        now - timedelta(hours=limits.MINUTES_KEPT_HOURS),
        now - timedelta(days=limits.FIVE_MINUTES_KEPT_DAYS),
        now - timedelta(days=limits.HOURS_KEPT_DAYS),
    )
    marks = now - timedelta(hours=limits.MARKS_KEPT_HOURS)
    removed = 0
    with connection.cursor() as cursor:
        for table, old, given in (
            ("series_minute", "at < %s", [minutes]),
            ("series_rollup", "minutes = 5 AND at < %s", [fives]),
            ("series_rollup", "minutes = 60 AND at < %s", [hours]),
            ("series_coverage", "minutes = 1 AND at < %s", [minutes]),
            ("series_coverage", "minutes = 5 AND at < %s", [fives]),
            ("series_coverage", "minutes = 60 AND at < %s", [hours]),
            ("series_mark", "hour < %s", [marks]),
            ("series_queue", _GONE, []),
        ):
            cursor.execute(_REMOVE.format(table=table, old=old), [*given, limits.REMOVED_AT_ONCE_MAX])
            removed += cursor.rowcount
    return removed


def floor_to(minutes: int, at: datetime) -> datetime:
    seconds = int(at.timestamp())
    return datetime.fromtimestamp(seconds - seconds % (minutes * 60), at.tzinfo)


def _begin(minutes: int, first: datetime) -> datetime | None:
    """The first bucket that is not rolled up. None: no minute was ever covered."""
    with connection.cursor() as cursor:
        cursor.execute(_LAST, [minutes])
        last = cursor.fetchone()[0]
        if last is None:
            cursor.execute(_FIRST_MINUTE)
            known = cursor.fetchone()[0]
            return None if known is None else max(floor_to(minutes, known), floor_to(minutes, first))
    return max(last + timedelta(minutes=minutes), floor_to(minutes, first))
