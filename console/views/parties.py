"""Who buys and who sells, as invoices name them: the account's own name, address and tax number, as its people give
them; and the seller's, with how it is to be paid, as operators do."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.billing import limits
from api.billing.actions.parties import Party, name_buyer, name_seller, remove_party
from api.billing.errors import BillingError, invalid
from api.billing.parties import buyer_of, seller
from api.people.roles import Act
from console.error_notices import ErrorNotice, notice_of
from console.pages import account_page, operator_page, require_recent_sign_in, told
from console.visits import AccountVisit, Visit

_BUYER_FIELDS = ("name", "address", "tax_id")
_SELLER_FIELDS = (*_BUYER_FIELDS, "payment", "payment_days")
_SELLER_URL = "/console/operators/billing/seller"


@account_page(Act.MANAGE_BUYER, "GET", "POST")
def edit_buyer(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    found = buyer_of(visit.account_id)
    given, refusal = _as_texts(found, _BUYER_FIELDS), None
    if request.method == "POST":
        given = _given(request, _BUYER_FIELDS)
        try:
            name_buyer(visit.actor, visit.account_id, _party(given))
            return told(_buyer_url(visit), "Invoices that are made from now on have this address.")
        except BillingError as error:
            refusal = notice_of(error)
    return _form(request, "console/billing/buyer.html", "invoices", found, given, refusal)


@account_page(Act.DELETE_BUYER, "POST")
def remove_buyer(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    if not remove_party(visit.actor, visit.account_id):
        raise Http404
    return told(
        _buyer_url(visit), "The address is removed. Invoices that are made from now on have the account's name alone."
    )


@operator_page("GET", "POST")
def edit_seller(request: HttpRequest, visit: Visit) -> HttpResponse:
    found = seller()
    given, refusal = _as_texts(found, _SELLER_FIELDS), None
    if request.method == "POST":
        require_recent_sign_in(visit)
        if request.POST.get("what") == "remove":
            remove_party(visit.actor, None)
            return told(_SELLER_URL, "The seller is removed. Invoices that are made from now on name none.")
        given = _given(request, _SELLER_FIELDS)
        try:
            name_seller(visit.actor, _party(given))
            return told(_SELLER_URL, "Invoices that are made from now on name this seller.")
        except BillingError as error:
            refusal = notice_of(error)
    return _form(request, "console/operators/billing/seller.html", "seller", found, given, refusal)


def _form(
    request: HttpRequest,
    template: str,
    tab: str,
    found: dict[str, Any],
    given: dict[str, str],
    refusal: ErrorNotice | None,
) -> HttpResponse:
    shown = {
        "tab": tab,
        "found": found,
        "given": given,
        "refusal": refusal,
        "characters": limits.PARTY_LINE_CHARACTERS_MAX,
        "lines": limits.PARTY_LINES_MAX,
        "days": limits.PAYMENT_DAYS_MAX,
    }
    return render(request, template, shown, status=refusal.status if refusal else 200)


def _given(request: HttpRequest, fields: tuple[str, ...]) -> dict[str, str]:
    return {field: request.POST.get(field, "").replace("\0", "").strip() for field in fields}


def _party(given: dict[str, str]) -> Party:
    """Raises BillingError."""
    days = given.get("payment_days", "")
    if days and not (days.isascii() and days.isdigit() and len(days) <= 9):
        raise invalid(f"an invoice is to be paid within 0 to {limits.PAYMENT_DAYS_MAX} days")
    address, payment = _lines(given["address"]), _lines(given.get("payment", ""))
    return Party(given["name"], address, given["tax_id"], payment, int(days) if days else None)


def _lines(text: str) -> list[str]:
    return [line for one in text.splitlines() if (line := one.strip())]


def _as_texts(found: dict[str, Any], fields: tuple[str, ...]) -> dict[str, str]:
    values = {field: found.get(field, "") for field in fields}
    return {field: "\n".join(value) if isinstance(value, list) else str(value) for field, value in values.items()}


def _buyer_url(visit: AccountVisit) -> str:
    """Who may change it need not see invoices."""
    tail = "invoices" if visit.may(Act.LIST_INVOICES) else "buyer"
    return f"/console/a/{visit.account_id}/billing/{tail}"
