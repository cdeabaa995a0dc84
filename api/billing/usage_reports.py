"""A month's usage cut by queue, day, hour, origin, tag or key, with what each part costs. Reads only.

What a part costs is its share of the month's charge for each meter, by quantity: the parts sum to the charge (decision
0021). Of one queue, or of one day, it is a share of that queue's or day's share.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import BooleanField, CharField, F, Func, QuerySet, Sum, Value
from django.db.models.functions import TruncDay

from api.billing.account_month import AccountMonth
from api.billing.models import KeyUsage, ProvisionalUsage
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.money import nanos_per_minor, split_exactly
from api.billing.pricing.periods import Interval
from api.billing.pricing.priced_month import LineKind
from api.billing.provisional import unsettled
from api.billing.selectors import QueuesAsked, settled_days, settled_usage
from api.billing.tagged_usage import NO_TAGS, QueueTagHistory, in_batches, tag_history

UNTAGGED = ""
Quantities = Mapping[UsageMeter, int]
_NOTHING: Quantities = dict.fromkeys(UsageMeter, 0)
_SUMS = {f"sum_{meter}": Sum(meter.value) for meter in UsageMeter}


class UsageCut(enum.StrEnum):
    QUEUE = "queue"
    DAY = "day"
    HOUR = "hour"
    ORIGIN = "origin"
    TAG = "tag"


class UsageAsked(NamedTuple):
    """`queue_uuid` and `day` leave out all else; hours are those of a day; `tag` is the key of a tag."""

    cut: UsageCut
    queue_uuid: UUID | None = None
    day: Interval | None = None
    tag: str = ""


class UsagePart(NamedTuple):
    """`key`: the queue's UUID, the beginning of the day or hour, the origin, the tag's value. `provisional_nanos` is
    the part of `amount_nanos` that is of hours that are not settled."""

    key: Hashable
    settled: Quantities
    provisional: Quantities
    amounts: Mapping[UsageMeter, int]
    provisional_nanos: int

    @property
    def amount_nanos(self) -> int:
        return sum(self.amounts.values())

    def quantity(self, meter: UsageMeter) -> int:
        return self.settled[meter] + self.provisional[meter]


class KeyRequests(NamedTuple):
    access_key_id: str
    requests: int
    empty_receives: int


def queues_for(asked: UsageAsked) -> QueuesAsked:
    """Whose shares of the month `usage_parts` needs."""
    if asked.queue_uuid is not None:
        return (asked.queue_uuid,)
    return None if asked.cut in (UsageCut.QUEUE, UsageCut.TAG) and asked.day is None else ()


def usage_parts(month: AccountMonth, asked: UsageAsked) -> list[UsagePart]:
    """In no order. `month`: settled and provisional, at least with `queues_for` what is asked."""
    assert asked.cut is not UsageCut.HOUR or asked.day is not None, "hours are those of a day"
    account_id, whole = month.account.pk, Interval(*month.period)
    charges = _charges(month, asked.queue_uuid)
    if asked.day is not None:
        days = _cut(account_id, whole, UsageCut.DAY, asked.queue_uuid)
        charges = dict(zip(days, _split(days, charges), strict=True)).get(asked.day.start, {})
    by_queue = asked.cut in (UsageCut.QUEUE, UsageCut.TAG)
    found = _cut(account_id, asked.day or whole, UsageCut.QUEUE if by_queue else asked.cut, asked.queue_uuid)
    if by_queue and asked.day is None:
        amounts = _queue_shares(month, asked.queue_uuid)
        parts = [_part(key, sums, amounts.get(key, {})) for key, sums in found.items()]
    else:
        split = _split(found, charges)
        parts = [_part(key, sums, one) for (key, sums), one in zip(found.items(), split, strict=True)]
    return _by_tag(account_id, asked.day or whole, parts, asked.tag) if asked.cut is UsageCut.TAG else parts


def requests_by_key(account_id: str, interval: Interval) -> list[KeyRequests]:
    """Of whole days; what most requests were made with comes first. Requests of no key of the account are not in it."""
    sums = {"sum_requests": Sum("requests"), "sum_empty_receives": Sum("empty_receives")}
    settled = KeyUsage.objects.filter(account_id=account_id, day__gte=interval.start, day__lt=interval.end)
    open_hours = unsettled(account_id, interval).annotate(access_key_id=_key_of_source()).exclude(access_key_id="")
    both = [rows.values("access_key_id").annotate(**sums) for rows in (settled, open_hours)]
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in both[0].union(both[1], all=True):
        found[row["access_key_id"]][0] += int(row["sum_requests"])
        found[row["access_key_id"]][1] += int(row["sum_empty_receives"])
    rows = [KeyRequests(key, *sums) for key, sums in found.items()]
    return sorted(rows, key=lambda row: (-row.requests, row.access_key_id))


def _key_of_source() -> Func:
    """Of the front ends' sources alone: `front end/sequence/access key id`."""
    return Func(F("source"), Value("/"), Value(3), function="split_part", output_field=CharField())


def _charges(month: AccountMonth, queue_uuid: UUID | None) -> dict[UsageMeter, int]:
    """Nanos of each meter."""
    found: dict[UsageMeter, int] = defaultdict(int)
    if queue_uuid is not None:
        return dict(_queue_shares(month, queue_uuid).get(queue_uuid, {}))
    for line in month.priced.lines:
        if line.kind is LineKind.USAGE and line.meter is not None:
            found[line.meter] += line.amount_minor * nanos_per_minor(month.priced.currency)
    return dict(found)


def _queue_shares(month: AccountMonth, queue_uuid: UUID | None) -> dict[Hashable, dict[UsageMeter, int]]:
    found: dict[Hashable, dict[UsageMeter, int]] = defaultdict(dict)
    for share in month.priced.shares:
        if queue_uuid in (None, share.queue_uuid):
            found[share.queue_uuid][share.meter] = share.amount_nanos
    return found


Sums = tuple[Quantities, Quantities]


def _cut(account_id: str, interval: Interval, cut: UsageCut, queue_uuid: UUID | None) -> dict[Hashable, Sums]:
    """Settled and provisional sums. One statement: an hour that is settled in the same moment is in it once."""
    settled: QuerySet[Any]
    settled = settled_usage(account_id, interval) if cut is UsageCut.HOUR else settled_days(account_id, interval)
    rows = [_grouped(settled, cut, queue_uuid, True), _grouped(unsettled(account_id, interval), cut, queue_uuid, False)]
    found: dict[Hashable, list[Quantities]] = defaultdict(lambda: [_NOTHING, _NOTHING])
    for row in rows[0].union(rows[1], all=True):
        sums = {meter: int(row[f"sum_{meter}"]) for meter in UsageMeter}
        found[row["part"]][0 if row["is_settled"] else 1] = sums
    return {key: (sums[0], sums[1]) for key, sums in found.items()}


def _grouped(rows: QuerySet[Any], cut: UsageCut, queue_uuid: UUID | None, is_settled: bool) -> Any:
    if queue_uuid is not None:
        rows = rows.filter(queue_uuid=queue_uuid)
    parts: dict[UsageCut, Callable[[], Any]] = {
        UsageCut.QUEUE: lambda: F("queue_uuid"),
        UsageCut.ORIGIN: lambda: F("origin"),
        UsageCut.HOUR: lambda: F("hour"),
        UsageCut.DAY: lambda: F("day") if rows.model is not ProvisionalUsage else TruncDay("hour", tzinfo=UTC),
    }
    marked = rows.annotate(part=parts[cut](), is_settled=Value(is_settled, output_field=BooleanField()))
    return marked.values("part", "is_settled").annotate(**_SUMS)


def _split(found: Mapping[Hashable, Sums], charges: Mapping[UsageMeter, int]) -> list[dict[UsageMeter, int]]:
    """Each part's share of each meter's charge."""
    shares: list[dict[UsageMeter, int]] = [{} for _ in found]
    for meter, nanos in charges.items():
        weights = [settled[meter] + provisional[meter] for settled, provisional in found.values()]
        if any(weights):
            for share, part in zip(shares, split_exactly(nanos, weights), strict=True):
                share[meter] = part
    return shares


def _part(key: Hashable, sums: Sums, amounts: Mapping[UsageMeter, int]) -> UsagePart:
    settled, provisional = sums
    open_nanos = 0
    for meter, nanos in amounts.items():
        whole = settled[meter] + provisional[meter]
        open_nanos += nanos * provisional[meter] // whole if whole else 0
    return UsagePart(key, settled, provisional, amounts, open_nanos)


def _by_tag(account_id: str, interval: Interval, parts: list[UsagePart], tag: str) -> list[UsagePart]:
    """By the value that the queues had at each hour."""
    found: dict[Hashable, UsagePart] = {}
    for some in in_batches(parts):
        queues = [part.key for part in some if isinstance(part.key, UUID)]
        history = tag_history(account_id, interval, queues, is_provisional=True)
        pieces: dict[Hashable, list[UsagePart]] = defaultdict(list)
        for part in some:
            for tags, piece in _by_tags(part, history):
                pieces[str(tags.get(tag, UNTAGGED))].append(piece)
        for value, ones in pieces.items():
            found[value] = _together(value, [*ones, found[value]] if value in found else ones)
    return list(found.values())


def _by_tags(part: UsagePart, history: QueueTagHistory) -> list[tuple[Mapping[str, str], UsagePart]]:
    assert isinstance(part.key, UUID)
    sets = history.changed.get(part.key)
    if sets is None:
        return [(history.steady.get(part.key, NO_TAGS), part)]
    amounts = _split({number: (one.settled, one.provisional) for number, one in enumerate(sets)}, part.amounts)
    return [
        (one.tags, _part(part.key, (one.settled, one.provisional), amount))
        for one, amount in zip(sets, amounts, strict=True)
    ]


def _together(key: Hashable, parts: list[UsagePart]) -> UsagePart:
    amounts: dict[UsageMeter, int] = defaultdict(int)
    for part in parts:
        for meter, nanos in part.amounts.items():
            amounts[meter] += nanos
    settled, provisional = (
        {meter: sum(one[meter] for one in sums) for meter in UsageMeter}
        for sums in ([part.settled for part in parts], [part.provisional for part in parts])
    )
    return UsagePart(key, settled, provisional, dict(amounts), sum(part.provisional_nanos for part in parts))
