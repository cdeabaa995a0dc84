"""Usage that changed after its month was issued: which invoices it disagrees with, found once for each difference.

The database notes each account and month whose usage changed late (`late_usage`, migration 0013). Of an issued month
the difference to what was billed is kept (`invoice_difference`) until a note corrects it, or usage goes back.
"""

from __future__ import annotations

from django.db import transaction

from api import clock
from api.accounts.selectors import locked_account
from api.billing.actions.invoices import difference_of
from api.billing.errors import not_found
from api.billing.models import Invoice, InvoiceDifference, InvoiceState, LateUsage
from api.billing.pricing.periods import BillingPeriod


@transaction.atomic
def look_at_late_usage(account_id: str, period: BillingPeriod) -> InvoiceDifference | None:
    """The difference if it is a new one, or another one than before. Safe to call twice, and beside a correction: both
    hold the account."""
    account = locked_account(account_id, not_found)
    invoice = Invoice.objects.filter(account=account, period_start=period.start, state=InvoiceState.ISSUED).first()
    if invoice is None:
        return None
    # Before usage is read: what comes after is noted again.
    LateUsage.objects.filter(account_id=account_id, period_start=period.start).delete()
    wrong, known = difference_of(invoice), InvoiceDifference.objects.filter(invoice=invoice)
    if not wrong.is_any:
        known.delete()
        return None
    amounts = {"charges_minor": wrong.charges_minor, "tax_minor": wrong.tax_minor, "total_minor": wrong.total_minor}
    if known.filter(**amounts).exists():
        return None
    row, _ = InvoiceDifference.objects.update_or_create(invoice=invoice, defaults={**amounts, "found_at": clock.now()})
    return row
