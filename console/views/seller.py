"""Who sells, as operators say it: the name, address and tax number on every invoice, and how it is to be paid."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.billing import limits
from api.billing.actions.parties import Party, name_seller, remove_party
from api.billing.errors import BillingError, invalid
from api.billing.parties import seller
from console.error_notices import notice_of
from console.pages import operator_page, require_recent_sign_in, told
from console.visits import Visit

_FIELDS = ("name", "address", "tax_id", "payment", "payment_days")
_URL = "/console/operators/billing/seller"


@operator_page("GET", "POST")
def edit_seller(request: HttpRequest, visit: Visit) -> HttpResponse:
    found = seller()
    given, refusal = {field: _as_text(found.get(field, "")) for field in _FIELDS}, None
    if request.method == "POST":
        require_recent_sign_in(visit)
        if request.POST.get("what") == "remove":
            remove_party(visit.actor, None)
            return told(_URL, "The seller is removed. Invoices that are made from now on name none.")
        given = {field: request.POST.get(field, "").replace("\0", "").strip() for field in _FIELDS}
        try:
            name_seller(visit.actor, _party(given))
            return told(_URL, "Invoices that are made from now on name this seller.")
        except BillingError as error:
            refusal = notice_of(error)
    shown = {
        "tab": "seller",
        "given": given,
        "is_named": bool(found),
        "refusal": refusal,
        "characters": limits.PARTY_LINE_CHARACTERS_MAX,
        "lines": limits.PARTY_LINES_MAX,
        "days": limits.PAYMENT_DAYS_MAX,
    }
    status = refusal.status if refusal else 200
    return render(request, "console/operators/billing/seller.html", shown, status=status)


def _party(given: dict[str, str]) -> Party:
    """Raises BillingError."""
    days = given["payment_days"]
    if days and not (days.isascii() and days.isdigit() and len(days) <= 9):
        raise invalid(f"an invoice is to be paid within 0 to {limits.PAYMENT_DAYS_MAX} days")
    return Party(
        given["name"], _lines(given["address"]), given["tax_id"], _lines(given["payment"]), int(days) if days else None
    )


def _lines(text: str) -> list[str]:
    return [line for one in text.splitlines() if (line := one.strip())]


def _as_text(value: object) -> str:
    return "\n".join(value) if isinstance(value, list) else str(value)
