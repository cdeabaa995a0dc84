"""Who sells and who buys, as the documents of a moment name them: plain data, which an invoice keeps."""

from __future__ import annotations

from typing import Any

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


def seller() -> dict[str, Any]:
    return written_party(BillingParty.objects.filter(account=None).first())


def buyer_of(account_id: str) -> dict[str, Any]:
    return written_party(buyer_row(account_id))


def buyer_row(account_id: str) -> BillingParty | None:
    return BillingParty.objects.filter(account_id=account_id).first()
