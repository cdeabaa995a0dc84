"""Usage of hours that are not settled, from the usage stream itself: what the live meter adds to what is settled.

An hour is either settled or provisional: once a run has settled it, its rows here are not counted.
The figures of a key are cumulative, so rows that come again, or late, change nothing; the greatest counts. What is
missing here until it is settled: what is stored by a queue without traffic. What settling would not bill (of another
account's queue, of hours in which the account was not open) is left out here, too; the pipeline quarantines it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet
from psycopg import sql

from api.billing import limits
from api.billing.models import FillLedger, MeterReading, ProvisionalUsage, UsageStreamPosition
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.periods import Interval
from api.billing.pricing.priced_month import QueueQuantities
from api.billing.selectors import QueuesAsked, quantities_in, queue_sums, settled_sums

FULL = "More usage is not settled than the meter holds: settle it (docs/usage.md)."
NEVER_READ = "The open windows were not read yet: no worker runs, or the storage nodes do not answer."
STALE = "The open windows were last read at `as_of`; what was counted since is missing."


class ProvisionalRow(NamedTuple):
    """As ProvisionalUsage; `counters` in the order of UsageMeter, `shown` in that of SHOWN."""

    hour: datetime
    account_id: str
    queue_uuid: UUID
    source: str
    origin: str
    counters: Sequence[int]
    shown: Sequence[int] = (0, 0)


# Counted for the series of metrics, and never settled.
SHOWN = ("throttled", "errors")
_KEY = ProvisionalRow._fields[:-2]
_COUNTERS = (*(meter.value for meter in UsageMeter), *SHOWN)
_COLUMNS = ", ".join((*_KEY, *_COUNTERS))
_IS_SETTLED = "SELECT FROM fill_ledger l WHERE l.hour = {row}.hour AND l.times_done > 0"
_STAGE = "CREATE TEMP TABLE provisional_staging (LIKE provisional_usage) ON COMMIT DROP"
_COPY = f"COPY provisional_staging ({_COLUMNS}) FROM STDIN"
_MERGE = f"""
INSERT INTO provisional_usage AS u ({_COLUMNS})
SELECT {_COLUMNS} FROM provisional_staging s
 WHERE EXISTS (SELECT FROM account a LEFT JOIN account_life l ON l.account_id = a.id AND l.state = 'closed'
                WHERE a.id = s.account_id AND s.hour >= date_trunc('hour', a.created_at, 'UTC')
                  AND (l.state_since IS NULL OR l.state_since > s.hour))
   AND NOT EXISTS (SELECT FROM queue q WHERE q.uuid = s.queue_uuid AND q.account_id <> s.account_id)
   AND NOT EXISTS ({_IS_SETTLED.format(row="s")})
    ON CONFLICT ({", ".join(_KEY)}) DO UPDATE
   SET ({", ".join(_COUNTERS)}) = ROW ({", ".join(f"greatest(u.{name}, excluded.{name})" for name in _COUNTERS)})
 WHERE {" OR ".join(f"u.{name} < excluded.{name}" for name in _COUNTERS)}
RETURNING u.account_id
"""
# Settled usage says nothing of keys: what the rows that go say of them is kept.
_DROP_SETTLED = f"""
WITH gone AS (DELETE FROM provisional_usage u WHERE EXISTS ({_IS_SETTLED.format(row="u")}) RETURNING u.*),
     kept AS (
INSERT INTO key_usage AS k (account_id, day, access_key_id, requests, empty_receives)
SELECT account_id, date_trunc('day', hour, 'UTC'), split_part(source, '/', 3), sum(requests), sum(empty_receives)
  FROM gone WHERE split_part(source, '/', 3) <> '' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (account_id, day, access_key_id) DO UPDATE
   SET requests = k.requests + excluded.requests, empty_receives = k.empty_receives + excluded.empty_receives)
SELECT count(*) FROM gone
"""
_ROWS = f"SELECT count(*) FROM (SELECT FROM provisional_usage LIMIT {limits.PROVISIONAL_ROWS_MAX}) held"


def position_of(partition: str) -> int:
    """The first offset that was not read."""
    found = UsageStreamPosition.objects.filter(pk=partition).first()
    return 0 if found is None else found.next_offset


@transaction.atomic
def merge_provisional(partition: str, next_offset: int, rows: Iterable[ProvisionalRow]) -> set[str] | None:
    """The accounts that `rows` tell more about. They are of different keys, all that was read before `next_offset`.
    None: there is no room, and the position stays."""
    position, _ = UsageStreamPosition.objects.select_for_update().get_or_create(pk=partition)
    with connection.cursor() as cursor:
        cursor.execute(_ROWS)
        if cursor.fetchone()[0] >= limits.PROVISIONAL_ROWS_MAX:
            return None
        changed = _merge(cursor, rows)
    if position.next_offset < next_offset:
        position.next_offset = next_offset
        position.save(update_fields=["next_offset"])
    return changed


def drop_settled() -> int:
    """How many rows were of hours that are settled since."""
    with connection.cursor() as cursor:
        cursor.execute(_DROP_SETTLED)
        return int(cursor.fetchone()[0])


def _merge(cursor: Any, rows: Iterable[ProvisionalRow]) -> set[str]:
    cursor.execute(_STAGE)
    with cursor.copy(sql.SQL(_COPY)) as copy:
        for row in rows:
            copy.write_row((*row[:-2], *row.counters, *row.shown))
    cursor.execute(_MERGE)
    found = {account_id for (account_id,) in cursor.fetchall()}
    cursor.execute("DROP TABLE provisional_staging")
    return found


# --- reads ---


def provisional_quantities_of(account_id: str, interval: Interval, queues: QueuesAsked = None) -> list[QueueQuantities]:
    """Per queue, of the interval's hours that are not settled."""
    return quantities_in(queue_sums(unsettled(account_id, interval), queues))


def quantities_so_far(account_id: str, interval: Interval, queues: QueuesAsked = None) -> list[QueueQuantities]:
    """Settled and provisional ones, of a queue one after the other. One statement: an hour that is settled in the same
    moment is in it once."""
    provisional = queue_sums(unsettled(account_id, interval), queues)
    return quantities_in(settled_sums(account_id, interval, queues).union(provisional, all=True))


def unsettled(account_id: str, interval: Interval) -> QuerySet[ProvisionalUsage]:
    done = FillLedger.objects.filter(hour=OuterRef("hour"), times_done__gt=0)
    rows = ProvisionalUsage.objects.filter(account_id=account_id, hour__gte=interval.start, hour__lt=interval.end)
    return rows.exclude(Exists(done))


def first_provisional_hour() -> datetime | None:
    """Of all accounts."""
    return ProvisionalUsage.objects.order_by("hour").values_list("hour", flat=True).first()


def meter_reading() -> MeterReading:
    """Of an installation whose meter was never read: one without a time."""
    return MeterReading.objects.filter(pk=1).first() or MeterReading()


@transaction.atomic
def note_reading(as_of: datetime | None, took_ms: int, ended_at: datetime, missing: str) -> None:
    """`as_of` None: it did not go further than before. A look that began earlier and ended later takes nothing back; a
    time that lies ahead of `ended_at` is one of a clock that was wrong."""
    reading, _ = MeterReading.objects.select_for_update().get_or_create(pk=1)
    if as_of is not None and (reading.as_of is None or reading.as_of < as_of or reading.as_of > ended_at):
        reading.as_of = as_of
    reading.took_ms, reading.ended_at = took_ms, ended_at
    reading.missing = missing[: limits.DETAIL_CHARACTERS_MAX]
    reading.save()


class NowAnswer(NamedTuple):
    """`complete`: everything acknowledged before the question is in. Else `missing_from` to the end is not, and why."""

    complete: bool
    as_of: datetime | None
    missing_from: datetime | None
    reason: str


def answer_now(interval: Interval, settled: datetime | None, reading: MeterReading, asked: datetime) -> NowAnswer:
    """`asked`: when the question came. A period that is settled whole, or has not begun, is complete in any case."""
    begins = interval.start if settled is None else max(interval.start, settled)
    wanted = min(asked, interval.end)
    if begins >= wanted:
        return NowAnswer(True, reading.as_of, None, "")
    if reading.as_of is not None and reading.as_of >= wanted:
        return NowAnswer(True, reading.as_of, None, "")
    if reading.as_of is None:
        return NowAnswer(False, None, begins, reading.missing or NEVER_READ)
    return NowAnswer(False, reading.as_of, max(begins, reading.as_of), reading.missing or STALE)
