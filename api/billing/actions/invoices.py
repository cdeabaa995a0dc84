"""Invoices: drafts while the month runs, issued when it is settled, corrected by notes.

(none) -> draft     as often as usage is settled
draft  -> issued    once, when all hours of the month are settled; the database refuses every change from then on
issued -> issued    a correction is a note of its own
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Length

from api import clock
from api.accounts.models import Account
from api.accounts.selectors import account_of, locked_account
from api.audit.actions import record
from api.billing import limits
from api.billing.account_month import AccountMonth, month_of, open_within
from api.billing.actions.budgets import judge_budgets
from api.billing.actions.plans import BEGINNING, ensure_standard_plan
from api.billing.errors import BillingError, invalid, not_found
from api.billing.models import (
    BillingCredit,
    CreditNote,
    Invoice,
    InvoiceDifference,
    InvoiceKind,
    InvoiceLine,
    InvoiceState,
    LateUsage,
    NoteKind,
)
from api.billing.parties import seller_and_buyer
from api.billing.pricing.periods import BillingPeriod, Interval, period_of
from api.billing.pricing.priced_month import CreditLeft, LineKind, PricedMonth, QueueShare
from api.billing.pricing.terms import STANDARD_TERMS
from api.billing.quarantine import NO_PRICE, Quarantined, replace_unpriced
from api.billing.selectors import merges_so_far, queues_named, settled_up_to, title_of
from api.billing.tagged_usage import in_batches, tag_history
from frontend.authn.principal import Principal, service

BILLING = service("billing")


def draft_invoice(account_id: str, period: BillingPeriod, waits: bool = True) -> Invoice | None:
    """The month as it stands; the current month's is compared with the budgets. An issued invoice is left as it is.
    None where the account was not open, and of a month that has not begun. `waits` false: one that is being made, or
    issued, is left to whoever does that.

    The invoice's row is locked, and the account's is not: that of many queues takes a minute, every hour, and whoever
    creates a queue would wait for it."""
    if period.start > clock.now():
        return None
    ensure_standard_plan()
    account = account_of(account_id)
    if account is None:
        raise not_found()
    invoice = _write_draft(account, period, waits)
    if period == period_of(clock.now()):
        judge_budgets(account_id)
    return invoice


@transaction.atomic
def issue_invoice(actor: Principal, account_id: str, period: BillingPeriod) -> Invoice | None:
    """Once. Raises BillingError while usage of the month is not settled."""
    ensure_standard_plan()
    account = locked_account(account_id, not_found)
    issued = Invoice.objects.filter(account=account, period_start=period.start, state=InvoiceState.ISSUED).first()
    if issued is not None:
        return issued
    # Before usage is read: what comes after is noted again, and compared with the invoice.
    LateUsage.objects.filter(account_id=account_id, period_start=period.start).delete()
    invoice = _write_draft(account, period)
    if invoice is None:
        return None
    wanted = invoice.open_end + timedelta(hours=limits.CLOSE_AFTER_HOURS)
    if invoice.settled_up_to is None or invoice.settled_up_to < wanted:
        raise BillingError("not-settled", f"Usage is settled up to {invoice.settled_up_to}; {wanted} is needed.")
    invoice.number = _next_number("PS", period.start)
    invoice.state, invoice.issued_at = InvoiceState.ISSUED, clock.now()
    invoice.save(update_fields=["number", "state", "issued_at"])
    record(
        actor, account_id, "invoice.issue", f"invoice:{invoice.number}",
        total_minor=invoice.total_minor, currency=invoice.currency,
    )  # fmt: skip
    return invoice


@transaction.atomic
def correct_invoice(actor: Principal, account_id: str, invoice_id: UUID, reason: str) -> CreditNote | None:
    """A note of the difference between what was billed and what the settled usage says now; None without one. Raises
    BillingError."""
    if not 1 <= len(reason) <= limits.INVOICE_TEXT_CHARACTERS_MAX or not reason.isprintable():
        most = limits.INVOICE_TEXT_CHARACTERS_MAX
        raise invalid(f"give a reason in up to {most} printable characters: it is printed on the note")
    account = locked_account(account_id, not_found)
    invoice = Invoice.objects.select_for_update().filter(account=account, pk=invoice_id).first()
    if invoice is None or invoice.state != InvoiceState.ISSUED:
        raise not_found()
    wrong = difference_of(invoice)
    InvoiceDifference.objects.filter(invoice=invoice).delete()
    if not wrong.is_any:
        return None
    charges, tax, total, month = wrong.charges_minor, wrong.tax_minor, wrong.total_minor, wrong.month
    # Taking from the charges takes from credits and tax as well, or leaves them: all parts have one sign.
    kind = NoteKind.DEBIT if charges > 0 or tax > 0 else NoteKind.CREDIT
    returned = wrong.credits_minor - month.priced.credits_minor
    sells, buys = seller_and_buyer(account_id)
    note = CreditNote.objects.create(
        invoice=invoice, number=_next_number("PN", invoice.period_start), kind=kind, charges_minor=abs(charges),
        credits_minor=returned, tax_minor=abs(tax), total_minor=abs(total),
        differences=_differences(invoice, month), reason=reason, seller=sells, buyer=buys,
        issued_at=clock.now(),
    )  # fmt: skip
    if returned:
        BillingCredit.objects.create(
            account=account, name=f"Returned by {note.number}", currency=invoice.currency, amount_minor=returned,
            granted_at=note.issued_at,
        )  # fmt: skip
    record(actor, account_id, "invoice.correct", f"note:{note.number}", kind=kind.value, total_minor=abs(total))
    return note


class BilledDifference(NamedTuple):
    """What the settled usage says now, less what was billed, with the notes that went before. `credits_minor`: what the
    invoice has of credits after these notes."""

    charges_minor: int
    tax_minor: int
    total_minor: int
    credits_minor: int
    month: AccountMonth

    @property
    def is_any(self) -> bool:
        return bool(self.charges_minor or self.tax_minor or self.total_minor)


def difference_of(invoice: Invoice) -> BilledDifference:
    """Of an issued invoice: what a note would correct. Nothing but its own credits is used."""
    notes = list(invoice.notes.all())
    signs = [1 if note.kind == NoteKind.DEBIT else -1 for note in notes]
    credits = invoice.credits_minor - sum(note.credits_minor for note in notes)
    left = [CreditLeft(0, "", credits, (0, 0))]
    month = month_of(invoice.account, period_of(invoice.period_start), credits=left, queues=())
    assert month is not None
    charges, tax, total = (
        right - billed - sum(sign * getattr(note, name) for sign, note in zip(signs, notes, strict=True))
        for name, billed, right in (
            ("charges_minor", invoice.charges_minor, month.priced.charges_minor),
            ("tax_minor", invoice.tax_minor, month.priced.tax_minor),
            ("total_minor", invoice.total_minor, month.priced.total_minor),
        )
    )
    return BilledDifference(charges, tax, total, credits, month)


def _write_draft(account: Account, period: BillingPeriod, waits: bool = True) -> Invoice | None:
    interval = open_within(account, period)
    if not interval.hours:
        return None
    _begin_draft(account, period, interval)
    return _write_begun(account, period, waits)


def _begin_draft(account: Account, period: BillingPeriod, interval: Interval) -> None:
    """Its row, without lines yet, older than any draft: of two callers at once one makes it. In a transaction of its
    own where the caller has none, because a new row holds the account's, to which it belongs, until the end."""
    if Invoice.objects.filter(account=account, period_start=period.start).exists():
        return
    nothing = dict.fromkeys(("charges_minor", "credits_minor", "tax_minor", "total_minor"), 0)
    begun = Invoice(
        account=account, period_start=period.start, period_end=period.end, open_start=interval.start,
        open_end=interval.end, kind=InvoiceKind.MONTHLY, currency=STANDARD_TERMS.currency, made_at=BEGINNING, **nothing,
    )  # fmt: skip
    Invoice.objects.bulk_create([begun], ignore_conflicts=True)


@transaction.atomic
def _write_begun(account: Account, period: BillingPeriod, waits: bool) -> Invoice | None:
    rows = Invoice.objects.filter(account=account, period_start=period.start)
    invoice = rows.select_for_update(skip_locked=not waits).first()
    if invoice is None:
        return rows.first()
    if invoice.state == InvoiceState.ISSUED:
        return invoice
    # What is settled is read first: the lines may hold more than they say, never less.
    settled, merges, now = settled_up_to(), merges_so_far(), clock.now()
    month = month_of(account, period)
    if month is None:  # the account was closed meanwhile, before the month
        return None
    priced = month.priced
    amounts = [priced.charges_minor, priced.total_minor, *(line.amount_minor for line in priced.lines)]
    if max(map(abs, amounts)) > limits.MINOR_HELD_MAX:
        raise BillingError("over-limit", f"The amounts of {period.name} are more than an invoice holds: see the plan.")
    invoice.period_end, (invoice.open_start, invoice.open_end) = period.end, month.interval
    invoice.kind = InvoiceKind.CLOSING if month.is_closing else InvoiceKind.MONTHLY
    invoice.currency, invoice.charges_minor, invoice.credits_minor = (
        priced.currency, priced.charges_minor, priced.credits_minor,
    )  # fmt: skip
    invoice.account_title = title_of(account)
    invoice.seller, invoice.buyer = seller_and_buyer(account.pk)
    invoice.tax_minor, invoice.total_minor = priced.tax_minor, priced.total_minor
    invoice.settled_up_to, invoice.merges, invoice.made_at = settled, merges, now
    invoice.save()
    _write_lines(invoice, month)
    _note_unpriced(month)
    return invoice


def invoice_lines(priced: PricedMonth) -> list[InvoiceLine]:
    """Rows of no invoice yet."""
    return [
        InvoiceLine(
            position=position, kind=line.kind.value, plan=line.plan, text=line.text, meter=line.meter or "",
            tier=line.tier, quantity=line.quantity, price_nanos=line.price_nanos, per=line.per,
            amount_minor=line.amount_minor, credit_id=line.credit_id,
        )
        for position, line in enumerate(priced.lines, 1)
    ]  # fmt: skip


def _write_lines(invoice: Invoice, month: AccountMonth) -> None:
    invoice.lines.all().delete()
    invoice.queue_lines.all().delete()
    lines = invoice_lines(month.priced)
    for line in lines:
        line.invoice = invoice
    InvoiceLine.objects.bulk_create(lines)
    by_queue = [(queue, list(shares)) for queue, shares in groupby(month.priced.shares, key=lambda one: one.queue_uuid)]
    for some in in_batches(by_queue):
        rows = _queue_rows(invoice, month, dict(some))
        with connection.cursor() as cursor, cursor.copy(_COPY_QUEUES) as copy:
            for row in rows:
                copy.write_row(row)


# An account with many queues has hundreds of thousands of these lines: an object of each takes much longer.
_COPY_QUEUES = """
COPY invoice_queue_line (invoice_id, queue_uuid, queue_name, tags, meter, part, quantity, amount_nanos) FROM STDIN
"""


def _queue_rows(
    invoice: Invoice, month: AccountMonth, shares: Mapping[UUID, Sequence[QueueShare]]
) -> list[tuple[object, ...]]:
    """Of these queues: names and tags of all at once would be more than a worker can hold."""
    names = {queue.uuid: queue.name for queue in queues_named(month.account.pk, list(shares))}
    history = tag_history(month.account.pk, month.interval, shares)
    return [
        (
            invoice.pk, queue_uuid, names.get(queue_uuid, ""), json.dumps(one.tags), one.share.meter.value, one.part,
            one.share.quantity, one.share.amount_nanos,
        )
        for queue_uuid, of_queue in shares.items()
        for share in of_queue
        for one in history.split(share)
    ]  # fmt: skip


def _note_unpriced(month: AccountMonth) -> None:
    """Usage without a price is on no line: it is quarantined as a whole."""
    account_id, start = month.account.pk, month.period.start
    replace_unpriced(
        account_id,
        start,
        [
            Quarantined(
                NO_PRICE,
                f"plan {one.plan} has no price for {one.meter.value}: {one.quantity} not billed",
                {"period": month.period.name, "plan": one.plan, "meter": one.meter.value},
                account_id,
                start,
            )
            for one in month.priced.unpriced
        ],
    )


def _differences(invoice: Invoice, month: AccountMonth) -> list[dict[str, object]]:
    """Against the invoice itself, not against notes that went before."""
    billed: dict[str, int] = {}
    for line in invoice.lines.filter(kind=LineKind.USAGE.value):
        billed[line.meter] = billed.get(line.meter, 0) - int(line.quantity)
    for priced in month.priced.lines:
        if priced.meter is not None:
            billed[priced.meter.value] = billed.get(priced.meter.value, 0) + priced.quantity
    return [{"meter": meter, "quantity": quantity} for meter, quantity in sorted(billed.items()) if quantity]


def _next_number(series: str, start: datetime) -> str:
    """`PS-202611-000042`: no number of a month is left out, because it is drawn in the transaction that uses it."""
    model = Invoice if series == "PS" else CreditNote
    prefix = f"{series}-{start:%Y%m}-"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (limits.NUMBERING_LOCK_KEY,))
    # The longest first: a text of seven digits sorts before one of six.
    rows = model._default_manager.filter(number__startswith=prefix)
    last = rows.order_by(Length("number").desc(), "-number").first()
    following = 1 if last is None else int(str(last.number).removeprefix(prefix)) + 1
    return f"{prefix}{following:06}"
