"""Which accounts are billed, which drafts are stale, which months are to be issued: found in bounded looks."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from api import clock
from api.accounts.models import Account
from api.audit.actions import OPERATOR
from api.billing import limits
from api.billing.actions import invoices
from api.billing.actions.invoices import draft_invoice
from api.billing.actions.plans import assign_plan, ensure_standard_plan
from api.billing.due import months_to_issue, older_open_periods, stale_drafts
from api.billing.models import Invoice, MonthLook, PricePlanVersion
from api.billing.open_months import OpenMonth, months_with_reasons
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.periods import HOUR, BillingPeriod, Interval, floor_hour, period_before, period_of
from api.billing.provisional import ProvisionalRow, merge_provisional
from api.billing.selectors import settled_up_to
from api.billing.settling import UsageRow, settle
from api.billing.work_notes import FailureSubject, Work, note_failure
from api.people.models import AccountLife, AccountState
from tests.api.billing.test_invoices import document
from tests.api.billing.usage import (
    MONTH,
    MONTH_HOURS,
    PERIOD,
    QUEUE,
    month_hour,
    open_since,
    row,
    settle_month,
    settle_rows,
)
from tests.support.control_plane import new_caller
from workers.billing import rounds

pytestmark = pytest.mark.django_db
# Of what a look finds when the month of the tests is over and settled.
AT = PERIOD.end + timedelta(days=1)


def standard_terms(since: datetime, **given: Any) -> None:
    """The standard plan's next version, as if it had been added before."""
    ensure_standard_plan()
    number = PricePlanVersion.objects.filter(plan_id="standard").count() + 1
    PricePlanVersion.objects.create(
        plan_id="standard", number=number, effective_from=since, terms=document(**given), created_at=since
    )


def closed(account_id: str, at: datetime) -> None:
    AccountLife.objects.update_or_create(
        account_id=account_id, defaults={"title": "Closed", "state": AccountState.CLOSED, "state_since": at}
    )


def issued_totals() -> dict[str, int]:
    """Of the month of the tests, by account."""
    rows = Invoice.objects.filter(period_start=MONTH, state="issued")
    return dict(rows.values_list("account_id", "total_minor"))


@pytest.mark.parametrize("terms", [{"base_fee_minor": 7_200}, {"minimum_minor": 7_200}])
def test_account_without_usage_gets_an_invoice_of_what_the_standard_plan_takes_anyway(
    account: str, terms: dict[str, int]
) -> None:
    standard_terms(MONTH, **terms)
    halfway = month_hour(MONTH_HOURS // 2)
    accounts = {name: new_caller(name).account_id for name in ("gone", "before", "later", "late-plan")}
    for one in accounts.values():
        open_since(one)
    closed(accounts["gone"], halfway)
    closed(accounts["before"], MONTH)
    open_since(accounts["later"], PERIOD.end)
    assign_plan(OPERATOR, accounts["late-plan"], "standard", PERIOD.end, [])
    settle_month([])
    rounds.issue_months()
    assert issued_totals() == {account: 7_200, accounts["gone"]: 3_600, accounts["late-plan"]: 7_200}


def test_fee_counts_from_the_hour_of_its_version_and_of_the_account(account: str) -> None:
    """An account that was closed before the version held owes nothing, and gets no invoice."""
    standard_terms(month_hour(MONTH_HOURS // 2), base_fee_minor=7_200)
    standard_terms(month_hour(MONTH_HOURS // 2 + MONTH_HOURS // 4))
    gone, young = (new_caller(name).account_id for name in ("gone", "young"))
    open_since(gone)
    closed(gone, month_hour(MONTH_HOURS // 2))
    open_since(young, month_hour(MONTH_HOURS // 2 + MONTH_HOURS // 4))
    settle_month([])
    rounds.issue_months()
    assert issued_totals() == {account: 1_800}


def test_account_that_owes_nothing_and_used_nothing_gets_no_invoice(account: str) -> None:
    ensure_standard_plan()
    settle_month([])
    assert stale_drafts(AT) == [] and months_to_issue(AT, settled_up_to()) == []
    rounds.issue_months()
    assert not Invoice.objects.exists()


def test_draft_without_usage_is_made_again_once_a_day_and_not_with_every_merge(account: str) -> None:
    standard_terms(MONTH, base_fee_minor=700)
    standard_terms(PERIOD.end)
    other = new_caller("another").account_id
    open_since(other)
    settle_rows([row(other, sent_units=1)], 0, 5)
    assert stale_drafts(AT) == [(one, PERIOD) for one in sorted((account, other))]
    for one in (account, other):
        draft_invoice(one, PERIOD)
    settle_rows([], 5, 1)
    assert stale_drafts(AT) == [(other, PERIOD)]
    day = timedelta(hours=limits.QUIET_DRAFT_HOURS)
    Invoice.objects.filter(account_id=account).update(made_at=AT - day + HOUR)
    assert stale_drafts(AT) == [(other, PERIOD)]
    Invoice.objects.filter(account_id=account).update(made_at=AT - day)
    assert (account, PERIOD) in stale_drafts(AT)
    settle_rows([row(account, 7, sent_units=1)], 7, 1)
    Invoice.objects.filter(account_id=account).update(made_at=AT)
    assert (account, PERIOD) in stale_drafts(AT), "it has usage now"


def test_draft_whose_usage_has_gone_is_made_again_within_a_day(account: str) -> None:
    settle_rows([row(account, sent_units=2_000_000)], 0, 3)
    draft_invoice(account, PERIOD)
    settle_rows([], 0, 3, recount=True)
    Invoice.objects.update(made_at=AT - timedelta(hours=limits.QUIET_DRAFT_HOURS))
    assert Invoice.objects.get().charges_minor == 40 and stale_drafts(AT) == [(account, PERIOD)]
    draft_invoice(account, PERIOD)
    assert Invoice.objects.get().charges_minor == 0 and stale_drafts(AT) == []


def test_drafts_that_were_made_first_are_made_again_first(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more become stale than one look takes, none waits for ever."""
    accounts = [account, *(new_caller(f"a{number}").account_id for number in range(3))]
    for one in accounts:
        open_since(one)
    settle_rows([row(one, sent_units=1) for one in accounts])
    monkeypatch.setattr(limits, "INVOICES_AT_ONCE_MAX", 2)
    made: list[str] = []
    for hour in range(1, 3):
        for found, period in stale_drafts(AT):
            draft_invoice(found, period)
            made.append(found)
        settle_rows([], hour, 1)
    assert sorted(made) == sorted(accounts)


def test_looks_take_as_many_statements_for_many_accounts_as_for_one(account: str) -> None:
    standard_terms(MONTH, base_fee_minor=700)
    standard_terms(PERIOD.end)
    settle_month([])

    def statements() -> list[int]:
        counts = []
        for look in (lambda: stale_drafts(AT), lambda: months_to_issue(AT, settled_up_to())):
            with CaptureQueriesContext(connection) as captured:
                found = look()
            assert len(found) == min(limits.INVOICES_AT_ONCE_MAX, Account.objects.count())
            counts.append(len(captured))
        return counts

    few = statements()
    Account.objects.bulk_create(
        Account(id=f"9{number:011}", name=f"many-{number}", created_at=MONTH, account_key_wrapped=b"", version=number)
        for number in range(600)
    )
    assert statements() == few


# --- months that were not issued when they ended ---


def months_back(count: int) -> BillingPeriod:
    period = period_of(clock.now())
    for _ in range(count):
        period = period_before(period)
    return period


def settled_since(first: BillingPeriod, rows: list[UsageRow]) -> None:
    """All hours up to now."""
    settle(uuid.uuid4(), Interval(first.start, floor_hour(clock.now())), rows)


def used_in(account_id: str, *months: BillingPeriod) -> list[UsageRow]:
    return [UsageRow(account_id, month.start, QUEUE, 12, "client", sent_units=1) for month in months]


def issued_months() -> list[datetime]:
    """In the order in which they were issued."""
    return list(Invoice.objects.filter(state="issued").order_by("issued_at").values_list("period_start", flat=True))


def test_months_older_than_three_are_issued_the_oldest_first(account: str) -> None:
    """A worker was down for months."""
    open_since(account, months_back(9).start)
    months = [months_back(count) for count in (8, 7, 5, 4, 2)]
    settled_since(months_back(9), used_in(account, *months))
    assert rounds.issue_months() == len(months) and rounds.issue_months() == 0
    assert issued_months() == [month.start for month in months]
    numbers = Invoice.objects.filter(state="issued").values_list("number", flat=True)
    assert set(numbers) == {f"PS-{month.start:%Y%m}-000001" for month in months}


def test_round_looks_at_few_old_months_and_the_next_one_goes_on(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OLD_MONTHS_AT_ONCE_MAX", 2)
    open_since(account, months_back(9).start)
    months = [months_back(count) for count in (9, 8, 5)]
    settled_since(months_back(9), used_in(account, *months))
    assert rounds.issue_months() == 2, "the two oldest"
    assert [rounds.issue_months() for _ in range(3)] == [0, 0, 1], "which lack none, 8 and 7, 6 and 5"
    assert issued_months() == [month.start for month in months]


def test_old_month_that_lacks_nothing_is_looked_at_once_a_day(account: str) -> None:
    """Usage that comes late for it, or a plan that is given for it, makes an invoice a day later."""
    open_since(account, months_back(6).start)
    settled_since(months_back(6), [])
    assert rounds.issue_months() == 0 and MonthLook.objects.filter(to_issue=0).count() >= 3
    assert older_open_periods(clock.now()) == []
    settled_since(months_back(6), used_in(account, months_back(5)))
    assert rounds.issue_months() == 0
    rest = timedelta(hours=limits.CLOSED_MONTH_REST_HOURS)
    MonthLook.objects.update(looked_at=clock.now() - rest)
    assert rounds.issue_months() == 1 and issued_months() == [months_back(5).start]


def test_accounts_that_fail_keep_no_other_and_no_later_month_waiting(
    account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_caller("another").account_id
    first, second = sorted((account, other))
    for one in (first, second):
        open_since(one, months_back(8).start)
    settled_since(months_back(8), used_in(first, months_back(8)) + used_in(second, months_back(8), months_back(6)))
    monkeypatch.setattr(limits, "INVOICES_AT_ONCE_MAX", 1)
    monkeypatch.setattr(limits, "OLD_MONTHS_AT_ONCE_MAX", 1)
    real = invoices.issue_invoice

    def one_fails(actor: Any, account_id: str, period: BillingPeriod) -> Any:
        if account_id == first:
            raise RuntimeError("a bug")
        return real(actor, account_id, period)

    monkeypatch.setattr(invoices, "issue_invoice", one_fails)
    done = [rounds.issue_months() for _ in range(6)]
    assert sum(done) == 2 and issued_months() == [months_back(8).start, months_back(6).start]
    stuck = next(month for month in months_with_reasons(clock.now()) if month.period == months_back(8))
    assert (stuck.to_issue, stuck.failing) == (1, 1) and "1 failed" in stuck.reasons[0]
    MonthLook.objects.update(looked_at=clock.now() - timedelta(hours=limits.FAILING_MONTH_REST_HOURS))
    monkeypatch.setattr(invoices, "issue_invoice", real)
    assert rounds.issue_months() == 1 and len(issued_months()) == 3


def test_months_that_are_open_are_named_with_the_reason(account: str) -> None:
    def why(months: list[OpenMonth]) -> dict[str, str]:
        return {month.period.name: "; ".join(month.reasons) for month in months}

    now = clock.now()
    open_since(account, months_back(1).start)
    named = {month.period.name for month in months_with_reasons(now) if month.reasons}
    assert named == {months_back(1).name, months_back(0).name}, "before the first account there is nothing to issue"
    open_since(account, months_back(6).start)
    assert why(months_with_reasons(now))[months_back(6).name] == "no usage is settled yet"
    assert why(months_with_reasons(now))[months_back(0).name].startswith("it runs until ")
    settled = Interval(months_back(6).start, months_back(4).start)
    settle(uuid.uuid4(), settled, used_in(account, months_back(6), months_back(5)))
    found = why(months_with_reasons(now))
    assert found[months_back(6).name] == "1 to be issued by the next rounds"
    needed = months_back(4).start + timedelta(hours=limits.CLOSE_AFTER_HOURS)
    assert found[months_back(5).name].startswith("usage is settled up to ")
    assert f"{needed:%Y-%m-%d %H:%M} UTC is needed" in found[months_back(5).name]
    settled_since(months_back(4), [])
    rounds.issue_months()
    rounds.issue_months()
    assert set(why([month for month in months_with_reasons(now) if month.reasons])) == {months_back(0).name}


def overdue(now: datetime) -> list[str]:
    return [month.period.name for month in months_with_reasons(now) if month.is_overdue]


def test_month_is_overdue_a_day_after_its_end_where_an_invoice_of_it_is_owed(account: str) -> None:
    late = PERIOD.end + timedelta(hours=limits.OVERDUE_AFTER_HOURS)
    open_since(account)
    assert overdue(late) == [], "nothing was used, and the plan takes nothing of that"
    settle_rows([row(account, sent_units=1)])
    assert overdue(late) == [PERIOD.name] and overdue(late - HOUR) == []
    settle_month([row(account, sent_units=1)])
    assert overdue(late) == [PERIOD.name]
    rounds.issue_months()
    assert overdue(late) == []


def test_usage_that_is_not_settled_makes_a_month_overdue(account: str) -> None:
    open_since(account)
    used = ProvisionalRow(month_hour(1), account, QUEUE, "c/1", "client", [1] * len(UsageMeter))
    merge_provisional("c/1", 1, [used])
    assert overdue(PERIOD.end) == [] and overdue(AT) == [PERIOD.name]


def test_invoice_that_failed_is_overdue_at_once(account: str) -> None:
    settle_month([row(account, sent_units=1)])
    soon = PERIOD.end + HOUR
    assert overdue(soon) == []
    note_failure(Work.INVOICES, FailureSubject("x", account, PERIOD.start), "the moon is full")
    assert overdue(soon) == [PERIOD.name]
