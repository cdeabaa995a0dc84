"""The content of an invoice's documents: plain data, the same for JSON, CSV and PDF."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.db.models import Case, IntegerField, Value, When
from django.db.models.functions import Collate

from api.billing.models import CreditNote, Invoice, InvoiceLine, InvoiceQueueLine
from api.billing.pricing.meters import SHOWN, UsageMeter, shown_quantity
from api.billing.pricing.money import CURRENCIES, format_minor, format_nanos, format_percent
from api.billing.pricing.periods import period_of
from api.billing.pricing.priced_month import LineKind

UNTAGGED = ""
LINES_AT_ONCE = 2_000


def invoice_content(invoice: Invoice, notes: Iterable[CreditNote]) -> dict[str, Any]:
    """Integers are exact; a `text` beside them is for reading."""
    content = streamed_content(invoice, notes)
    return {**content, "queues": list(content["queues"])}


def streamed_content(invoice: Invoice, notes: Iterable[CreditNote]) -> dict[str, Any]:
    """The same; `queues` can be read once, and never are all of them held: an account may have a million such lines."""
    currency = invoice.currency
    return {
        "document": "invoice",
        "id": str(invoice.pk),
        "number": invoice.number,
        "state": invoice.state,
        "kind": invoice.kind,
        "account_id": invoice.account_id,
        "account_name": invoice.account.name,
        "account_title": invoice.account_shown,
        "seller": invoice.seller or None,
        "buyer": invoice.buyer or None,
        "period": period_of(invoice.period_start).name,
        "open_from": written_time(invoice.open_start),
        "open_to": written_time(invoice.open_end),
        "settled_up_to": written_time(invoice.settled_up_to),
        "made_at": written_time(invoice.made_at),
        "issued_at": written_time(invoice.issued_at),
        "pay_by": None if invoice.pay_by is None else invoice.pay_by.isoformat(),
        "currency": currency,
        "minor_digits": CURRENCIES[currency],
        "charges_minor": invoice.charges_minor,
        "credits_minor": invoice.credits_minor,
        "tax_minor": invoice.tax_minor,
        "total_minor": invoice.total_minor,
        "total": format_minor(invoice.total_minor, currency),
        "lines": [line_content(line, currency) for line in invoice.lines.order_by("position")],
        "queues": map(_queue_line, _queue_lines(invoice)),
        "notes": [note_content(note, currency) for note in notes],
        "payments": payments_content(invoice),
        "paid_minor": invoice.paid_minor,
        "due_minor": invoice.due_minor,
        "due": format_minor(invoice.due_minor, currency),
        "is_paid": invoice.is_paid,
    }


def notes_in_order(invoice: Invoice) -> list[CreditNote]:
    """The oldest first; from what was fetched with the invoice, if it was."""
    return sorted(invoice.notes.all(), key=lambda note: (note.issued_at, note.number))


def document_of(note: CreditNote) -> str:
    """What it is called in lists, beside `invoice`."""
    return f"{note.kind}_note"


def note_content(note: CreditNote, currency: str) -> dict[str, Any]:
    """Amounts are positive, but for `owed_minor`: by how much more is due of the invoice."""
    return {
        "document": document_of(note),
        "id": str(note.pk),
        "number": note.number,
        "kind": note.kind,
        "charges_minor": note.charges_minor,
        "credits_minor": note.credits_minor,
        "tax_minor": note.tax_minor,
        "total_minor": note.total_minor,
        "total": format_minor(note.total_minor, currency),
        "owed_minor": note.owed_minor,
        "owed": format_minor(note.owed_minor, currency),
        "differences": note.differences,
        "reason": note.reason,
        "issued_at": written_time(note.issued_at),
    }


def payments_content(invoice: Invoice) -> list[dict[str, Any]]:
    return [
        {
            "amount_minor": payment.amount_minor,
            "amount": format_minor(payment.amount_minor, invoice.currency),
            "received_on": payment.received_on.isoformat(),
            "reference": payment.reference,
        }
        for payment in invoice.payments.order_by("received_on", "pk")
    ]


def tag_shares(invoice: Invoice, tag_key: str) -> list[dict[str, Any]]:
    """What the queues of each value of a tag cost together; what has no such tag comes first. They sum to the usage
    lines."""
    sums: dict[str, int] = defaultdict(int)
    for line in invoice.queue_lines.iterator(chunk_size=LINES_AT_ONCE):
        sums[str(line.tags.get(tag_key, UNTAGGED))] += int(line.amount_nanos)
    return [
        {"value": value, "amount_nanos": nanos, "amount": format_nanos(nanos)} for value, nanos in sorted(sums.items())
    ]


def _queue_lines(invoice: Invoice) -> Iterator[InvoiceQueueLine]:
    meters = [When(meter=meter.value, then=Value(place)) for place, meter in enumerate(UsageMeter)]
    order = Case(*meters, output_field=IntegerField())
    rows = invoice.queue_lines.order_by(Collate("queue_name", "C"), "queue_uuid", order, "part")
    return rows.iterator(chunk_size=LINES_AT_ONCE)


def _queue_line(line: InvoiceQueueLine) -> dict[str, Any]:
    meter = UsageMeter(line.meter)
    return {
        "queue": line.queue_name,
        "queue_uuid": str(line.queue_uuid),
        "tags": line.tags,
        "meter": line.meter,
        "meter_name": SHOWN[meter][0],
        "quantity": int(line.quantity),
        "quantity_text": shown_quantity(meter, int(line.quantity)),
        "unit": SHOWN[meter][2],
        "amount_nanos": int(line.amount_nanos),
        "amount": format_nanos(int(line.amount_nanos)),
    }


def line_content(line: InvoiceLine, currency: str) -> dict[str, Any]:
    meter = UsageMeter(line.meter) if line.meter else None
    return {
        "position": line.position,
        "kind": line.kind,
        "text": _text(line, meter),
        "plan": line.plan,
        "meter": line.meter or None,
        "tier": line.tier,
        "quantity": int(line.quantity),
        "quantity_text": "" if meter is None else shown_quantity(meter, int(line.quantity)),
        "unit": "" if meter is None else SHOWN[meter][2],
        "price_nanos": line.price_nanos,
        "per": int(line.per),
        "price_text": "" if meter is None else _price_text(line, meter),
        "amount_minor": line.amount_minor,
        "amount": format_minor(line.amount_minor, currency),
    }


def _text(line: InvoiceLine, meter: UsageMeter | None) -> str:
    if meter is None:
        prefix = "Credit: " if line.kind == LineKind.CREDIT else ""
        rate = f" ({format_percent(line.price_nanos)} %)" if line.kind == LineKind.TAX else ""
        return f"{prefix}{line.text}{rate}"
    if line.price_nanos == 0:
        return f"{SHOWN[meter][0]}, free"
    return SHOWN[meter][0] if line.tier == 1 else f"{SHOWN[meter][0]}, tier {line.tier}"


def _price_text(line: InvoiceLine, meter: UsageMeter) -> str:
    """Of one shown unit where that is large, else of a million."""
    if line.price_nanos == 0:
        return ""
    per_unit = SHOWN[meter][1]
    if per_unit > 1:
        nanos = line.price_nanos * per_unit // int(line.per)
        return f"{format_nanos(nanos)} per {SHOWN[meter][2].removesuffix('s')}"
    nanos = line.price_nanos * 10**6 // int(line.per)
    return f"{format_nanos(nanos)} per million"


def written_time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")
