"""How rollups come in: one run, one transaction, by COPY to a staging table and one merge.

A run has an id, the hours that it settles, and rows. Rows replace what their keys had: the same run twice, or two runs
over the same hours, leave the same rows. `begin_run` notes the hours as started in the fill ledger, `merge_run` merges
and notes them as done, together: after a crash in between the hours are still to be done, and nothing of them is there.
A row of an hour that other runs have done is late, and merged as well.

With `recount` the rows are all that there is for the hours: what is there beside them goes. Where part of what was
counted could not be read (`is_partial`) nothing goes, and no figure becomes smaller.

The run that began an hour last is the one that may merge it: one that began before and comes later, because its worker
stood still, is refused. So what counts a run's rows must begin after `begin_run`.

A row that cannot be billed is quarantined with its reason, and the others are merged. A record that is quarantined
again is the same row; it is resolved when a good row of its key comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction
from psycopg import sql

from api import clock
from api.billing import limits
from api.billing.models import FillLedger, UsageRun, UsageRunState
from api.billing.pricing.meters import UsageMeter, UsageOrigin
from api.billing.pricing.periods import HOUR, Interval, floor_hour

ALL_PARTITIONS = 0
OF_FRONT_ENDS = -1
_KEY = ("account_id", "hour", "queue_uuid", "partition_id", "origin")
# What the rows of a queue and hour share that are summed.
_TOGETHER = ("account_id", "hour", "queue_uuid", "origin")
COUNTED_TWICE = "counted_twice"
_COUNTERS = tuple(meter.value for meter in UsageMeter)
_BIGINT_MAX = 2**63 - 1


class UsageRow(NamedTuple):
    """As HourlyUsage. Counters are those of the whole hour."""

    account_id: str
    hour: datetime
    queue_uuid: UUID
    partition_id: int
    origin: str
    messages_sent: int = 0
    messages_delivered: int = 0
    messages_deleted: int = 0
    messages_moved: int = 0
    messages_dead_lettered: int = 0
    messages_scheduled: int = 0
    sent_bytes: int = 0
    delivered_bytes: int = 0
    sent_units: int = 0
    delivered_units: int = 0
    stored_byte_ms: int = 0
    requests: int = 0
    empty_receives: int = 0


assert UsageRow._fields == (*_KEY, *_COUNTERS)


class SettledRun(NamedTuple):
    """`merged` counts rows that are new or changed, `removed` those that a recount took away."""

    merged: int
    removed: int
    quarantined: int


class SettlingError(Exception):
    """The run's hours make no sense; the text says why."""


class RunOvertaken(SettlingError):
    """Another run has begun hours of this one since: its figures are later ones."""


def settle(run: UUID, hours: Interval, rows: Iterable[UsageRow], recount: bool = False) -> SettledRun:
    """All of a run. Safe to call again, with the same run or another. Raises SettlingError, and what `rows` raise."""
    begin_run(run, hours)
    try:
        return merge_run(run, hours, rows, recount)
    except Exception as error:
        note_run(run, str(error), UsageRunState.FAILED)
        raise


@transaction.atomic
def begin_run(run: UUID, hours: Interval) -> None:
    """Hours that are done stay done while they are counted again. Raises SettlingError."""
    now = clock.now()
    for end in hours:
        if floor_hour(end) != end:
            raise SettlingError(f"{end} is no whole hour")
    if not 0 < hours.hours <= limits.HOURS_PER_RUN_MAX:
        raise SettlingError(f"a run settles 1 to {limits.HOURS_PER_RUN_MAX} hours")
    if hours.end > now:
        raise SettlingError(f"the hour before {hours.end} has not ended")
    rows = [FillLedger(hour=hour, run=run, state="started", started_at=now) for hour in _each(hours)]
    FillLedger.objects.bulk_create(rows, ignore_conflicts=True)
    FillLedger.objects.filter(hour__gte=hours.start, hour__lt=hours.end).update(run=run, started_at=now)
    overlapping = UsageRun.objects.filter(hour_from__lt=hours.end, hour_to__gt=hours.start).exclude(pk=run)
    overlapping.filter(state=UsageRunState.STARTED).update(state=UsageRunState.OVERTAKEN, ended_at=now)
    begun = {"hour_from": hours.start, "hour_to": hours.end, "state": UsageRunState.STARTED, "started_at": now}
    UsageRun.objects.update_or_create(pk=run, defaults=begun)


@transaction.atomic
def merge_run(
    run: UUID, hours: Interval, rows: Iterable[UsageRow], recount: bool = False, is_partial: bool = False
) -> SettledRun:
    """Needs `begin_run` of the same run. Raises RunOvertaken."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (limits.SETTLING_LOCK_KEY,))
        if FillLedger.objects.filter(hour__gte=hours.start, hour__lt=hours.end).exclude(run=run).exists():
            raise RunOvertaken("a later run has begun these hours")
        _stage(cursor, rows)
        if is_partial:
            cursor.execute(_KEEP_GREATEST)
        removed = _remove_others(cursor, hours) if recount and not is_partial else 0
        cursor.execute(_JUDGE_BESIDE_STORED)
        quarantined = _quarantine(cursor, run)
        merged = _merge(cursor, run)
        cursor.execute(_RESOLVE)
        cursor.execute("DROP TABLE usage_staging, usage_judged")
        cursor.execute(_LEDGER_DONE, (clock.now(), merged, quarantined, hours.start, hours.end))
    UsageRun.objects.filter(pk=run).update(
        state=UsageRunState.DONE, ended_at=clock.now(), merged=merged, removed=removed, quarantined=quarantined
    )
    return SettledRun(merged, removed, quarantined)


def note_run(run: UUID, note: str, state: UsageRunState | None = None) -> None:
    """What was left out of it; or, with `state`, how it ended without being merged."""
    said = note[: limits.DETAIL_CHARACTERS_MAX].replace("\0", "?")
    UsageRun.objects.filter(pk=run).update(note=said)
    if state is not None:
        UsageRun.objects.filter(pk=run, state=UsageRunState.STARTED).update(state=state, ended_at=clock.now())


def _each(hours: Interval) -> list[datetime]:
    return [hours.start + HOUR * number for number in range(hours.hours)]


# --- the statements ---

_STAGING_COLUMNS = ", ".join(
    ["account_id text", "hour timestamptz", "queue_uuid uuid", "partition_id numeric", "origin text"]
    + [f"{name} numeric" for name in _COUNTERS]
)
_STAGE = f"CREATE TEMP TABLE usage_staging ({_STAGING_COLUMNS}) ON COMMIT DROP"
_COPY = f"COPY usage_staging ({', '.join(UsageRow._fields)}) FROM STDIN"
_LARGE = ", ".join(name for name in _COUNTERS if name != "stored_byte_ms")
# Each row once, with the reason why it is not billed. Rows of one key that differ contradict each other.
_JUDGE = f"""
CREATE TEMP TABLE usage_judged ON COMMIT DROP AS
SELECT j.*, CASE WHEN j.reason IS NOT NULL THEN j.reason
                 WHEN count(*) OVER (PARTITION BY {", ".join(_KEY)}, j.reason IS NULL) > 1 THEN 'conflicting_duplicate'
                 WHEN j.partition_id >= {ALL_PARTITIONS} AND bool_or(j.partition_id = {ALL_PARTITIONS}) OVER together
                  AND bool_or(j.partition_id > {ALL_PARTITIONS}) OVER together THEN '{COUNTED_TWICE}' END AS verdict
  FROM (SELECT s.*, CASE
          WHEN least({", ".join(_COUNTERS)}) < 0 THEN 'negative_counter'
          WHEN greatest({_LARGE}) > {_BIGINT_MAX} OR s.stored_byte_ms >= 1e{limits.QUANTITY_DIGITS}
          THEN 'counter_too_large'
          WHEN s.partition_id NOT BETWEEN {OF_FRONT_ENDS} AND {_BIGINT_MAX} THEN 'bad_partition'
          WHEN s.origin <> ALL (%s) THEN 'unknown_origin'
          WHEN s.hour <> date_trunc('hour', s.hour, 'UTC') THEN 'hour_not_whole'
          WHEN s.hour > %s THEN 'hour_in_future'
          WHEN a.id IS NULL THEN 'unknown_account'
          WHEN q.account_id <> s.account_id THEN 'queue_of_another_account'
          WHEN s.hour < date_trunc('hour', a.created_at, 'UTC') THEN 'hour_before_account'
          WHEN l.state_since <= s.hour THEN 'account_closed'
          END AS reason
          FROM (SELECT DISTINCT * FROM usage_staging) s
          LEFT JOIN account a ON a.id = s.account_id
          LEFT JOIN account_life l ON l.account_id = s.account_id AND l.state = 'closed'
          LEFT JOIN queue q ON q.uuid = s.queue_uuid) j
WINDOW together AS (PARTITION BY {", ".join(_TOGETHER)}, j.reason IS NULL)
"""
# A row of all partitions beside one of a single partition, which another run left there.
_JUDGE_BESIDE_STORED = f"""
UPDATE usage_judged j SET verdict = '{COUNTED_TWICE}'
  FROM hourly_usage u
 WHERE j.verdict IS NULL AND {" AND ".join(f"u.{name} = j.{name}" for name in _TOGETHER)}
   AND least(j.partition_id, u.partition_id) = {ALL_PARTITIONS}
   AND greatest(j.partition_id, u.partition_id) > {ALL_PARTITIONS}
"""
_RECORD = f"to_jsonb(j) - ARRAY['reason', 'verdict']"  # noqa: F541
_QUARANTINE = f"""
INSERT INTO quarantined_usage (fingerprint, run, reason, detail, account_id, hour, record, seen_at)
SELECT md5(j.verdict || ({_RECORD})::text), %s, j.verdict, '', left(j.account_id, 64), j.hour, {_RECORD}, %s
  FROM usage_judged j WHERE j.verdict IS NOT NULL
    ON CONFLICT (fingerprint) DO UPDATE SET run = excluded.run, seen_at = excluded.seen_at, resolved_at = NULL
"""
# Of what is there already and what was read now the greater figures, where part of the records cannot be read.
_KEEP_GREATEST = f"""
UPDATE usage_judged j
   SET ({", ".join(_COUNTERS)}) = ROW ({", ".join(f"greatest(j.{name}, u.{name})" for name in _COUNTERS)})
  FROM hourly_usage u
 WHERE j.verdict IS NULL AND {" AND ".join(f"u.{name} = j.{name}" for name in _KEY)}
"""
_SAME_KEY = " AND ".join(f"j.{name} = u.{name}" for name in _KEY)
_REMOVE = f"""
DELETE FROM hourly_usage u WHERE u.hour >= %s AND u.hour < %s
   AND NOT EXISTS (SELECT FROM usage_judged j WHERE j.verdict IS NULL AND {_SAME_KEY})
"""
_MERGE = f"""
INSERT INTO hourly_usage AS u ({", ".join(UsageRow._fields)}, run)
SELECT {", ".join(UsageRow._fields)}, %s FROM usage_judged WHERE verdict IS NULL
    ON CONFLICT ({", ".join(_KEY)}) DO UPDATE
   SET ({", ".join(_COUNTERS)}, run) = ROW ({", ".join(f"excluded.{name}" for name in _COUNTERS)}, excluded.run)
 WHERE ({", ".join(f"u.{name}" for name in _COUNTERS)})
       IS DISTINCT FROM ({", ".join(f"excluded.{name}" for name in _COUNTERS)})
"""
_RESOLVE = """
UPDATE quarantined_usage k SET resolved_at = clock_timestamp()
  FROM usage_judged j
 WHERE j.verdict IS NULL AND k.resolved_at IS NULL AND k.account_id = j.account_id AND k.hour = j.hour
   AND k.record->>'queue_uuid' = j.queue_uuid::text AND k.record->>'origin' = j.origin
   AND k.record->>'partition_id' = j.partition_id::text
"""
_LEDGER_DONE = """
UPDATE fill_ledger SET state = 'done', done_at = %s, rows = %s, quarantined = %s, times_done = times_done + 1
 WHERE hour >= %s AND hour < %s
"""


def _stage(cursor: Any, rows: Iterable[UsageRow]) -> None:
    cursor.execute(_STAGE)
    with cursor.copy(sql.SQL(_COPY)) as copy:
        for row in rows:
            copy.write_row(_printable(row))
    cursor.execute("ANALYZE usage_staging")
    ahead = clock.now() + timedelta(seconds=limits.USAGE_AHEAD_S_MAX)
    cursor.execute(_JUDGE, ([origin.value for origin in UsageOrigin], ahead))


def _printable(row: UsageRow) -> Sequence[Any]:
    """PostgreSQL takes no NUL in a text; an account id or an origin with one is unknown in any case."""
    if "\0" in row.account_id or "\0" in row.origin:
        return row._replace(account_id=row.account_id.replace("\0", "?"), origin=row.origin.replace("\0", "?"))
    return row


def _quarantine(cursor: Any, run: UUID) -> int:
    cursor.execute(_QUARANTINE, (run, clock.now()))
    return int(cursor.rowcount)


def _remove_others(cursor: Any, hours: Interval) -> int:
    cursor.execute(_REMOVE, (hours.start, hours.end))
    return int(cursor.rowcount)


def _merge(cursor: Any, run: UUID) -> int:
    cursor.execute(_MERGE, (run,))
    return int(cursor.rowcount)
