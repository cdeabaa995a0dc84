"""What a month costs: quantities and terms in, lines out. Pure.

    usage     one line for the free part of a meter, one for each tier that was reached; summed over all queues
    fee       the base fee of each plan, by its share of the month
    minimum   what the charges of a plan lack to its minimum, by its share of the month
    credit    takes off what was charged, the credit that ends first first
    tax       on what is left

The total is the sum of the lines. What each queue has of a meter's charge is its share by quantity, in nanos: shares
sum to the charge exactly, and tags sum the shares of their queues. Only sums of quantities count: neither the order of
the usage nor how it was cut into hours changes a line.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    """One plan's span of the month. Hours: of the span, of the account's open time in the month, of the month."""

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
    for span in spans:
        _charge_span(month, span, shares)
    month.shares.extend(QueueShare(*key, *values) for key, values in sorted(shares.items()))
    charges = _use_credits(month, credits)
    for tax in taxes:
        amount = part_of(charges, tax.rate_ppm, PPM)
        month.lines.append(PricedLine(LineKind.TAX, "", tax.name, amount, price_nanos=tax.rate_ppm, per=PPM))
    return month


def _charge_span(month: PricedMonth, span: SpanUsage, shares: dict[tuple[UUID, UsageMeter], list[int]]) -> None:
    terms, begins = span.terms, len(month.lines)
    for meter, by_queue in _sums(span.usage).items():
        quantity = sum(by_queue.values())
        price = terms.prices.get(meter)
        if price is None:
            month.unpriced.append(UnpricedUsage(span.plan, meter, quantity))
            continue
        lines = usage_lines(span.plan, terms.currency, meter, _prorated(price, span), quantity)
        month.lines.extend(lines)
        nanos = sum(line.amount_minor for line in lines) * nanos_per_minor(terms.currency)
        queues = sorted(by_queue)
        parts = split_exactly(nanos, [by_queue[queue] for queue in queues])
        for queue, part in zip(queues, parts, strict=True):
            share = shares[queue, meter]
            share[0] += by_queue[queue]
            share[1] += part
    fee = part_of(terms.base_fee_minor, span.span_hours, span.month_hours)
    if fee:
        month.lines.append(PricedLine(LineKind.FEE, span.plan, "Base fee", fee))
    least = part_of(terms.minimum_minor, span.span_hours, span.month_hours)
    lacking = least - sum(line.amount_minor for line in month.lines[begins:])
    if lacking > 0:
        month.lines.append(PricedLine(LineKind.MINIMUM, span.plan, "Monthly minimum", lacking))


def _sums(usage: Iterable[QueueQuantities]) -> dict[UsageMeter, dict[UUID, int]]:
    """In the order of the meters; without what was not used."""
    found: dict[UsageMeter, dict[UUID, int]] = {meter: defaultdict(int) for meter in PRICED_METERS}
    for one in usage:
        for meter, quantity in one.quantities.items():
            assert quantity >= 0
            if quantity and meter in found:
                found[meter][one.queue_uuid] += quantity
    return {meter: by_queue for meter, by_queue in found.items() if by_queue}


def _prorated(price: MeterPrice, span: SpanUsage) -> MeterPrice:
    if span.span_hours == span.open_hours:
        return price

    def part(quantity: int) -> int:
        return part_of(quantity, span.span_hours, span.open_hours)

    tiers = [tier if tier.up_to is None else tier._replace(up_to=part(tier.up_to)) for tier in price.tiers]
    return MeterPrice(part(price.free), tuple(tiers))


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
