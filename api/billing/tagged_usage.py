"""Shares of queues by the tags that the queues had: an hour counts for the tags of its beginning. Reads only.

A queue whose tags did not change within the interval is one part. Else each set of tags that it had is one, in the
order in which they came first; its share of a charge is by quantity, and the parts sum to the queue's share exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db import connection

from api.billing import limits
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.money import split_exactly
from api.billing.pricing.periods import DAY, HOUR, Interval, whole_days
from api.billing.pricing.priced_month import QueueShare

T = TypeVar("T")
Tags = Mapping[str, str]
NO_TAGS: Tags = {}
Quantities = Mapping[UsageMeter, int]
_NOTHING: Quantities = dict.fromkeys(UsageMeter, 0)


class TaggedPart(NamedTuple):
    """What a queue used while it had these tags."""

    tags: Tags
    settled: Quantities
    provisional: Quantities

    def quantity(self, meter: UsageMeter) -> int:
        return self.settled[meter] + self.provisional[meter]


class TaggedShare(NamedTuple):
    """`part` numbers a queue's sets of tags."""

    part: int
    tags: Tags
    share: QueueShare


class QueueTagHistory(NamedTuple):
    """`steady`: the tags of queues that kept them; `changed`: the parts of the others."""

    steady: Mapping[UUID, Tags]
    changed: Mapping[UUID, Sequence[TaggedPart]]

    def split(self, share: QueueShare) -> list[TaggedShare]:
        """They sum to the share, also where usage came in between the readings of it and of the parts."""
        parts = self.changed.get(share.queue_uuid, ())
        weights = [part.quantity(share.meter) for part in parts]
        if not any(weights):
            tags = parts[-1].tags if parts else self.steady.get(share.queue_uuid, NO_TAGS)
            return [TaggedShare(0, tags, share)]
        quantities = split_exactly(share.quantity, weights)
        amounts = split_exactly(share.amount_nanos, weights)
        return [
            TaggedShare(number, part.tags, share._replace(quantity=quantity, amount_nanos=amount))
            for number, (part, quantity, amount) in enumerate(zip(parts, quantities, amounts, strict=True))
            if quantity or amount
        ]


def tag_history(
    account_id: str, interval: Interval, queues: Iterable[UUID], is_provisional: bool = False
) -> QueueTagHistory:
    """Of these queues alone: a caller with many asks for QUEUES_AT_ONCE_MAX of them after the other. `is_provisional`:
    with the hours that are not settled."""
    steady: dict[UUID, Tags] = {}
    changing: list[UUID] = []
    given: dict[str, Any] = {
        "account_id": account_id,
        "start": interval.start,
        "end": interval.end,
        "queues": sorted(set(queues)),
    }
    with connection.cursor() as cursor:
        cursor.execute(_TAGS_HELD, given)
        for queue_uuid, least, greatest in cursor.fetchall():
            if least == greatest:
                steady[queue_uuid] = json.loads(least)
            else:
                changing.append(queue_uuid)
    changed: dict[UUID, list[TaggedPart]] = {}
    if changing:
        for queue_uuid, part in _by_tags(account_id, interval, changing, is_provisional):
            _join(changed.setdefault(queue_uuid, []), part)
    return QueueTagHistory(steady, changed)


# A row of each queue: whether it had one set of tags in the interval. Of a queue whose first row comes later, that one.
_TAGS_HELD = """
SELECT w.queue_uuid, min(t.tags::text), max(t.tags::text)
  FROM unnest(%(queues)s::uuid[]) AS w (queue_uuid)
 CROSS JOIN LATERAL (
       (SELECT q.tags FROM queue_tags q
         WHERE q.account_id = %(account_id)s AND q.queue_uuid = w.queue_uuid AND q.since <= %(start)s
         ORDER BY q.since DESC LIMIT 1)
       UNION ALL
       (SELECT q.tags FROM queue_tags q
         WHERE q.account_id = %(account_id)s AND q.queue_uuid = w.queue_uuid
           AND q.since > %(start)s AND q.since < %(end)s)
       UNION ALL
       (SELECT q.tags FROM (SELECT tags, since FROM queue_tags
                             WHERE account_id = %(account_id)s AND queue_uuid = w.queue_uuid ORDER BY since LIMIT 1) q
         WHERE q.since >= %(end)s)) t
 GROUP BY w.queue_uuid
"""
_NAMES = ", ".join(meter.value for meter in UsageMeter)
_SUMS = ", ".join(f"sum(u.{meter.value})" for meter in UsageMeter)
# Days in which a queue's tags did not change are read from their sums, the others hour by hour; each row is looked up
# by its key (OFFSET 0: the planner does not read all rows of the account instead). The tags of an hour: the latest ones
# of before; of an hour before the first row of its queue that row's.
_BY_TAGS = f"""
WITH wanted AS MATERIALIZED (SELECT unnest(%(queues)s::uuid[]) AS queue_uuid),
     torn AS MATERIALIZED (
       SELECT DISTINCT q.queue_uuid, date_trunc('day', q.since, 'UTC') AS day
         FROM wanted w JOIN queue_tags q ON q.account_id = %(account_id)s AND q.queue_uuid = w.queue_uuid
        WHERE q.since > %(start)s AND q.since < %(end)s AND q.since <> date_trunc('day', q.since, 'UTC')),
     single AS MATERIALIZED (
       SELECT t.queue_uuid, h.hour
         FROM torn t CROSS JOIN LATERAL generate_series(greatest(t.day, %(start)s),
              least(t.day + interval '24 hours', %(end)s) - interval '1 hour', interval '1 hour') AS h (hour)
       UNION
       SELECT w.queue_uuid, h.hour FROM wanted w CROSS JOIN unnest(%(hours)s::timestamptz[]) AS h (hour)),
     whole AS MATERIALIZED (
       SELECT w.queue_uuid, d.day FROM wanted w CROSS JOIN unnest(%(days)s::timestamptz[]) AS d (day)
       EXCEPT SELECT queue_uuid, day FROM torn)
SELECT u.queue_uuid, t.tags::text, u.is_settled, min(u.hour) AS first, {_SUMS}
  FROM (SELECT true AS is_settled, w.queue_uuid, w.day AS hour, {_NAMES}
          FROM whole w CROSS JOIN LATERAL (
               SELECT {_NAMES} FROM daily_usage d
                WHERE d.account_id = %(account_id)s AND d.day = w.day AND d.queue_uuid = w.queue_uuid OFFSET 0) d
        UNION ALL
        SELECT true, s.queue_uuid, s.hour, {_NAMES}
          FROM single s CROSS JOIN LATERAL (
               SELECT {_NAMES} FROM hourly_usage h
                WHERE h.account_id = %(account_id)s AND h.day = date_trunc('day', s.hour, 'UTC')
                  AND h.hour = s.hour AND h.queue_uuid = s.queue_uuid OFFSET 0) h
        UNION ALL
        SELECT false, queue_uuid, hour, {_NAMES} FROM provisional_usage p
         WHERE %(is_provisional)s AND account_id = %(account_id)s AND hour >= %(start)s AND hour < %(end)s
           AND queue_uuid = ANY(%(queues)s)
           AND NOT EXISTS (SELECT 1 FROM fill_ledger f WHERE f.hour = p.hour AND f.times_done > 0)) u
 CROSS JOIN LATERAL (
       SELECT q.tags FROM queue_tags q WHERE q.account_id = %(account_id)s AND q.queue_uuid = u.queue_uuid
        ORDER BY q.since <= u.hour DESC, CASE WHEN q.since <= u.hour THEN -1 ELSE 1 END * extract(epoch FROM q.since)
        LIMIT 1) t
 GROUP BY 1, 2, 3 ORDER BY 1, first, 2, 3
"""


def _by_tags(
    account_id: str, interval: Interval, queues: Sequence[UUID], is_provisional: bool
) -> list[tuple[UUID, TaggedPart]]:
    """One statement: an hour that is settled in the same moment is in it once."""
    days = whole_days(interval) or Interval(interval.end, interval.end)
    given: dict[str, Any] = {
        "account_id": account_id, "start": interval.start, "end": interval.end, "queues": list(queues),
        "is_provisional": is_provisional, "days": _each(days, DAY),
        "hours": [*_each(Interval(interval.start, days.start), HOUR), *_each(Interval(days.end, interval.end), HOUR)],
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_BY_TAGS, given)
        rows = cursor.fetchall()
    return [(queue_uuid, _part(json.loads(tags), is_settled, sums)) for queue_uuid, tags, is_settled, _, *sums in rows]


def in_batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Of queues, as many as `tag_history` is asked for at once."""
    for at in range(0, len(rows), limits.QUEUES_AT_ONCE_MAX):
        yield rows[at : at + limits.QUEUES_AT_ONCE_MAX]


def _each(interval: Interval, step: timedelta) -> list[datetime]:
    return [interval.start + step * number for number in range(int((interval.end - interval.start) / step))]


def _part(tags: Tags, is_settled: bool, sums: Sequence[object]) -> TaggedPart:
    quantities = {meter: int(str(number)) for meter, number in zip(UsageMeter, sums, strict=True)}
    return TaggedPart(tags, quantities, _NOTHING) if is_settled else TaggedPart(tags, _NOTHING, quantities)


def _join(parts: list[TaggedPart], part: TaggedPart) -> None:
    """Sets beyond TAG_SETS_PER_QUEUE_MAX count for the last one within."""
    at = next((place for place, one in enumerate(parts) if one.tags == part.tags), len(parts))
    if at == len(parts) and at < limits.TAG_SETS_PER_QUEUE_MAX:
        parts.append(part)
        return
    before = parts[min(at, len(parts) - 1)]
    parts[min(at, len(parts) - 1)] = before._replace(
        settled=_sum(before.settled, part.settled), provisional=_sum(before.provisional, part.provisional)
    )


def _sum(one: Quantities, other: Quantities) -> Quantities:
    return {meter: one[meter] + other[meter] for meter in UsageMeter}
