"""The live meter: settled and provisional usage through one price, each hour once; budgets go by it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from api import clock
from api.accounts.models import Account
from api.audit.actions import OPERATOR
from api.billing import account_month, provisional
from api.billing.account_month import month_of
from api.billing.actions.budgets import BudgetSpec, judge_budgets, put_budget
from api.billing.actions.plans import add_plan_version, ensure_standard_plan
from api.billing.forecast import forecast_minor
from api.billing.meter import CostMeter, cost_meter, month_spending
from api.billing.models import BudgetEvent, MeterReading, PricePlanVersion, SpendingEffect
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.periods import HOUR, Interval, floor_hour
from api.billing.pricing.priced_month import OTHER_QUEUES
from api.billing.pricing.terms import parse_terms, terms_document
from api.billing.provisional import NEVER_READ, ProvisionalRow, answer_now, merge_provisional, note_reading, position_of
from api.billing.settling import UsageRow, settle
from api.billing.usage_reports import UsageAsked, UsageCut, queues_for, usage_parts
from api.billing.views import METER_BEHIND
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import NOW, QUEUE, make_queue, settle_rows
from tests.support.control_plane import Caller, new_caller

pytestmark = pytest.mark.django_db


def this_hour() -> datetime:
    return floor_hour(clock.now())


def seen(account: str, units: int, hour: datetime | None = None, source: str = "one/12") -> ProvisionalRow:
    counters = [0] * len(UsageMeter)
    counters[list(UsageMeter).index(UsageMeter.SENT_UNITS)] = units
    return ProvisionalRow(hour or this_hour(), account, QUEUE, source, "client", counters)


def merge(rows: Iterable[ProvisionalRow], offset: int = 1) -> set[str] | None:
    return merge_provisional("one/3", offset, rows)


def read(account: str) -> CostMeter:
    ensure_standard_plan()
    found = cost_meter(Account.objects.get(pk=account), NOW, clock.now())
    assert found is not None
    return found


def test_meter_is_what_is_settled_and_what_was_counted_since(account: str) -> None:
    plan(account)
    settle_rows([UsageRow(account, NOW.start, QUEUE, 0, "client", sent_units=1100)])
    merge([seen(account, 500), seen(account, 250, source="one/13")])
    meter = read(account)
    assert (meter.settled_minor, meter.provisional_minor, meter.charges_minor) == (100, 75, 175)
    assert meter.provisional[UsageMeter.SENT_UNITS] == 750


def test_meter_and_budgets_of_the_account_read_no_queues(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account may have used 100,000 queues in a month: the database sums them up."""
    plan(account)
    queues = [uuid.UUID(int=number) for number in range(1, 8)]
    settle_rows([UsageRow(account, NOW.start, queue, 0, "client", sent_units=1100) for queue in queues])
    merge([seen(account, 500), seen(account, 33)._replace(queue_uuid=queues[0])])
    ensure_standard_plan()
    row = Account.objects.get(pk=account)
    lengths: list[int] = []
    priced = account_month.price_month

    def price(spans: Any, *given: Any) -> Any:
        lengths.extend(len(span.usage) for span in spans)
        return priced(spans, *given)

    monkeypatch.setattr(account_month, "price_month", price)
    by_queue, together = (cost_meter(row, NOW, clock.now(), queues) for queues in (None, ()))
    assert by_queue is not None and together is not None
    assert max(lengths) > 7 and by_queue.month.priced.lines == together.month.priced.lines
    assert by_queue._replace(month=together.month) == together
    lengths.clear()
    assert cost_meter(row, NOW, clock.now(), ()) == together
    judge_budgets(account)
    put_budget(OPERATOR, account, "cap", BudgetSpec(100_000, [50], "alert", []))
    judge_budgets(account)
    assert lengths and max(lengths) <= 3, "settled days, settled hours and what is not settled"


def test_budget_of_a_queue_and_what_is_asked_of_one_read_the_others_as_one(
    account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines are the same, shares within a nano."""
    ensure_standard_plan()
    plan(account)
    orders = make_queue(account, "orders")
    queues = [orders, *(uuid.UUID(int=number) for number in range(40))]
    rows = [
        UsageRow(account, NOW.start, queue, 0, "client", sent_units=1_003 * place + 7, messages_sent=place)
        for place, queue in enumerate(queues)
    ]
    settle_rows(rows)
    merge([seen(account, 500), seen(account, 33)._replace(queue_uuid=orders)])
    row = Account.objects.get(pk=account)
    every = month_of(row, NOW, is_provisional=True)
    lengths: list[int] = []
    priced = account_month.price_month

    def price(spans: Any, *given: Any) -> Any:
        lengths.extend(len(span.usage) for span in spans)
        return priced(spans, *given)

    monkeypatch.setattr(account_month, "price_month", price)
    asked = month_of(row, NOW, is_provisional=True, queues=[orders, uuid.UUID(int=0)])
    assert every is not None and asked is not None and asked.priced.lines == every.priced.lines
    all_shares = {(one.queue_uuid, one.meter): one for one in every.priced.shares}
    mine = [share for share in asked.priced.shares if share.queue_uuid != OTHER_QUEUES]
    assert {share.queue_uuid for share in mine} == {orders, uuid.UUID(int=0)}
    for share in mine:
        exact = all_shares[share.queue_uuid, share.meter]
        assert share.quantity == exact.quantity and abs(share.amount_nanos - exact.amount_nanos) <= 1
    put_budget(OPERATOR, account, "cap", BudgetSpec(100_000, [50], "alert", [], "orders"))
    judge_budgets(account)
    for what in (UsageAsked(UsageCut.DAY), UsageAsked(UsageCut.ORIGIN, orders)):
        month = month_of(row, NOW, is_provisional=True, queues=queues_for(what))
        assert month is not None and usage_parts(month, what)
    assert max(lengths) <= 9, "three statements, of two queues and the others"


def test_free_part_and_tiers_count_across_both(account: str) -> None:
    """The first 100 units are free: they are so once."""
    plan(account)
    settle_rows([UsageRow(account, NOW.start, QUEUE, 0, "client", sent_units=60)])
    merge([seen(account, 60)])
    assert (read(account).settled_minor, read(account).charges_minor) == (0, 2)


def test_record_that_comes_again_or_late_changes_nothing(account: str) -> None:
    assert merge([seen(account, 500)]) == {account}
    assert merge([seen(account, 500)]) == set() and merge([seen(account, 300)]) == set()
    assert merge([seen(account, 700)]) == {account}
    assert read(account).provisional[UsageMeter.SENT_UNITS] == 700


def test_hour_that_is_settled_is_not_provisional_any_more(account: str) -> None:
    hour = this_hour() - HOUR
    if hour < NOW.start:
        pytest.skip("the month began in this hour")
    merge([seen(account, 500, hour)])
    settle_hour([UsageRow(account, hour, QUEUE, 0, "client", sent_units=400)], hour)
    assert read(account).provisional[UsageMeter.SENT_UNITS] == 0
    assert merge([seen(account, 900, hour)]) == set(), "a late record is the pipeline's to settle"
    assert provisional.drop_settled() == 1 and provisional.ProvisionalUsage.objects.count() == 0


def test_hour_that_is_settled_while_the_meter_is_read_counts_once(account: str) -> None:
    ensure_standard_plan()
    plan(account)
    hour = this_hour() - HOUR
    if hour < NOW.start:
        pytest.skip("the month began in this hour")
    merge([seen(account, 1100, hour)])
    done: list[datetime] = []

    def settle_behind(execute: Any, sql: str, *given: Any) -> Any:
        answer = execute(sql, *given)
        if "daily_usage" in sql and not done:
            done.append(hour)
            settle_hour([UsageRow(account, hour, QUEUE, 0, "client", sent_units=1100)], hour)
        return answer

    with connection.execute_wrapper(settle_behind):
        spent = month_spending(Account.objects.get(pk=account), NOW, [QUEUE])
    assert done and spent.charges_minor == 100


def settle_hour(rows: list[UsageRow], hour: datetime) -> None:
    settle(uuid.uuid4(), Interval(hour, hour + HOUR), rows)


def test_rows_of_no_account_are_left_out_and_the_position_goes_on(account: str) -> None:
    assert merge([seen("999999999999", 5), seen(account, 5)], offset=9) == {account}
    assert position_of("one/3") == 9
    merge([], offset=4)
    assert position_of("one/3") == 9, "it never goes back"


def test_meter_without_room_keeps_its_place(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provisional.limits, "PROVISIONAL_ROWS_MAX", 0)
    assert merge([seen(account, 5)], offset=9) is None and position_of("one/3") == 0


def test_budget_is_used_up_by_what_is_not_settled(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", BudgetSpec(1000, [50], "stop", []))
    merge([seen(account, 100 + 5_000)])
    assert judge_budgets(account) == 1 and not SpendingEffect.objects.exists()
    merge([seen(account, 100 + 10_000)])
    judge_budgets(account)
    assert [event.kind for event in BudgetEvent.objects.order_by("id")] == ["alert", "stop"]
    assert SpendingEffect.objects.get().account_id == account


def test_meter_says_how_far_it_goes(account: str) -> None:
    assert not read(account).is_live and read(account).as_of is None
    now = clock.now()
    note_reading(now, 20, now, "")
    assert read(account).is_live and read(account).as_of == now
    note_reading(None, 20, now, "Storage nodes 2 have not closed their windows.")
    meter = read(account)
    assert not meter.is_live and meter.as_of == now and "nodes 2" in meter.missing
    MeterReading.objects.update(missing="", as_of=now - timedelta(hours=1))
    assert not read(account).is_live


def test_look_that_began_earlier_and_ended_later_takes_nothing_back() -> None:
    now = clock.now()
    note_reading(now, 20, now, "")
    note_reading(now - timedelta(seconds=20), 30_000, now + timedelta(seconds=10), "")
    assert provisional.meter_reading().as_of == now
    note_reading(now - timedelta(hours=1), 20, now - timedelta(hours=1), "")
    assert provisional.meter_reading().as_of == now - timedelta(hours=1), "the clock was an hour ahead"


def test_meter_is_read_over_rest(caller: Caller) -> None:
    plan(caller.account_id)
    merge([seen(caller.account_id, 500)])
    note_reading(None, 20, clock.now(), "Storage nodes 2 have not closed their windows.")
    found = caller.request("GET", "/v1/billing/meter").json()
    assert found["missing"] == METER_BEHIND, "customers are not told of storage nodes"
    assert (found["provisional_minor"], found["charges_minor"], found["currency"]) == (40, 40, "USD")
    assert found["provisional"]["sent_units"] == 500 and found["is_live"] is False


def test_answer_of_now_names_what_is_missing() -> None:
    now = this_hour() + timedelta(minutes=30)
    month = Interval(*NOW)
    never = answer_now(month, None, MeterReading(), now)
    assert (never.complete, never.missing_from, never.reason) == (False, NOW.start, NEVER_READ)
    reading = MeterReading(as_of=now - timedelta(minutes=5))
    assert answer_now(month, None, reading, now).missing_from == reading.as_of
    assert answer_now(month, None, MeterReading(as_of=now), now).complete
    assert answer_now(Interval(month.start - HOUR, month.start), month.start, MeterReading(), now).complete


def test_forecast_goes_on_at_the_rate_of_the_month_so_far(account: str) -> None:
    """A fifth of the month knows 1,000 units at 0.001 USD behind 100 free ones: 5,000 in all of it, and the fee."""
    ensure_standard_plan()
    plan(account, base_fee_minor=300)
    settle_rows([UsageRow(account, NOW.start, QUEUE, 0, "client", sent_units=1000)])
    month = month_of(Account.objects.get(pk=account), NOW, is_provisional=True)
    assert month is not None
    fifth = NOW.start + (NOW.end - NOW.start) / 5
    assert forecast_minor(month, fifth) == 490 + 300
    assert forecast_minor(month, NOW.end) == forecast_minor(month, NOW.end + 9 * HOUR) == 90 + 300
    assert forecast_minor(month, NOW.start + 11 * HOUR) is None and forecast_minor(month, None) is None


def test_forecast_prices_each_plan_of_the_month_by_its_own_terms(account: str) -> None:
    from api.billing.actions.plans import assign_plan

    ensure_standard_plan()
    plan(account)
    day = NOW.start + 24 * HOUR
    document = terms_document(parse_terms(PricePlanVersion.objects.get(plan_id="test").terms))
    document["prices"]["sent_units"] = {"included": True}
    add_plan_version(OPERATOR, "later", "Later", document, None)
    assign_plan(OPERATOR, account, "later", day, [])
    settle_rows([UsageRow(account, NOW.start, QUEUE, 0, "client", sent_units=1000)])
    month = month_of(Account.objects.get(pk=account), NOW, is_provisional=True)
    assert month is not None and len(month.spans) == 2
    known = forecast_minor(month, day)
    assert known == month.priced.charges_minor, "what comes is included in the later plan"


def test_meter_takes_no_row_that_settling_would_refuse(account: str) -> None:
    other = new_caller("others").account_id
    theirs = make_queue(other, "orders")
    stolen = seen(account, 500)._replace(queue_uuid=theirs)
    early = seen(account, 500, NOW.start - 300 * 24 * HOUR)
    assert merge([stolen]) == set()
    assert merge([early]) == set()
    assert merge([seen(account, 7)]) == {account}
