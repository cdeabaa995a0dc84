"""Reading accounts and keys, always as one account; operators name an account by its id or its name."""

from __future__ import annotations

from collections.abc import Callable

from django.core.management.base import CommandError

from api.accounts.models import AccessKey, Account


def account_of(account_id: str) -> Account | None:
    return Account.objects.filter(id=account_id).first()


def locked_account(account_id: str, absent: Callable[[], Exception] | None = None) -> Account:
    """Its row, locked until the transaction ends: before any other row, so that changes of one account wait for each
    other. Raises what `absent` makes where there is no such account, Account.DoesNotExist without it."""
    rows = Account.objects.select_for_update()
    if absent is None:
        return rows.get(pk=account_id)
    account = rows.filter(pk=account_id).first()
    if account is None:
        raise absent()
    return account


def lock_key(account_id: str, access_key_id: str) -> None:
    """Until the transaction ends, if there is such a key."""
    AccessKey.objects.select_for_update().filter(account_id=account_id, access_key_id=access_key_id).first()


def key_of(account_id: str, access_key_id: str) -> AccessKey | None:
    rows = AccessKey.objects.select_related("access")
    return rows.filter(account_id=account_id, access_key_id=access_key_id).first()


def keys_of(account_id: str, after: str, limit: int) -> list[AccessKey]:
    """In the order of their ids, from the first one behind `after` on."""
    rows = AccessKey.objects.select_related("access").filter(account_id=account_id, access_key_id__gt=after)
    return list(rows.order_by("access_key_id")[:limit])


def found_account(text: str) -> Account | None:
    """By id, else by name."""
    return account_of(text) or Account.objects.filter(name=text).first()


def account_named(text: str) -> Account:
    """The account that an operator named, by id, else by name. Raises CommandError."""
    account = found_account(text)
    if account is None:
        raise CommandError(f"there is no account {text!r}; see ./penstock accounts list")
    return account
