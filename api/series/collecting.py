"""Writes the minutes of the series from the figures of the live meter, and from what leaders say that queues hold.

A look of the meter is collected once: the difference of its figures to those that were collected before, its marks, the
totals and the clock are one transaction. Figures of an hour only grow, so a worker that dies leaves the difference to
the next one. A queue whose figures stand still costs no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection, transaction

from api.billing.models import MeterReading
from api.series import limits
from api.series.models import SeriesClock

FLOWS = (
    "messages_sent", "messages_delivered", "messages_deleted", "messages_dead_lettered", "sent_bytes", "requests",
    "empty_receives", "throttled", "errors",
)  # fmt: skip
LEVELS = ("waiting", "in_flight", "delayed", "oldest_sent_ms")
MINUTE = timedelta(minutes=1)
# In the place of a queue: all queues of the account together, and requests of none.
OF_ACCOUNT = UUID(int=0)
_NAMES = ", ".join(FLOWS)


def _each(form: str, joint: str = ", ") -> str:
    return joint.join(form.format(name=name) for name in FLOWS)


_SUMS = _each("sum(more_{name})::bigint AS {name}")
_CHANGED = f"""
WITH used AS (
    SELECT hour, account_id, queue_uuid, {_each("sum({name})::bigint AS {name}")} FROM provisional_usage
     WHERE hour >= %(since)s GROUP BY hour, account_id, queue_uuid
), changed AS (
    SELECT u.*, {_each("greatest(u.{name} - coalesce(m.{name}, 0), 0) AS more_{name}")}
      FROM used u LEFT JOIN series_mark m USING (hour, account_id, queue_uuid)
     WHERE {_each("u.{name} > coalesce(m.{name}, 0)", " OR ")}
     ORDER BY m.marked_at NULLS FIRST LIMIT %(queues)s
), marked AS (
    INSERT INTO series_mark AS k (hour, account_id, queue_uuid, {_NAMES}, marked_at)
    SELECT hour, account_id, queue_uuid, {_NAMES}, %(looked_at)s FROM changed
        ON CONFLICT (hour, account_id, queue_uuid) DO UPDATE
       SET marked_at = excluded.marked_at, {_each("{name} = greatest(k.{name}, excluded.{name})")}
), more AS (
    SELECT account_id, queue_uuid, {_SUMS} FROM changed
     WHERE queue_uuid <> %(of_account)s GROUP BY account_id, queue_uuid
    UNION ALL
    SELECT account_id, %(of_account)s, {_SUMS} FROM changed GROUP BY account_id
)"""
_COLLECT = f"""{_CHANGED}, totals AS (
    INSERT INTO series_queue AS q (account_id, queue_uuid, {_NAMES}, waiting, in_flight, delayed, oldest_sent_ms)
    SELECT account_id, queue_uuid, {_NAMES}, 0, 0, 0, 0 FROM more
        ON CONFLICT (account_id, queue_uuid) DO UPDATE
       SET looked_at = NULL, {_each("{name} = q.{name} + excluded.{name}")}
)
INSERT INTO series_minute AS m (account_id, queue_uuid, at, {_NAMES})
SELECT account_id, queue_uuid, %(at)s, {_NAMES} FROM more
    ON CONFLICT (account_id, queue_uuid, at) DO UPDATE SET {_each("{name} = m.{name} + excluded.{name}")}
RETURNING queue_uuid
"""
_COVER = """
INSERT INTO series_coverage (minutes, at, covered)
SELECT 1, minute, 1 FROM generate_series(%(first)s, %(last)s, interval '1 minute') minute ON CONFLICT DO NOTHING
"""
# With the first look: queues that hold messages from before, and are not used.
_SEED = f"""
INSERT INTO series_queue (account_id, queue_uuid, {_NAMES}, waiting, in_flight, delayed, oldest_sent_ms)
SELECT account_id, uuid, {_each("0")}, 0, 0, 0, 0 FROM queue WHERE state = 'active' ON CONFLICT DO NOTHING
"""
# Those that were used in this moment, then those that hold something, the one that was not looked at for longest first.
_TO_LOOK_AT = """
SELECT q.account_id, q.uuid, ARRAY(SELECT jsonb_array_elements_text(q.partitions)::bigint)
  FROM queue q JOIN series_queue s
    ON s.account_id = q.account_id AND s.queue_uuid = q.uuid
 WHERE q.state = 'active' AND (q.uuid = ANY(%(used)s) OR s.waiting <> 0 OR s.in_flight <> 0 OR s.delayed <> 0
        OR s.looked_at IS NULL)
 ORDER BY (q.uuid = ANY(%(used)s)) DESC, s.looked_at NULLS FIRST LIMIT %(queues)s
"""
_NOTE_LEVELS = f"""
WITH seen AS (
    SELECT * FROM unnest(%(accounts)s::text[], %(queues)s::uuid[], %(waiting)s::bigint[], %(in_flight)s::bigint[],
        %(delayed)s::bigint[], %(oldest)s::bigint[]) AS s (account_id, queue_uuid, {", ".join(LEVELS)})
), told AS (
    SELECT s.* FROM seen s JOIN series_queue q USING (account_id, queue_uuid)
     WHERE q.written_at IS NULL OR (s.waiting, s.in_flight, s.delayed, s.oldest_sent_ms)
            IS DISTINCT FROM (q.waiting, q.in_flight, q.delayed, q.oldest_sent_ms)
        OR (q.written_at <= %(stale)s AND (s.waiting, s.in_flight, s.delayed) <> (0, 0, 0))
), points AS (
    INSERT INTO series_minute (account_id, queue_uuid, at, {_NAMES}, {", ".join(LEVELS)})
    SELECT account_id, queue_uuid, %(minute)s, {_each("0")}, {", ".join(LEVELS)} FROM told
        ON CONFLICT (account_id, queue_uuid, at) DO UPDATE
       SET {", ".join(f"{name} = excluded.{name}" for name in LEVELS)}
    RETURNING queue_uuid
)
UPDATE series_queue q SET looked_at = %(at)s, written_at = CASE WHEN p.queue_uuid IS NULL THEN q.written_at
       ELSE %(at)s END, {", ".join(f"{name} = s.{name}" for name in LEVELS)}
  FROM seen s LEFT JOIN points p USING (queue_uuid)
 WHERE q.account_id = s.account_id AND q.queue_uuid = s.queue_uuid
"""


class HeldQueue(NamedTuple):
    """A queue to be asked what it holds."""

    account_id: str
    queue_uuid: UUID
    partitions: list[int]


class QueueLevels(NamedTuple):
    """What a queue holds, all of its partitions together; `oldest_sent_ms` 0: nothing waits."""

    account_id: str
    queue_uuid: UUID
    waiting: int
    in_flight: int
    delayed: int
    oldest_sent_ms: int


@transaction.atomic
def collect(reading: MeterReading, now: datetime) -> list[UUID] | None:
    """The queues whose figures grew. None: this look of the meter was collected before, or there was none."""
    SeriesClock.objects.get_or_create(pk=1)
    clock = SeriesClock.objects.select_for_update().get(pk=1)
    if reading.ended_at is None or reading.ended_at == clock.read_at:
        return None
    looked_at = reading.ended_at - timedelta(milliseconds=reading.took_ms)
    with connection.cursor() as cursor:
        if clock.looked_at is None:
            cursor.execute(_SEED)
        cursor.execute(
            _COLLECT,
            {
                "since": now - timedelta(hours=limits.COLLECTED_HOURS + 1),
                "of_account": OF_ACCOUNT,
                "queues": limits.COLLECTED_QUEUES_MAX,
                "looked_at": looked_at,
                "at": minute_of(_middle(clock.looked_at, looked_at)),
            },
        )
        used = [queue for (queue,) in cursor.fetchall() if queue != OF_ACCOUNT]
        if not reading.missing:
            cursor.execute(_COVER, _covered(clock.complete_at, looked_at))
            clock.complete_at = looked_at
    clock.read_at, clock.looked_at = reading.ended_at, looked_at
    clock.save()
    return used


def queues_to_look_at(used: Sequence[UUID]) -> list[HeldQueue]:
    """At most as many partitions as one tick asks for."""
    with connection.cursor() as cursor:
        cursor.execute(_TO_LOOK_AT, {"used": list(used), "queues": limits.LEVEL_PARTITIONS_MAX})
        found: list[HeldQueue] = []
        left = limits.LEVEL_PARTITIONS_MAX
        for row in cursor.fetchall():
            queue = HeldQueue(*row)
            left -= len(queue.partitions)
            if left < 0:
                break
            found.append(queue)
    return found


@transaction.atomic
def note_levels(seen: Sequence[QueueLevels], at: datetime) -> None:
    if not seen:
        return
    columns = list(zip(*seen, strict=True))
    with connection.cursor() as cursor:
        cursor.execute(
            _NOTE_LEVELS,
            {
                **{
                    name: list(column)
                    for name, column in zip(
                        ("accounts", "queues", "waiting", "in_flight", "delayed", "oldest"), columns, strict=True
                    )
                },
                "at": at,
                "minute": minute_of(at),
                "stale": at - timedelta(seconds=limits.LEVEL_WRITTEN_EVERY_S),
            },
        )


def minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _middle(before: datetime | None, looked_at: datetime) -> datetime:
    """Between two looks; close to the later one where they lie far apart."""
    back = timedelta(seconds=limits.FIGURES_BACK_S_MAX)
    if before is None or before >= looked_at:
        return looked_at
    return looked_at - min((looked_at - before) / 2, back)


def _covered(before: datetime | None, looked_at: datetime) -> dict[str, datetime]:
    """The minutes that this look and the one before it speak of."""
    last = minute_of(looked_at)
    near = before is not None and before <= looked_at <= before + timedelta(seconds=limits.COVERED_GAP_S_MAX)
    return {"first": minute_of(before) if near and before is not None else last, "last": last}
