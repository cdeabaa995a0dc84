"""Who sells and who buys, as the documents of a moment name them: plain data, which an invoice keeps."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from api.billing.models import BillingParty


def written_party(party: BillingParty | None) -> dict[str, Any]:
    """Empty where there is none. What is not given is left out."""
    if party is None:
        return {}
    told = {
        "name": party.name,
        "address": party.address,
        "tax_id": party.tax_id,
        "payment": party.payment,
        "payment_days": party.payment_days,
    }
    return {name: value for name, value in told.items() if value not in ("", [], None)}


def seller_and_buyer(account_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """In one statement: each invoice of a month asks."""
    rows = BillingParty.objects.filter(Q(account=None) | Q(account_id=account_id))
    found = {row.account_id: row for row in rows}
    return written_party(found.get(None)), written_party(found.get(account_id))


def seller() -> dict[str, Any]:
    return written_party(BillingParty.objects.filter(account=None).first())


def buyer_of(account_id: str) -> dict[str, Any]:
    return written_party(buyer_row(account_id))


def buyer_row(account_id: str) -> BillingParty | None:
    return BillingParty.objects.filter(account_id=account_id).first()
