"""What a month costs: quantities and terms in, lines out. Pure.

    usage     one line for the free part of a meter, one for each tier that was reached; summed over all queues
    fee       the base fee of each plan, by its share of the month; a line for each of its spans
    minimum   what the charges of a plan lack to its minimum, by its share of the month
    credit    takes off what was charged, the credit that ends first first
    tax       on what is left

The versions of a plan that hold in a month are charged together: a version whose terms are those of the one before
changes no amount. Spans whose tiers of a meter are the same have one line of each, named after the first version; what
one price leaves of the free quantity is free at the plan's others; the minimum is compared with all that the plan
charges.

The total is the sum of the lines. What each queue has of a meter's charge is its share by quantity, in nanos: shares
sum to the charge exactly, and tags sum the shares of their queues. Only sums of quantities count: neither the order of
the usage nor how it was cut into hours changes a line.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from api.billing.pricing.meters import PRICED_METERS, UsageMeter
from api.billing.pricing.money import PPM, nanos_per_minor, part_of, round_half_up, split_exactly
from api.billing.pricing.terms import MeterPrice, PlanTerms, PriceTier


class LineKind(enum.StrEnum):
    USAGE = "usage"
    FEE = "fee"
    MINIMUM = "minimum"
    CREDIT = "credit"
    TAX = "tax"


class QueueQuantities(NamedTuple):
    """What was counted of a queue. Several of one queue are summed."""

    queue_uuid: UUID
    quantities: Mapping[UsageMeter, int]


class SpanUsage(NamedTuple):
    """The span of the month in which a version (`plan`) of the plan `code` held. Hours: of the span, of the account's
    open time in the month, of the month."""

    code: str
    plan: str
    terms: PlanTerms
    span_hours: int
    open_hours: int
    month_hours: int
    usage: Iterable[QueueQuantities]


class CreditLeft(NamedTuple):
    """`ends_order` sorts: what ends first is used first."""

    credit_id: int
    name: str
    left_minor: int
    ends_order: tuple[int, int]


# In the place of a queue where only the sums of the account are asked for: lines and totals are the same.
ALL_QUEUES = UUID(int=0)
# In the place of all queues but those that are asked for.
OTHER_QUEUES = UUID(int=2**128 - 1)


class TaxRate(NamedTuple):
    name: str
    rate_ppm: int


class PricedLine(NamedTuple):
    """`tier` 0 is the free part, or all of a meter that is included."""

    kind: LineKind
    plan: str
    text: str
    amount_minor: int
    meter: UsageMeter | None = None
    tier: int = 0
    quantity: int = 0
    price_nanos: int = 0
    per: int = 1
    credit_id: int | None = None


class QueueShare(NamedTuple):
    queue_uuid: UUID
    meter: UsageMeter
    quantity: int
    amount_nanos: int


class UnpricedUsage(NamedTuple):
    """Usage of a meter that the plan has no price for: on no line."""

    plan: str
    meter: UsageMeter
    quantity: int


class PricedMonth(NamedTuple):
    currency: str
    lines: list[PricedLine]
    shares: list[QueueShare]
    unpriced: list[UnpricedUsage]

    def sum_of(self, *kinds: LineKind) -> int:
        return sum(line.amount_minor for line in self.lines if line.kind in kinds)

    @property
    def charges_minor(self) -> int:
        """Before credits and tax."""
        return self.sum_of(LineKind.USAGE, LineKind.FEE, LineKind.MINIMUM)

    @property
    def credits_minor(self) -> int:
        return -self.sum_of(LineKind.CREDIT)

    @property
    def tax_minor(self) -> int:
        return self.sum_of(LineKind.TAX)

    @property
    def total_minor(self) -> int:
        return sum(line.amount_minor for line in self.lines)


def price_month(spans: Sequence[SpanUsage], credits: Iterable[CreditLeft], taxes: Iterable[TaxRate]) -> PricedMonth:
    """All spans have one currency: plans of another one begin with a month."""
    currencies = {span.terms.currency for span in spans}
    assert len(currencies) == 1, "a month has one currency"
    month = PricedMonth(currencies.pop(), [], [], [])
    shares: dict[tuple[UUID, UsageMeter], list[int]] = defaultdict(lambda: [0, 0])
    plans: dict[str, list[SpanUsage]] = defaultdict(list)
    for span in spans:
        plans[span.code].append(span)
    for of_plan in plans.values():
        _charge_plan(month, of_plan, shares)
    month.shares.extend(QueueShare(*key, *values) for key, values in sorted(shares.items()))
    charges = _use_credits(month, credits)
    for tax in taxes:
        amount = part_of(charges, tax.rate_ppm, PPM)
        month.lines.append(PricedLine(LineKind.TAX, "", tax.name, amount, price_nanos=tax.rate_ppm, per=PPM))
    return month


def _charge_plan(
    month: PricedMonth, spans: Sequence[SpanUsage], shares: dict[tuple[UUID, UsageMeter], list[int]]
) -> None:
    begins, month_hours = len(month.lines), spans[0].month_hours
    used = [_sums(span.usage) for span in spans]
    for meter in PRICED_METERS:
        _charge_meter(month, meter, spans, [sums.get(meter, {}) for sums in used], shares)
    weights = [span.terms.base_fee_minor * span.span_hours for span in spans]
    for span, fee in zip(spans, split_exactly(round_half_up(sum(weights), month_hours), weights), strict=True):
        if fee:
            part = "" if span.span_hours == month_hours else f", {span.span_hours} of {month_hours} hours"
            month.lines.append(PricedLine(LineKind.FEE, span.plan, f"Base fee{part}", fee))
    least = round_half_up(sum(span.terms.minimum_minor * span.span_hours for span in spans), month_hours)
    lacking = least - sum(line.amount_minor for line in month.lines[begins:])
    if lacking > 0:
        month.lines.append(PricedLine(LineKind.MINIMUM, spans[0].plan, "Monthly minimum", lacking))


@dataclass
class _Rate:
    """The spans of a plan that have the same tiers of a meter. `free_hours`: free quantities times hours."""

    plan: str
    tiers: tuple[PriceTier, ...]
    hours: int = 0
    free_hours: int = 0
    by_queue: dict[UUID, int] = field(default_factory=lambda: defaultdict(int))


def _charge_meter(
    month: PricedMonth,
    meter: UsageMeter,
    spans: Sequence[SpanUsage],
    used: Sequence[Mapping[UUID, int]],
    shares: dict[tuple[UUID, UsageMeter], list[int]],
) -> None:
    rates: dict[tuple[PriceTier, ...], _Rate] = {}
    for span, by_queue in zip(spans, used, strict=True):
        price = span.terms.prices.get(meter)
        if price is None:
            if by_queue:
                month.unpriced.append(UnpricedUsage(span.plan, meter, sum(by_queue.values())))
            continue
        rate = rates.setdefault(price.tiers, _Rate(span.plan, price.tiers))
        rate.hours += span.span_hours
        rate.free_hours += price.free * span.span_hours
        for queue, quantity in by_queue.items():
            rate.by_queue[queue] += quantity
    open_hours = spans[0].open_hours
    for rate, free in zip(rates.values(), _free_parts(rates.values(), open_hours), strict=True):
        price = MeterPrice(free, _prorated(rate, open_hours))
        lines = usage_lines(rate.plan, month.currency, meter, price, sum(rate.by_queue.values()))
        month.lines.extend(lines)
        nanos = sum(line.amount_minor for line in lines) * nanos_per_minor(month.currency)
        queues = sorted(rate.by_queue)
        parts = split_exactly(nanos, [rate.by_queue[queue] for queue in queues])
        for queue, part in zip(queues, parts, strict=True):
            share = shares[queue, meter]
            share[0] += rate.by_queue[queue]
            share[1] += part


def _free_parts(rates: Collection[_Rate], open_hours: int) -> list[int]:
    """The free quantity of each: its own part, and what others leave of theirs, the first one first."""
    weights = [rate.free_hours for rate in rates]
    own = split_exactly(round_half_up(sum(weights), open_hours), weights)
    # What is included takes nothing of it.
    wanted = [sum(rate.by_queue.values()) if rate.tiers else 0 for rate in rates]
    parts = [min(pair) for pair in zip(own, wanted, strict=True)]
    left = sum(own) - sum(parts)
    for place, quantity in enumerate(wanted):
        more = min(left, quantity - parts[place])
        parts[place] += more
        left -= more
    return parts


def _sums(usage: Iterable[QueueQuantities]) -> dict[UsageMeter, dict[UUID, int]]:
    """In the order of the meters; without what was not used."""
    found: dict[UsageMeter, dict[UUID, int]] = {meter: defaultdict(int) for meter in PRICED_METERS}
    for one in usage:
        for meter, quantity in one.quantities.items():
            assert quantity >= 0
            if quantity and meter in found:
                found[meter][one.queue_uuid] += quantity
    return {meter: by_queue for meter, by_queue in found.items() if by_queue}


def _prorated(rate: _Rate, open_hours: int) -> tuple[PriceTier, ...]:
    ends = [None if tier.up_to is None else part_of(tier.up_to, rate.hours, open_hours) for tier in rate.tiers]
    return tuple(tier._replace(up_to=end) for tier, end in zip(rate.tiers, ends, strict=True))


def usage_lines(plan: str, currency: str, meter: UsageMeter, price: MeterPrice, quantity: int) -> list[PricedLine]:
    """The free part and each tier that was reached."""
    free = min(quantity, price.free) if price.tiers else quantity
    lines = [_usage_line(plan, currency, meter, 0, PriceTier(None, 0, 1), free)] if free else []
    begins, left = 0, quantity - free
    for number, tier in enumerate(price.tiers, 1):
        within = left if tier.up_to is None else min(left, tier.up_to - begins)
        if within:
            lines.append(_usage_line(plan, currency, meter, number, tier, within))
        begins, left = tier.up_to or 0, left - within
    assert left == 0
    return lines


def _usage_line(plan: str, currency: str, meter: UsageMeter, number: int, tier: PriceTier, quantity: int) -> PricedLine:
    amount = round_half_up(quantity * tier.price_nanos, tier.per * nanos_per_minor(currency))
    return PricedLine(LineKind.USAGE, plan, "", amount, meter, number, quantity, tier.price_nanos, tier.per)


def _use_credits(month: PricedMonth, credits: Iterable[CreditLeft]) -> int:
    """What is left to be taxed."""
    left = month.charges_minor
    for credit in sorted(credits, key=lambda one: (one.ends_order, one.credit_id)):
        used = min(left, credit.left_minor)
        if used > 0:
            month.lines.append(PricedLine(LineKind.CREDIT, "", credit.name, -used, credit_id=credit.credit_id))
            left -= used
    return left
