"""Whom invoices name: the account's own name, address and tax number, as its people give them."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.billing import limits
from api.billing.actions.parties import Party, name_buyer, remove_party
from api.billing.errors import BillingError
from api.billing.models import BillingParty
from api.billing.parties import buyer_row
from api.people.roles import Act
from console.error_notices import notice_of
from console.pages import account_page, told
from console.visits import AccountVisit

FIELDS = ("name", "address", "tax_id")


@account_page(Act.MANAGE_BUYER, "GET", "POST")
def edit_buyer(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    found = buyer_row(visit.account_id)
    given, refusal = _of_buyer(found), None
    if request.method == "POST":
        given = {field: request.POST.get(field, "").replace("\0", "").strip() for field in FIELDS}
        lines = [line.strip() for line in given["address"].splitlines()]
        try:
            party = Party(given["name"], [line for line in lines if line], given["tax_id"])
            name_buyer(visit.actor, visit.account_id, party)
            return told(_url(visit), "Invoices that are made from now on have this address.")
        except BillingError as error:
            refusal = notice_of(error)
    shown = {
        "given": given,
        "buyer": found,
        "characters": limits.PARTY_LINE_CHARACTERS_MAX,
        "lines": limits.PARTY_LINES_MAX,
        "refusal": refusal,
        "tab": "invoices",
    }
    return render(request, "console/billing/buyer.html", shown, status=refusal.status if refusal else 200)


@account_page(Act.DELETE_BUYER, "POST")
def remove_buyer(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    if not remove_party(visit.actor, visit.account_id):
        raise Http404
    return told(
        _url(visit), "The address is removed. Invoices that are made from now on have the account's name alone."
    )


def _of_buyer(found: BillingParty | None) -> dict[str, str]:
    if found is None:
        return dict.fromkeys(FIELDS, "")
    return {"name": found.name, "address": "\n".join(found.address), "tax_id": found.tax_id}


def _url(visit: AccountVisit) -> str:
    """Who may change it need not see invoices."""
    tail = "invoices" if visit.may(Act.LIST_INVOICES) else "buyer"
    return f"/console/a/{visit.account_id}/billing/{tail}"
