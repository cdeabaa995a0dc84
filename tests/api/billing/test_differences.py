"""Usage that comes after its month was issued: each difference is found once, and none is missed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.db import connection, transaction

from api import clock
from api.audit.actions import OPERATOR
from api.billing.actions.differences import look_at_late_usage
from api.billing.actions.invoices import BILLING, correct_invoice, issue_invoice
from api.billing.due import late_months
from api.billing.models import CreditNote, Invoice, InvoiceDifference, LateUsage
from api.billing.pricing.periods import floor_hour
from api.people.models import AccountLife, AccountState
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import PERIOD, open_since, row, settle_month, settle_rows
from workers.billing import rounds

pytestmark = pytest.mark.django_db


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What the log says of differences; the metric counts as many."""
    lines: list[dict[str, Any]] = []

    def warning(event: str, **fields: Any) -> None:
        assert event == "usage_after_invoice"
        lines.append(fields)

    monkeypatch.setattr(rounds._log, "warning", warning)
    before = rounds.DIFFERENCES_FOUND._value.get()
    yield lines
    assert rounds.DIFFERENCES_FOUND._value.get() - before == len(lines)


def issued(account: str, units: int = 2_100) -> Invoice:
    """Of 2.00 USD: units beyond 100 cost a tenth of a cent."""
    plan(account)
    settle_month([row(account, sent_units=units)])
    invoice = issue_invoice(BILLING, account, PERIOD)
    assert invoice is not None and invoice.total_minor == (units - 100) // 10
    return invoice


def test_late_usage_is_told_once_until_a_note_corrects_it(account: str, told: list[dict[str, Any]]) -> None:
    invoice = issued(account)
    assert not LateUsage.objects.exists() and rounds.find_differences() == 0
    settle_rows([row(account, 5, sent_units=500)], 5, 1)
    for _ in range(3):
        rounds.find_differences()
    assert [(line["invoice"], line["total_minor"]) for line in told] == [(invoice.number, 50)]
    one = InvoiceDifference.objects.get()
    assert (one.invoice_id, one.charges_minor, one.tax_minor, one.total_minor) == (invoice.pk, 50, 0, 50)
    settle_rows([row(account, 5, sent_units=500)], 5, 1)
    rounds.find_differences()
    assert len(told) == 1, "the same hour was counted again, to the same figures"
    settle_rows([row(account, 5, sent_units=500, messages_sent=9)], 5, 1)
    assert rounds.find_differences() == 1 and len(told) == 1, "what is new costs nothing"
    settle_rows([row(account, 6, sent_units=300)], 6, 1)
    rounds.find_differences()
    assert [line["total_minor"] for line in told] == [50, 80] and InvoiceDifference.objects.get().total_minor == 80
    note = correct_invoice(OPERATOR, account, invoice.pk, "late")
    assert note is not None and note.total_minor == 80 and not InvoiceDifference.objects.exists()
    assert correct_invoice(OPERATOR, account, invoice.pk, "twice") is None and CreditNote.objects.count() == 1
    settle_rows([row(account, 7, sent_units=100)], 7, 1)
    rounds.find_differences()
    assert [line["total_minor"] for line in told] == [50, 80, 10], "beyond the note"


def test_difference_goes_where_usage_goes_back(account: str, told: list[dict[str, Any]]) -> None:
    issued(account)
    settle_rows([row(account, 0, sent_units=1_100)], 0, 1)
    rounds.find_differences()
    assert [line["total_minor"] for line in told] == [-100]
    settle_rows([row(account, 0, sent_units=2_100)], 0, 1)
    rounds.find_differences()
    assert not InvoiceDifference.objects.exists() and not LateUsage.objects.exists() and len(told) == 1


def test_rows_that_a_recount_takes_away_are_a_difference(account: str, told: list[dict[str, Any]]) -> None:
    issued(account)
    settle_rows([], 0, 1, recount=True)
    rounds.find_differences()
    assert [line["total_minor"] for line in told] == [-200]


def test_usage_that_costs_nothing_is_no_difference(account: str, told: list[dict[str, Any]]) -> None:
    issued(account)
    settle_rows([row(account, 5, messages_sent=500)], 5, 1)
    assert late_months() == [(account, PERIOD)] and rounds.find_differences() == 1
    assert told == [] and not InvoiceDifference.objects.exists() and late_months() == []


def test_usage_of_the_month_so_far_is_not_late_but_where_the_account_is_closed(account: str) -> None:
    this_hour = floor_hour(clock.now())
    settle_rows([row(account, hour=0)._replace(hour=this_hour, sent_units=1)])
    assert not LateUsage.objects.exists()
    life = {"title": "Closed", "state": AccountState.CLOSED, "state_since": clock.now()}
    AccountLife.objects.update_or_create(account_id=account, defaults=life)
    settle_rows([row(account, hour=0)._replace(hour=this_hour, sent_units=2)])
    assert LateUsage.objects.count() == 1


def test_month_that_is_not_issued_keeps_its_note_until_it_is(account: str) -> None:
    plan(account)
    settle_month([row(account, sent_units=2_100)])
    assert LateUsage.objects.count() == 1 and late_months() == []
    assert look_at_late_usage(account, PERIOD) is None and LateUsage.objects.count() == 1
    issue_invoice(BILLING, account, PERIOD)
    assert not LateUsage.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_noted", [True, False])
def test_merge_that_is_committed_while_the_month_is_issued_is_not_missed(account: str, is_noted: bool) -> None:
    """Either the invoice waits for it and has it, or it is noted behind the invoice's back."""
    open_since(account)
    plan(account)
    settle_month([row(account, sent_units=2_100)])
    if not is_noted:
        LateUsage.objects.all().delete()
    merged, may_commit = Event(), Event()

    def merge() -> None:
        try:
            with transaction.atomic():
                settle_rows([row(account, 5, sent_units=500)], 5, 1)
                merged.set()
                may_commit.wait(1.0 if is_noted else 30.0)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(merge)
        assert merged.wait(30)
        invoice = issue_invoice(BILLING, account, PERIOD)
        may_commit.set()
        done.result(30)
    assert invoice is not None and invoice.total_minor == (250 if is_noted else 200)
    rounds.find_differences()
    found = list(InvoiceDifference.objects.values_list("total_minor", flat=True))
    assert found == ([] if is_noted else [50])
