"""Terms are read strictly; months and spans are cut at whole hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.billing.pricing.meters import PRICED_METERS
from api.billing.pricing.periods import (
    HOUR,
    Interval,
    PlanChange,
    ceil_hour,
    floor_hour,
    open_interval,
    parse_period,
    period_before,
    period_of,
    plan_spans,
)
from api.billing.pricing.terms import TermsError, check_complete, parse_terms, terms_document

TIER = {"up_to": None, "price_nanos": 400, "per": 1}
GOOD: dict[str, Any] = {
    "currency": "USD",
    "base_fee_minor": 0,
    "minimum_minor": 0,
    "prices": {
        **{meter.value: {"included": True} for meter in PRICED_METERS},
        "sent_units": {"free": 10, "tiers": [{**TIER, "up_to": 5}, TIER]},
    },
}


def with_price(price: object) -> dict[str, Any]:
    return {**GOOD, "prices": {"sent_units": price}}


def test_terms_come_back_from_their_document() -> None:
    terms = parse_terms(GOOD)
    check_complete(terms)
    assert parse_terms(terms_document(terms)) == terms and terms_document(terms) == GOOD


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ([], "terms"),
        ({**GOOD, "more": 1}, "terms"),
        ({**GOOD, "currency": "XXX"}, "currency"),
        ({**GOOD, "currency": ["USD"]}, "currency"),
        ({**GOOD, "base_fee_minor": -1}, "base_fee_minor"),
        ({**GOOD, "minimum_minor": 1.5}, "minimum_minor"),
        ({**GOOD, "minimum_minor": True}, "minimum_minor"),
        ({**GOOD, "minimum_minor": 10**13}, "minimum_minor"),
        ({**GOOD, "prices": []}, "prices"),
        ({**GOOD, "prices": {"requests": {"included": True}}}, "never priced"),
        ({**GOOD, "prices": {"stars": {"included": True}}}, "prices.stars is no meter"),
        ({**GOOD, "prices": {"\ud800" + "x" * 99: {"included": True}}}, r"prices.\\ud800x{39} is no meter"),
        (with_price({"included": False}), "sent_units"),
        (with_price({"free": 0, "tiers": []}), "tiers"),
        (with_price({"free": 0, "tiers": [TIER] * 21}), "tiers"),
        (with_price({"free": "0", "tiers": [TIER]}), "free"),
        (with_price({"free": 0, "tiers": [{**TIER, "per": 0}]}), "per"),
        (with_price({"free": 0, "tiers": [{**TIER, "price_nanos": -1}]}), "price_nanos"),
        (with_price({"free": 0, "tiers": [{**TIER, "up_to": 5}]}), "last tier"),
        (with_price({"free": 0, "tiers": [TIER, TIER]}), "behind the one before"),
        (with_price({"free": 0, "tiers": [{**TIER, "up_to": 5}, {**TIER, "up_to": 5}, TIER]}), "behind the one before"),
    ],
)
def test_terms_that_do_not_hold_together_are_refused_by_name(document: object, named: str) -> None:
    with pytest.raises(TermsError, match=named):
        parse_terms(document)


def test_terms_without_a_price_for_a_meter_are_not_complete() -> None:
    with pytest.raises(TermsError, match="stored_byte_ms"):
        check_complete(parse_terms(with_price({"included": True})))


# --- periods ---

NOVEMBER = parse_period("2026-11")
START = NOVEMBER.start


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def test_period_is_a_month_and_has_a_month_before() -> None:
    assert (NOVEMBER.start, NOVEMBER.end) == (at(1), datetime(2026, 12, 1, tzinfo=UTC))
    assert period_before(parse_period("2027-01")).name == "2026-12"
    assert period_of(at(30, 23, 59)) == NOVEMBER


@pytest.mark.parametrize("name", ["2026-13", "2026-1", "26-11", "2026-11-01", "", "２０２６-11", "2026-11\n"])
def test_period_that_is_no_month_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="month"):
        parse_period(name)


def test_account_is_open_in_the_hours_it_was_open_in() -> None:
    assert open_interval(NOVEMBER, at(3, 4, 30), at(5, 6, 1)) == Interval(at(3, 4), at(5, 7))
    assert open_interval(NOVEMBER, START - HOUR, None) == Interval(*NOVEMBER)
    assert open_interval(NOVEMBER, START - 9 * HOUR, START - 5 * HOUR).hours == 0


@given(st.lists(st.tuples(st.integers(-50, 720), st.integers(1, 4)), max_size=6, unique_by=lambda change: change[0]))
def test_spans_cover_the_interval_once_and_neighbours_differ(changes: list[tuple[int, int]]) -> None:
    rows = [PlanChange(START - 60 * HOUR, 9), *(PlanChange(START + hours * HOUR, plan) for hours, plan in changes)]
    interval = Interval(START + 10 * HOUR, START + 700 * HOUR)
    spans = plan_spans(interval, rows)
    assert (spans[0].interval.start, spans[-1].interval.end) == interval
    for one, following in pairwise(spans):
        assert one.interval.end == following.interval.start and one.version_id != following.version_id
    for span in spans:
        held = max(row for row in rows if row.since <= span.interval.start)
        assert held.version_id == span.version_id


@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)))
def test_hours_are_floored_and_ceiled(moment: datetime) -> None:
    assert floor_hour(moment) <= moment <= ceil_hour(moment)
    assert ceil_hour(moment) - floor_hour(moment) in (timedelta(0), HOUR)
