"""What a count of a month again would make of its issued invoices, to the minor unit. Nothing of it stays.

The rows of the count are merged, and the invoices priced again, in a transaction that is rolled back: so all rules of a
merge and of prices hold, and no invoice, note, figure or ledger changes. Other merges wait as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import uuid4

from django.db import transaction

from api.accounts.models import Account
from api.billing.account_month import month_of
from api.billing.actions.invoices import BilledDifference, difference_of
from api.billing.due import unissued_month
from api.billing.models import Invoice, InvoiceState
from api.billing.pricing.periods import BillingPeriod, Interval
from api.billing.selectors import settled_up_to
from api.billing.settling import SettledRun, begin_run, merge_days


class InvoiceRecount(NamedTuple):
    """What the count says, less what an invoice and its notes billed (`billed_minor`). `is_settled`: the settled usage
    says the same difference, so a note corrects it; else the month is to be counted again first."""

    invoice: Invoice
    billed_minor: int
    charges_minor: int
    tax_minor: int
    total_minor: int
    is_settled: bool


class NotInvoiced(NamedTuple):
    """An account that has no issued invoice of the month, and what the count says of it."""

    account: Account
    currency: str
    total_minor: int


class MonthRecount(NamedTuple):
    """`invoices`: how many were compared. `run`: what a merge of the count would change."""

    invoices: int
    differences: list[InvoiceRecount]
    not_invoiced: list[NotInvoiced]
    run: SettledRun

    @property
    def is_equal(self) -> bool:
        return not self.differences and not self.not_invoiced


def recount_month(
    period: BillingPeriod, files: Iterable[Iterable[bytes]], is_partial: bool = False, account_id: str | None = None
) -> MonthRecount:
    """Of a month that is over; `files` and `is_partial` as for `settling.merge_days`. Raises SettlingError."""
    hours = Interval(*period)
    invoices = Invoice.objects.filter(period_start=period.start, state=InvoiceState.ISSUED).select_related("account")
    if account_id is not None:
        invoices = invoices.filter(account_id=account_id)
    with transaction.atomic():
        run = uuid4()
        begin_run(run, hours)
        merged = merge_days(run, hours, files, is_partial)
        compared = [(one, difference_of(one)) for one in invoices.order_by("account_id")]
        lacking = _not_invoiced(period, account_id)
        transaction.set_rollback(True)
    wrong = [_recount_of(invoice, found) for invoice, found in compared if found.is_any]
    return MonthRecount(len(compared), wrong, lacking, merged)


def _recount_of(invoice: Invoice, counted: BilledDifference) -> InvoiceRecount:
    """Outside of the transaction that is rolled back: the settled usage is what it was."""
    amounts = (counted.charges_minor, counted.tax_minor, counted.total_minor)
    settled = difference_of(invoice)
    billed = invoice.total_minor + sum(note.owed_minor for note in invoice.notes.all())
    is_settled = amounts == (settled.charges_minor, settled.tax_minor, settled.total_minor)
    return InvoiceRecount(invoice, billed, *amounts, is_settled)


def _not_invoiced(period: BillingPeriod, account_id: str | None) -> list[NotInvoiced]:
    due = unissued_month(period, settled_up_to()).accounts
    accounts = Account.objects.filter(pk__in=[one for one in due if account_id in (None, one)]).order_by("pk")
    months = [month_of(account, period, queues=()) for account in accounts]
    found = [NotInvoiced(one.account, one.priced.currency, one.priced.total_minor) for one in months if one is not None]
    return [one for one in found if one.total_minor]
