"""Who sells, as operators say, and who buys, as customers or operators say. Drafts, invoices and notes that are made
from then on name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db import transaction

from api import clock
from api.accounts.selectors import locked_account
from api.audit.actions import record
from api.billing import limits
from api.billing.errors import invalid, not_found
from api.billing.models import BillingParty
from frontend.authn.principal import Principal

_NO_ACCOUNT = ""


class Party(NamedTuple):
    """A party as it is given: `address` and `payment` are lines of text. `payment` says how to pay the seller, within
    `payment_days` days of the day of issue; None: no day is named."""

    name: str
    address: Sequence[str] = ()
    tax_id: str = ""
    payment: Sequence[str] = ()
    payment_days: int | None = None


@transaction.atomic
def name_seller(actor: Principal, party: Party) -> tuple[BillingParty, bool]:
    """In place of what was given before; True: nothing was. Raises BillingError."""
    return _put(actor, None, party)


@transaction.atomic
def name_buyer(actor: Principal, account_id: str, party: Party) -> tuple[BillingParty, bool]:
    """Who the account is, in place of what was given before; True: nothing was. Raises BillingError."""
    locked_account(account_id, not_found)
    if party.payment or party.payment_days is not None:
        raise invalid("how to pay is the seller's to say")
    return _put(actor, account_id, party)


@transaction.atomic
def remove_party(actor: Principal, account_id: str | None) -> bool:
    """The buyer that the account is; None: the seller. False where none was named."""
    removed, _ = BillingParty.objects.filter(account_id=account_id).delete()
    if removed:
        record(actor, account_id or _NO_ACCOUNT, "billing_party.remove", _target(account_id))
    return bool(removed)


def _put(actor: Principal, account_id: str | None, party: Party) -> tuple[BillingParty, bool]:
    _check(party)
    row, is_new = BillingParty.objects.update_or_create(
        account_id=account_id,
        defaults={
            "name": party.name, "address": list(party.address), "tax_id": party.tax_id,
            "payment": list(party.payment), "payment_days": party.payment_days, "updated_at": clock.now(),
        },
    )  # fmt: skip
    record(actor, account_id or _NO_ACCOUNT, "billing_party.put", _target(account_id), name=party.name)
    return row, is_new


def _target(account_id: str | None) -> str:
    return "party:seller" if account_id is None else f"party:{account_id}"


def _check(party: Party) -> None:
    """Raises BillingError."""
    most = limits.PARTY_LINE_CHARACTERS_MAX
    if not party.name:
        raise invalid("a seller or buyer has a name")
    for text in (party.name, party.tax_id, *party.address, *party.payment):
        if len(text) > most or not text.isprintable():
            raise invalid(f"a name, a tax number and each line have up to {most} printable characters")
    for lines, what in ((party.address, "an address"), (party.payment, "what says how to pay")):
        if len(lines) > limits.PARTY_LINES_MAX or not all(lines):
            raise invalid(f"{what} has up to {limits.PARTY_LINES_MAX} lines, none of them empty")
    if party.payment_days is not None and not 0 <= party.payment_days <= limits.PAYMENT_DAYS_MAX:
        raise invalid(f"an invoice is to be paid within 0 to {limits.PAYMENT_DAYS_MAX} days")
