"""Payments of issued invoices, as an operator records them: what the customer's bank sent, and what went back."""

from __future__ import annotations

from datetime import date, timedelta
from uuid import UUID

from django.db import transaction

from api import clock
from api.accounts.selectors import locked_account
from api.audit.actions import record
from api.billing import limits
from api.billing.errors import BillingError, invalid, not_found
from api.billing.models import Invoice, InvoicePayment, InvoiceState
from api.billing.pricing.money import format_minor
from frontend.authn.principal import Principal


@transaction.atomic
def record_payment(
    actor: Principal, account_id: str, invoice_id: UUID, amount_minor: int, received_on: date, reference: str
) -> InvoicePayment:
    """At most what is due; a negative amount takes back at most what was paid. Raises BillingError, also for a
    reference that the invoice has already: a payment that is sent twice is recorded once."""
    account = locked_account(account_id, not_found)
    invoice = Invoice.objects.select_for_update().filter(account=account, pk=invoice_id).first()
    if invoice is None or invoice.state != InvoiceState.ISSUED:
        raise not_found()
    if not 1 <= len(reference) <= limits.PAYMENT_REFERENCE_CHARACTERS_MAX or not reference.isprintable():
        raise invalid(f"a reference has 1 to {limits.PAYMENT_REFERENCE_CHARACTERS_MAX} printable characters")
    # Tomorrow is today already in the east.
    if not invoice.period_start.date() <= received_on <= clock.now().date() + timedelta(days=1):
        raise invalid("a payment was received since the month began, and not later than today")
    if amount_minor == 0:
        raise invalid("a payment has an amount")
    if invoice.payments.filter(reference=reference).exists():
        raise BillingError("already-there", f"A payment with the reference {reference} is recorded already.")
    if amount_minor > max(0, invoice.due_minor):
        due = format_minor(max(0, invoice.due_minor), invoice.currency)
        raise BillingError("over-limit", f"{due} {invoice.currency} of {invoice.number} is due, not more.")
    if -amount_minor > invoice.paid_minor:
        paid = format_minor(invoice.paid_minor, invoice.currency)
        raise BillingError("over-limit", f"{paid} {invoice.currency} of {invoice.number} was paid, not more.")
    made = InvoicePayment.objects.create(
        invoice=invoice, amount_minor=amount_minor, received_on=received_on, reference=reference,
        recorded_at=clock.now(),
    )  # fmt: skip
    record(
        actor, account_id, "invoice.pay", f"invoice:{invoice.number}", amount_minor=amount_minor,
        currency=invoice.currency, received_on=str(received_on), reference=reference,
    )  # fmt: skip
    return made
