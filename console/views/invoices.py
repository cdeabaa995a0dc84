"""Invoices, their corrections, and their documents."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.billing import selectors
from api.billing.documents.content import (
    line_content,
    note_content,
    notes_in_order,
    payments_content,
    streamed_content,
    tag_shares,
)
from api.billing.documents.invoice_csv import invoice_csv, note_csv
from api.billing.documents.invoice_pdf import invoice_pdf, note_pdf
from api.billing.documents.note_content import note_document, note_file_name
from api.billing.models import CreditNote, Invoice
from api.billing.parties import buyer_row
from api.billing.pricing.periods import period_of
from api.people.roles import Act
from console.page_times import before_asked
from console.pages import account_page
from console.visits import AccountVisit

PAGE_INVOICES = 24
QUEUES_SHOWN = 100
_TAG_CHARS_MAX = 128
_DOCUMENTS: dict[str, tuple[str, Callable[[dict[str, Any]], bytes]]] = {
    "csv": ("text/csv; charset=utf-8", lambda content: invoice_csv(content).encode()),
    "json": (
        "application/json",
        lambda content: json.dumps(
            {**content, "queues": list(content["queues"])}, indent=2, ensure_ascii=False
        ).encode(),
    ),
    "pdf": ("application/pdf", invoice_pdf),
}
_NOTES: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "csv": lambda content: note_csv(content).encode(),
    "json": lambda content: json.dumps(content, indent=2, ensure_ascii=False).encode(),
    "pdf": note_pdf,
}


def with_notes(invoices: list[Invoice]) -> list[tuple[Invoice, list[CreditNote]]]:
    """Each with the notes that correct it, for rows of their own below it."""
    return [(one, notes_in_order(one)) for one in invoices]


@account_page(Act.LIST_INVOICES, "GET")
def invoices(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    found = selectors.invoices_of(visit.account_id, before_asked(request), PAGE_INVOICES + 1)
    rows = found[:PAGE_INVOICES]
    more = rows[-1].period_start.isoformat() if len(found) > PAGE_INVOICES else ""
    buyer = buyer_row(visit.account_id) if visit.may(Act.READ_BUYER) else None
    shown = {"listed": with_notes(rows), "more": more, "buyer": buyer, "tab": "invoices"}
    return render(request, "console/billing/invoices.html", shown)


@account_page(Act.READ_INVOICES, "GET")
def invoice(request: HttpRequest, visit: AccountVisit, invoice_id: uuid.UUID) -> HttpResponse:
    found = _invoice(visit, invoice_id)
    tag = request.GET.get("tag", "").strip().replace("\0", "")[:_TAG_CHARS_MAX]
    queues = selectors.queue_costs(visit.account_id, invoice_id, QUEUES_SHOWN + 1)
    shown = {
        "invoice": found,
        "period": period_of(found.period_start),
        "lines": [line_content(line, found.currency) for line in found.lines.order_by("position")],
        "notes": [note_content(note, found.currency) for note in selectors.notes_of(visit.account_id, invoice_id)],
        "payments": payments_content(found),
        "queues": queues[:QUEUES_SHOWN],
        "more_queues": len(queues) > QUEUES_SHOWN,
        "tag": tag,
        "tag_keys": selectors.tag_keys_of(visit.account_id, invoice_id),
        "tags": tag_shares(found, tag) if tag else [],
        "tab": "invoices",
    }
    return render(request, "console/billing/invoice.html", shown)


@account_page(Act.READ_INVOICES, "GET")
def document(request: HttpRequest, visit: AccountVisit, invoice_id: uuid.UUID, form: str) -> HttpResponse:
    """A file: `form` is its ending."""
    if form not in _DOCUMENTS:
        raise Http404
    found = _invoice(visit, invoice_id)
    content_type, make = _DOCUMENTS[form]
    content = streamed_content(found, selectors.notes_of(visit.account_id, invoice_id))
    name = f"invoice-{found.number or f'draft-{found.period_start:%Y-%m}'}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(make(content), content_type=content_type, headers=headers)


@account_page(Act.READ_INVOICES, "GET")
def note(request: HttpRequest, visit: AccountVisit, note_id: uuid.UUID, form: str) -> HttpResponse:
    """A note's file: `form` is its ending."""
    found = selectors.note_of(visit.account_id, note_id)
    if found is None or form not in _NOTES:
        raise Http404
    headers = {"Content-Disposition": f'attachment; filename="{note_file_name(found)}.{form}"'}
    content_type, _ = _DOCUMENTS[form]
    return HttpResponse(_NOTES[form](note_document(found)), content_type=content_type, headers=headers)


def _invoice(visit: AccountVisit, invoice_id: uuid.UUID) -> Invoice:
    """Of this account; any other one is not found."""
    found = selectors.invoice_of(visit.account_id, invoice_id)
    if found is None:
        raise Http404
    return found
