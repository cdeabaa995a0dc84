"""The content of a note's documents: plain data, the same for JSON, CSV and PDF.

A note is the difference to what an issued invoice, which it names, should have been. Amounts are positive: what a
credit note gives back, or a debit note asks for. `owed_minor` has the sign that it has in the sum that is due.
"""

from __future__ import annotations

from typing import Any

from api.billing.documents.content import document_of, note_content, written_time
from api.billing.models import CreditNote, NoteKind
from api.billing.pricing.meters import SHOWN, UsageMeter, shown_quantity
from api.billing.pricing.money import CURRENCIES, format_minor
from api.billing.pricing.periods import period_of


def note_document(note: CreditNote) -> dict[str, Any]:
    """Integers are exact; a `text` beside them is for reading."""
    invoice, currency = note.invoice, note.invoice.currency
    return {
        **note_content(note, currency),
        "invoice_id": str(invoice.pk),
        "invoice_number": invoice.number,
        "invoice_issued_at": written_time(invoice.issued_at),
        "invoice_total_minor": invoice.total_minor,
        "account_id": invoice.account_id,
        "account_name": invoice.account.name,
        "account_title": invoice.account_shown,
        "seller": note.seller or None,
        "buyer": note.buyer or None,
        "period": period_of(invoice.period_start).name,
        "currency": currency,
        "minor_digits": CURRENCIES[currency],
        "lines": _lines(note, currency),
        "differences": [_difference(one["meter"], int(one["quantity"])) for one in note.differences],
    }


def note_file_name(note: CreditNote) -> str:
    """Without the ending: `credit-note-PN-202611-000001`."""
    return f"{document_of(note).replace('_', '-')}-{note.number}"


def _lines(note: CreditNote, currency: str) -> list[dict[str, Any]]:
    """They sum to the total. What is granted again as a credit is no part of what a credit note gives back."""
    returned = -note.credits_minor if note.kind == NoteKind.CREDIT else note.credits_minor
    parts = (("charges", "Usage and fees", note.charges_minor), ("credit", "Granted again as a credit", returned),
             ("tax", "Tax", note.tax_minor))  # fmt: skip
    return [
        {"kind": kind, "text": text, "amount_minor": amount, "amount": format_minor(amount, currency)}
        for kind, text, amount in parts
        if amount or kind == "charges"
    ]


def _difference(name: str, quantity: int) -> dict[str, Any]:
    meter = UsageMeter(name)
    sign = "-" if quantity < 0 else ""
    return {
        "meter": name,
        "meter_name": SHOWN[meter][0],
        "quantity": quantity,
        "quantity_text": sign + shown_quantity(meter, abs(quantity)),
        "unit": SHOWN[meter][2],
    }
