"""Shares of queues by the tags that the queues had: an hour counts for the tags of its beginning. Reads only.

A queue whose tags did not change within the interval is one part. Else each set of tags that it had is one, in the
order in which they came first; its share of a charge is by quantity, and the parts sum to the queue's share exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from api.billing import limits
from api.billing.models import QueueTags
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.money import split_exactly
from api.billing.pricing.periods import Interval
from api.billing.pricing.priced_month import QueueShare

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
    """`is_provisional`: with the hours that are not settled."""
    wanted = set(queues)
    held: dict[UUID, list[Tags]] = {}
    rows = QueueTags.objects.filter(account_id=account_id, since__lt=interval.end).order_by("queue_uuid", "since")
    for queue_uuid, since, tags in rows.values_list("queue_uuid", "since", "tags").iterator():
        if queue_uuid in wanted:
            # The last one before the interval holds when it begins.
            before = [] if since <= interval.start else held.get(queue_uuid, [])
            held[queue_uuid] = [*before, tags] if tags not in before else before
    later = QueueTags.objects.filter(account_id=account_id, queue_uuid__in=wanted - held.keys())
    for row in later.order_by("queue_uuid", "since").distinct("queue_uuid"):
        held[row.queue_uuid] = [row.tags]
    steady = {queue_uuid: sets[-1] for queue_uuid, sets in held.items() if len(sets) == 1}
    changing = [queue_uuid for queue_uuid in held if queue_uuid not in steady]
    changed: dict[UUID, list[TaggedPart]] = {}
    if changing:
        for queue_uuid, part in _by_tags(account_id, interval, changing, is_provisional):
            _join(changed.setdefault(queue_uuid, []), part)
    return QueueTagHistory(steady, changed)


_NAMES = ", ".join(meter.value for meter in UsageMeter)
_SUMS = ", ".join(f"sum(u.{meter.value})" for meter in UsageMeter)
# The tags of an hour: the latest ones of before; of an hour before the first row of its queue that row's.
_BY_TAGS = f"""
SELECT u.queue_uuid, t.tags::text, u.is_settled, min(u.hour) AS first, {_SUMS}
  FROM (SELECT true AS is_settled, account_id, queue_uuid, hour, {_NAMES} FROM hourly_usage
        UNION ALL
        SELECT false, account_id, queue_uuid, hour, {_NAMES} FROM provisional_usage p
         WHERE %(is_provisional)s
           AND NOT EXISTS (SELECT 1 FROM fill_ledger f WHERE f.hour = p.hour AND f.times_done > 0)) u
 CROSS JOIN LATERAL (
       SELECT q.tags FROM queue_tags q WHERE q.account_id = u.account_id AND q.queue_uuid = u.queue_uuid
        ORDER BY q.since <= u.hour DESC, CASE WHEN q.since <= u.hour THEN -1 ELSE 1 END * extract(epoch FROM q.since)
        LIMIT 1) t
 WHERE u.account_id = %(account_id)s AND u.hour >= %(start)s AND u.hour < %(end)s AND u.queue_uuid = ANY(%(queues)s)
 GROUP BY 1, 2, 3 ORDER BY 1, first, 2, 3
"""


def _by_tags(
    account_id: str, interval: Interval, queues: Sequence[UUID], is_provisional: bool
) -> list[tuple[UUID, TaggedPart]]:
    """One statement: an hour that is settled in the same moment is in it once."""
    given: dict[str, Any] = {"start": interval.start, "end": interval.end, "queues": list(queues)}
    with connection.cursor() as cursor:
        cursor.execute(_BY_TAGS, {**given, "account_id": account_id, "is_provisional": is_provisional})
        rows = cursor.fetchall()
    return [(queue_uuid, _part(json.loads(tags), is_settled, sums)) for queue_uuid, tags, is_settled, _, *sums in rows]


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
