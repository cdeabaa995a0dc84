"""Payments of invoices: recorded once, at most what is due, taken back by a row of their own, shown to the customer."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import transaction
from django.db.utils import DatabaseError

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.billing.actions.invoices import BILLING, correct_invoice, draft_invoice, issue_invoice
from api.billing.actions.payments import record_payment
from api.billing.documents.content import invoice_content
from api.billing.documents.invoice_csv import invoice_csv
from api.billing.documents.invoice_pdf import invoice_pdf
from api.billing.errors import BillingError
from api.billing.models import Invoice, InvoicePayment
from tests.api.billing.test_commands import admin
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import MONTH, NOW, PERIOD, row, settle_month, settle_rows
from tests.support.control_plane import Caller, new_caller

pytestmark = pytest.mark.django_db
TODAY = datetime.now(UTC).date()


@pytest.fixture
def invoice(account: str) -> Invoice:
    """Of 20.00 USD."""
    plan(account)
    settle_month([row(account, 5, sent_units=20_100)])
    made = issue_invoice(BILLING, account, PERIOD)
    assert made is not None and made.total_minor == 2_000
    return made


def pay(invoice: Invoice, amount_minor: int, reference: str, received_on: date = TODAY) -> InvoicePayment:
    return record_payment(OPERATOR, invoice.account_id, invoice.pk, amount_minor, received_on, reference)


@pytest.mark.parametrize(("hour", "kind"), [(9, "debit"), (5, "credit")])
def test_csv_of_an_invoice_adds_up_to_what_is_due(invoice: Invoice, hour: int, kind: str) -> None:
    pay(invoice, 500, "first part")
    settle_rows([row(invoice.account_id, hour, sent_units=2_000)], hour, 1)
    note = correct_invoice(OPERATOR, invoice.account_id, invoice.pk, "=late")
    assert note is not None and note.kind == kind
    invoice.refresh_from_db()
    content = invoice_content(invoice, [note])
    sums: dict[str, int] = defaultdict(int)
    for one in csv.DictReader(io.StringIO(invoice_csv(content))):
        if one["row"] != "queue":
            sums[one["row"]] += int(one["amount_minor"])
            assert Decimal(one["amount"]) * 100 == int(one["amount_minor"])
    assert sums["line"] == sums["total"] == 2_000 and sums["due"] == invoice.due_minor
    assert sums["total"] + sums["note"] - sums["payment"] == sums["due"]
    assert invoice_pdf(content).startswith(b"%PDF")


def test_invoice_is_paid_once_all_that_is_due_has_come(invoice: Invoice) -> None:
    assert (invoice.due_minor, invoice.is_paid) == (2_000, False)
    pay(invoice, 500, "first part")
    assert (invoice.paid_minor, invoice.due_minor, invoice.is_paid) == (500, 1_500, False)
    pay(invoice, 1_500, "the rest")
    assert (invoice.paid_minor, invoice.due_minor, invoice.is_paid) == (2_000, 0, True)
    told = AuditEntry.objects.filter(action="invoice.pay").order_by("pk").values_list("subject", "details")
    assert [(target, detail["amount_minor"], detail["reference"]) for target, detail in told] == [
        (f"invoice:{invoice.number}", 500, "first part"), (f"invoice:{invoice.number}", 1_500, "the rest"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("amount_minor", "reference", "received_on", "code"),
    [
        (2_001, "a", TODAY, "over-limit"),
        (-1, "a", TODAY, "over-limit"),
        (0, "a", TODAY, "invalid-request"),
        (1, "", TODAY, "invalid-request"),
        (1, "a\nb", TODAY, "invalid-request"),
        (1, "a" * 101, TODAY, "invalid-request"),
        (1, "a", TODAY + timedelta(days=2), "invalid-request"),
        (1, "a", MONTH.date() - timedelta(days=1), "invalid-request"),
    ],
)
def test_payment_that_cannot_be_is_refused(
    invoice: Invoice, amount_minor: int, reference: str, received_on: date, code: str
) -> None:
    with pytest.raises(BillingError) as refused:
        pay(invoice, amount_minor, reference, received_on)
    assert refused.value.code == code
    assert not InvoicePayment.objects.exists() and not AuditEntry.objects.filter(action="invoice.pay").exists()


def test_payment_that_is_sent_twice_is_recorded_once(invoice: Invoice) -> None:
    pay(invoice, 500, "transfer 1")
    with pytest.raises(BillingError, match="recorded already"):
        pay(invoice, 500, "transfer 1")
    assert invoice.paid_minor == 500


def test_payment_is_taken_back_by_a_row_of_its_own(invoice: Invoice) -> None:
    pay(invoice, 2_000, "transfer 1")
    with pytest.raises(BillingError, match=r"^0\.00 USD .* is due"):
        pay(invoice, 1, "transfer 2")
    with pytest.raises(DatabaseError, match="final"), transaction.atomic():
        InvoicePayment.objects.update(amount_minor=1)
    with pytest.raises(DatabaseError, match="final"), transaction.atomic():
        InvoicePayment.objects.all().delete()
    with pytest.raises(BillingError, match=r"^20\.00 USD .* was paid"):
        pay(invoice, -2_001, "back")
    pay(invoice, -2_000, "back")
    assert (invoice.due_minor, invoice.is_paid) == (2_000, False)


def test_corrections_count_for_what_is_due(invoice: Invoice, account: str) -> None:
    pay(invoice, 2_000, "transfer 1")
    settle_rows([row(account, 3, sent_units=300)], 3, 1)
    correct_invoice(OPERATOR, account, invoice.pk, "late")
    assert (invoice.due_minor, invoice.is_paid) == (30, False)
    settle_rows([row(account, 5, sent_units=19_100)], 5, 1)
    correct_invoice(OPERATOR, account, invoice.pk, "counted twice")
    assert (invoice.due_minor, invoice.is_paid) == (-70, True)
    with pytest.raises(BillingError, match=r"^0\.00 USD"):
        pay(invoice, 1, "transfer 2")


def test_draft_and_invoice_of_another_account_are_not_found(invoice: Invoice, account: str) -> None:
    draft = draft_invoice(account, NOW)
    assert draft is not None and (draft.due_minor, draft.is_paid) == (0, False)
    with pytest.raises(BillingError, match="nothing here"):
        pay(draft, 1, "a")
    with pytest.raises(BillingError, match="nothing here"):
        record_payment(OPERATOR, new_caller("another").account_id, invoice.pk, 1, TODAY, "a")
    assert not InvoicePayment.objects.exists()


def test_customer_reads_what_was_paid(caller: Caller, invoice: Invoice) -> None:
    def listed() -> tuple[int, int, bool]:
        (one,) = caller.request("GET", "/v1/billing/invoices").json()["invoices"]
        return one["paid_minor"], one["due_minor"], one["is_paid"]

    assert listed() == (0, 2_000, False)
    pay(invoice, 2_000, "transfer 1")
    assert listed() == (2_000, 0, True)
    shown: dict[str, Any] = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}").json()
    assert (shown["paid_minor"], shown["due_minor"], shown["is_paid"], shown["total_minor"]) == (2_000, 0, True, 2_000)
    assert shown["payments"] == [
        {"amount_minor": 2_000, "amount": "20.00", "received_on": TODAY.isoformat(), "reference": "transfer 1"}
    ]


def test_operator_records_a_payment_by_a_command(invoice: Invoice) -> None:
    given = ("pay", "--account", "tests", "--period", PERIOD.name, "--received", TODAY.isoformat())
    assert admin(*given, "--amount-minor", "1500", "--reference", "transfer 1") == (
        f"{invoice.number}: USD 5.00 is due\n"
    )
    assert invoice.paid_minor == 1_500
    assert admin(*given, "--reference", "the rest") == f"{invoice.number}: USD 0.00 is due\n"
    assert invoice.paid_minor == 2_000
    with pytest.raises(CommandError, match=f"nothing of {invoice.number} is due"):
        admin(*given, "--reference", "too much")
