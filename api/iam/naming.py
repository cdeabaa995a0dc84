"""Accounts as operators name them."""

from __future__ import annotations

from django.core.management.base import CommandError

from api.accounts.models import Account


def account_named(text: str) -> Account:
    """By id, else by name. Raises CommandError."""
    account = Account.objects.filter(id=text).first() or Account.objects.filter(name=text).first()
    if account is None:
        raise CommandError(f"there is no account {text!r}")
    return account
