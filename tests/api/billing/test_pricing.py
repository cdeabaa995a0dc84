"""Pricing, as properties over many months, and as a few bills worked out by hand."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.billing.pricing.meters import PRICED_METERS, UsageMeter, shown_quantity
from api.billing.pricing.money import (
    CURRENCIES,
    format_minor,
    format_nanos,
    format_percent,
    nanos_per_minor,
    parse_percent,
    round_half_up,
    split_exactly,
)
from api.billing.pricing.priced_month import (
    CreditLeft,
    LineKind,
    PricedMonth,
    QueueQuantities,
    SpanUsage,
    TaxRate,
    price_month,
)
from api.billing.pricing.terms import INCLUDED, MeterPrice, PlanTerms, PriceTier

QUEUES = [UUID(int=number) for number in range(1, 6)]
UNITS, STORED = UsageMeter.SENT_UNITS, UsageMeter.STORED_BYTE_MS
HOURS = 720


@st.composite
def meter_prices(draw: st.DrawFn) -> MeterPrice:
    if draw(st.booleans()):
        return INCLUDED
    ends = sorted(draw(st.sets(st.integers(1, 10**7), max_size=3)))
    price, per = st.integers(0, 10**10), st.integers(1, 10**4)
    tiers = tuple(PriceTier(end, draw(price), draw(per)) for end in (*ends, None))
    return MeterPrice(draw(st.integers(0, 10**6)), tiers)


@st.composite
def plan_terms(draw: st.DrawFn, currency: str | None = None) -> PlanTerms:
    prices = {meter: draw(meter_prices()) for meter in PRICED_METERS}
    money = st.integers(0, 10**6)
    return PlanTerms(currency or draw(st.sampled_from(sorted(CURRENCIES))), draw(money), draw(money), prices)


usages = st.lists(
    st.builds(
        QueueQuantities,
        st.sampled_from(QUEUES),
        st.dictionaries(st.sampled_from(list(UsageMeter)), st.integers(0, 10**8), max_size=5),
    ),
    max_size=12,
)
credit_lists = st.lists(
    st.builds(
        CreditLeft,
        st.integers(1, 99),
        st.just("credit"),
        st.integers(0, 10**7),
        st.tuples(st.just(0), st.integers(0, 9)),
    ),
    max_size=3,
    unique_by=lambda credit: credit.credit_id,
)
tax_lists = st.lists(st.builds(TaxRate, st.just("VAT"), st.integers(0, 500_000)), max_size=2)


def whole(terms: PlanTerms, usage: list[QueueQuantities], plan: str = "p@1") -> SpanUsage:
    return SpanUsage("p", plan, terms, HOURS, HOURS, HOURS, usage)


@given(plan_terms(), usages, credit_lists, tax_lists)
@settings(max_examples=150, deadline=None)
def test_lines_sum_to_the_total_and_shares_to_the_usage_lines(
    terms: PlanTerms, usage: list[QueueQuantities], credits: list[CreditLeft], taxes: list[TaxRate]
) -> None:
    month = price_month([whole(terms, usage)], credits, taxes)
    assert month.total_minor == sum(line.amount_minor for line in month.lines)
    assert month.total_minor == month.charges_minor - month.credits_minor + month.tax_minor
    charged = month.sum_of(LineKind.USAGE) * nanos_per_minor(terms.currency)
    assert sum(share.amount_nanos for share in month.shares) == charged
    for meter in PRICED_METERS:
        counted = sum(one.quantities.get(meter, 0) for one in usage)
        assert sum(line.quantity for line in month.lines if line.meter is meter) == counted
        assert sum(share.quantity for share in month.shares if share.meter is meter) == counted
    assert 0 <= month.credits_minor <= month.charges_minor >= terms.minimum_minor
    assert all(line.amount_minor >= 0 for line in month.lines if line.kind is not LineKind.CREDIT)


@given(plan_terms(), usages, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_order_of_the_usage_and_its_cut_into_hours_change_no_line(
    terms: PlanTerms, usage: list[QueueQuantities], chance: random.Random
) -> None:
    cut = []
    for one in usage:
        first = {meter: chance.randint(0, quantity) for meter, quantity in one.quantities.items()}
        rest = {meter: quantity - first[meter] for meter, quantity in one.quantities.items()}
        cut += [QueueQuantities(one.queue_uuid, first), QueueQuantities(one.queue_uuid, rest)]
    chance.shuffle(cut)
    assert price_month([whole(terms, cut)], [], []) == price_month([whole(terms, usage)], [], [])


@given(meter_prices(), st.integers(0, 10**8), st.integers(0, 10**8))
@settings(max_examples=150, deadline=None)
def test_more_usage_never_costs_less(price: MeterPrice, quantity: int, more: int) -> None:
    terms = PlanTerms("USD", 0, 0, {UNITS: price})

    def cost(units: int) -> int:
        return price_month([whole(terms, [QueueQuantities(QUEUES[0], {UNITS: units})])], [], []).total_minor

    assert cost(quantity) <= cost(quantity + more)


@given(plan_terms("EUR"), usages, st.integers(0, HOURS))
@settings(max_examples=100, deadline=None)
def test_span_cut_in_two_keeps_fees_within_a_cent(terms: PlanTerms, usage: list[QueueQuantities], hours: int) -> None:
    """Of two plans. Each part of a fee is rounded by itself; no allowance is given twice."""
    plain = terms._replace(minimum_minor=0)
    spans = [SpanUsage(f"p{part}", f"p{part}@1", plain, part, HOURS, HOURS, []) for part in (hours, HOURS - hours)]
    assert abs(price_month(spans, [], []).total_minor - plain.base_fee_minor) <= 1
    for meter in PRICED_METERS:
        price = plain.prices[meter]
        used = [QueueQuantities(QUEUES[0], {meter: price.free * part // HOURS}) for part in (hours, HOURS - hours)]
        both = [span._replace(usage=[one]) for span, one in zip(spans, used, strict=True)]
        assert price_month(both, [], []).sum_of(LineKind.USAGE) == 0


def versions(terms: list[PlanTerms], hours: list[int], usages: list[list[QueueQuantities]]) -> list[SpanUsage]:
    """Of one plan; all hours are those in which the account was open."""
    return [
        SpanUsage("p", f"p@{number}", held, part, sum(hours), HOURS, used)
        for number, (held, part, used) in enumerate(zip(terms, hours, usages, strict=True), 1)
    ]


@pytest.mark.parametrize(("hours", "text"), [(HOURS, "Base fee"), (60, f"Base fee, 60 of {HOURS} hours")])
def test_base_fee_of_a_part_of_a_month_says_of_which(hours: int, text: str) -> None:
    terms = TERMS._replace(base_fee_minor=1000)
    lines = price_month(versions([terms], [hours], [[]]), [], []).lines
    assert [line.text for line in lines if line.kind is LineKind.FEE] == [text]


@given(plan_terms(), st.lists(st.tuples(st.integers(1, 240), usages), min_size=2, max_size=3), credit_lists, tax_lists)
@settings(max_examples=150, deadline=None)
def test_version_with_the_same_terms_changes_nothing(
    terms: PlanTerms,
    parts: list[tuple[int, list[QueueQuantities]]],
    credits: list[CreditLeft],
    taxes: list[TaxRate],
) -> None:
    hours = [part for part, _ in parts]
    cut = price_month(versions([terms] * len(parts), hours, [used for _, used in parts]), credits, taxes)
    one = price_month(versions([terms], [sum(hours)], [[one for _, used in parts for one in used]]), credits, taxes)
    assert cut.sum_of(LineKind.FEE) == one.sum_of(LineKind.FEE)
    assert [line for line in cut.lines if line.kind is not LineKind.FEE] == [
        line for line in one.lines if line.kind is not LineKind.FEE
    ]
    assert cut.shares == one.shares


@given(plan_terms("EUR"), plan_terms("EUR"), usages, usages, st.integers(1, HOURS - 1))
@settings(max_examples=100, deadline=None)
def test_shares_of_two_versions_sum_to_their_lines_and_all_usage_is_on_them(
    before: PlanTerms, after: PlanTerms, first: list[QueueQuantities], second: list[QueueQuantities], hours: int
) -> None:
    month = price_month(versions([before, after], [hours, HOURS - hours], [first, second]), [], [])
    charged = month.sum_of(LineKind.USAGE) * nanos_per_minor("EUR")
    assert sum(share.amount_nanos for share in month.shares) == charged
    for meter in PRICED_METERS:
        counted = sum(one.quantities.get(meter, 0) for one in first + second)
        assert sum(line.quantity for line in month.lines if line.meter is meter) == counted
    least = before.minimum_minor * hours + after.minimum_minor * (HOURS - hours)
    assert month.charges_minor >= round_half_up(least, HOURS)


@given(meter_prices(), meter_prices(), st.lists(st.integers(0, 10**8), min_size=3, max_size=3), st.integers(0, 1))
@settings(max_examples=150, deadline=None)
def test_more_usage_of_either_version_never_costs_less(
    before: MeterPrice, after: MeterPrice, quantities: list[int], place: int
) -> None:
    terms = [PlanTerms("USD", 0, 0, {UNITS: price}) for price in (before, after)]

    def cost(*units: int) -> int:
        used = [[QueueQuantities(QUEUES[0], {UNITS: count})] for count in units]
        return price_month(versions(terms, [300, HOURS - 300], used), [], []).total_minor

    first, second, more = quantities
    assert cost(first, second) <= cost(first + more * place, second + more * (1 - place))


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**20), min_size=1, max_size=9))
def test_split_sums_to_the_whole_and_is_fair(amount: int, weights: list[int]) -> None:
    weights = [*weights, 1]
    shares = split_exactly(amount, weights)
    assert sum(shares) == amount
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share * sum(weights) - amount * weight) < sum(weights)


# --- by hand ---

TERMS = PlanTerms(
    "USD", 1000, 0, {UNITS: MeterPrice(1_000_000, (PriceTier(2_000_000, 400, 1), PriceTier(None, 300, 1)))}
)


def amounts(month: PricedMonth) -> list[tuple[str, int]]:
    return [(line.kind.value, line.amount_minor) for line in month.lines]


def test_tiers_count_from_behind_the_free_part() -> None:
    used = [QueueQuantities(QUEUES[0], {UNITS: 4_000_000}), QueueQuantities(QUEUES[1], {UNITS: 1_000_000})]
    month = price_month([whole(TERMS, used)], [], [])
    lines = [(line.tier, line.quantity, line.amount_minor) for line in month.lines if line.kind is LineKind.USAGE]
    assert lines == [(0, 1_000_000, 0), (1, 2_000_000, 80), (2, 2_000_000, 60)]
    assert [(share.quantity, share.amount_nanos) for share in month.shares] == [
        (4_000_000, 1_120_000_000),
        (1_000_000, 280_000_000),
    ]


def test_credits_and_taxes_come_after_the_charges_and_the_first_to_end_is_used_first() -> None:
    credits = [CreditLeft(1, "later", 500, (1, 0)), CreditLeft(2, "sooner", 300, (0, 20261201))]
    taxes = [TaxRate("VAT 19 %", 190_000), TaxRate("City 0.5 %", 5_000)]
    month = price_month([whole(TERMS, [])], credits, taxes)
    assert amounts(month) == [("fee", 1000), ("credit", -300), ("credit", -500), ("tax", 38), ("tax", 1)]
    assert [line.credit_id for line in month.lines if line.kind is LineKind.CREDIT] == [2, 1]
    assert month.total_minor == 239


def test_minimum_is_what_the_charges_lack_of_it() -> None:
    month = price_month([whole(TERMS._replace(minimum_minor=1500), [])], [], [])
    assert amounts(month) == [("fee", 1000), ("minimum", 500)]
    assert amounts(price_month([whole(TERMS._replace(minimum_minor=900), [])], [], [])) == [("fee", 1000)]


def test_plan_that_held_for_half_of_the_open_time_gives_half_of_its_allowances() -> None:
    """The account was open for a third of the month: that takes from its fees alone."""
    used = [QueueQuantities(QUEUES[0], {UNITS: 1_500_000})]
    month = price_month([SpanUsage("p", "p@1", TERMS, 120, 240, 720, used)], [], [])
    assert [(line.kind.value, line.quantity, line.amount_minor) for line in month.lines] == [
        ("usage", 500_000, 0), ("usage", 1_000_000, 40), ("fee", 0, 167),
    ]  # fmt: skip


def test_free_units_that_one_version_leaves_are_free_at_the_price_of_the_other() -> None:
    dearer = TERMS._replace(prices={UNITS: MeterPrice(1_000_000, (PriceTier(None, 500, 1),))}, base_fee_minor=2001)
    used = [[QueueQuantities(QUEUES[0], {UNITS: 200_000})], [QueueQuantities(QUEUES[0], {UNITS: 1_000_000})]]
    month = price_month(versions([TERMS, dearer], [360, 360], used), [], [])
    assert [(line.kind.value, line.plan, line.tier, line.quantity, line.amount_minor) for line in month.lines] == [
        ("usage", "p@1", 0, 200_000, 0),
        ("usage", "p@2", 0, 800_000, 0),
        ("usage", "p@2", 1, 200_000, 10),
        ("fee", "p@1", 0, 0, 500),
        ("fee", "p@2", 0, 0, 1001),
    ]


def test_minimum_is_compared_with_what_all_versions_charge() -> None:
    terms = PlanTerms("USD", 0, 1000, {UNITS: MeterPrice(0, (PriceTier(None, 10**7, 1),))})
    used: list[list[QueueQuantities]] = [[], [QueueQuantities(QUEUES[0], {UNITS: 2000})]]
    raised = terms._replace(minimum_minor=3001)
    assert amounts(price_month(versions([terms, terms], [360, 360], used), [], [])) == [("usage", 2000)]
    assert amounts(price_month(versions([terms, raised], [360, 360], used), [], [])) == [
        ("usage", 2000),
        ("minimum", 1),
    ]


def test_meter_without_a_price_is_reported_and_the_rest_is_billed() -> None:
    used = [QueueQuantities(QUEUES[0], {UNITS: 3_000_000, STORED: 7, UsageMeter.REQUESTS: 9})]
    month = price_month([whole(TERMS, used)], [], [])
    assert [(one.plan, one.meter, one.quantity) for one in month.unpriced] == [("p@1", STORED, 7)]
    assert month.total_minor == 1080


def test_storage_is_priced_in_whole_numbers_however_large() -> None:
    gib_month = 2**30 * HOURS * 3_600_000
    terms = PlanTerms("USD", 0, 0, {STORED: MeterPrice(0, (PriceTier(None, 10**8, gib_month),))})
    used = [QueueQuantities(QUEUES[0], {STORED: 1024 * gib_month + gib_month // 20})]
    assert price_month([whole(terms, used)], [], []).total_minor == 10_241  # 102.405 dollars, half up


def test_currencies_without_cents_and_with_mills() -> None:
    assert (nanos_per_minor("JPY"), nanos_per_minor("TND")) == (10**9, 10**6)
    assert [format_minor(-1234, code) for code in ("JPY", "USD", "TND")] == ["-1234", "-12.34", "-1.234"]
    assert (format_minor(5, "USD"), format_nanos(1_120_000_000), format_nanos(400)) == ("0.05", "1.12", "0.0000004")


def test_half_is_rounded_up() -> None:
    assert [round_half_up(numerator, 10) for numerator in (4, 5, 14, 15, 25)] == [0, 1, 1, 2, 3]


def test_quantities_are_shown_in_units_people_know() -> None:
    assert shown_quantity(UNITS, 1234567) == "1,234,567"
    assert shown_quantity(STORED, 2**30 * 3_600_000 * 3 // 2) == "1.500"


@pytest.mark.parametrize(
    ("text", "rate_ppm", "shown"),
    [("19", 190_000, "19"), ("8.875", 88_750, "8.875"), ("0.0005 %", 5, "0.0005"), ("100%", 1_000_000, "100")],
)
def test_rate_is_written_and_read_in_percent(text: str, rate_ppm: int, shown: str) -> None:
    assert parse_percent(text) == rate_ppm and format_percent(rate_ppm) == shown


@pytest.mark.parametrize("text", ["", "x", "-1", "1e1", "19.00001", "1,5", ".5", "190000", "१९"])
def test_rate_that_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="percentage"):
        parse_percent(text)
