"""Every write to accounts and access keys. Lock order: account, then its keys."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from api import limits
from api.accounts.models import AccessKey, Account
from api.audit.actions import record
from api.changes import announce, next_version
from api.secrets import keyring, pepper
from frontend.authn.principal import Principal
from frontend.authn.tokens import hash_bearer_token, mint_key
from frontend.metadata.records import RecordKind


class AccountError(Exception):
    """An operating error of this app; the text is for the caller."""


class NewKey(NamedTuple):
    """The only moment at which the two secrets are known."""

    key: AccessKey
    secret_access_key: str
    bearer_token: str


def get_or_create_account(actor: Principal, name: str) -> Account:
    """The account of this name, made if absent. Two callers at once get the same one."""
    if not 1 <= len(name) <= limits.ACCOUNT_NAME_CHARACTERS_MAX or not name.isprintable():
        raise AccountError(f"an account name has 1 to {limits.ACCOUNT_NAME_CHARACTERS_MAX} printable characters")
    for _ in range(limits.ACCOUNT_ID_ATTEMPTS_MAX):
        found = Account.objects.filter(name=name).first()
        if found is not None:
            return found
        if is_like_an_id(name):
            raise AccountError(f"there is no account {name!r}, and a new one is not named like an id of accounts")
        try:
            return _create_account(actor, name)
        except IntegrityError:
            continue  # somebody else took the name, or the id was taken
    raise AccountError("no free account id was found")


def is_like_an_id(name: str) -> bool:
    """Commands take an account by id or by name: a name that could be an id would hide what is meant."""
    return len(name) == limits.ACCOUNT_ID_DIGITS and name.isascii() and name.isdigit()


@transaction.atomic
def _create_account(actor: Principal, name: str) -> Account:
    account_id = str(secrets.randbelow(9 * 10 ** (limits.ACCOUNT_ID_DIGITS - 1)) + 10 ** (limits.ACCOUNT_ID_DIGITS - 1))
    account = Account.objects.create(
        id=account_id,
        name=name,
        account_key_wrapped=keyring().new_account_key(account_id),
        created_at=timezone.now(),
        version=next_version(),
    )
    record(actor, account_id, "account.create", f"account:{account_id}", name=name)
    announce(RecordKind.ACCOUNT, account_id, account.version)
    return account


@transaction.atomic
def set_account_active(actor: Principal, account_id: str, active: bool) -> Account:
    """Switches an account off or on; its keys change with it, because a key's record says whether it may be used."""
    account = Account.objects.select_for_update().get(id=account_id)
    account.active = active
    account.version = next_version()
    account.save(update_fields=["active", "version"])
    for key in AccessKey.objects.select_for_update().filter(account=account).order_by("access_key_id"):
        key.version = next_version()
        key.save(update_fields=["version"])
        announce(RecordKind.KEY, key.access_key_id, key.version)
    record(actor, account_id, "account.activate" if active else "account.deactivate", f"account:{account_id}")
    announce(RecordKind.ACCOUNT, account_id, account.version)
    return account


@transaction.atomic
def set_auto_create(actor: Principal, account_id: str, allowed: bool) -> Account:
    """May a send to a queue that does not exist make it?"""
    account = Account.objects.select_for_update().get(id=account_id)
    if account.auto_create_queues != allowed:
        before = {"auto_create_queues": account.auto_create_queues}
        account.auto_create_queues = allowed
        account.version = next_version()
        account.save(update_fields=["auto_create_queues", "version"])
        record(
            actor, account_id, "account.configure", f"account:{account_id}", auto_create_queues=allowed, before=before
        )
        announce(RecordKind.ACCOUNT, account_id, account.version)
    return account


@transaction.atomic
def set_deletion_rules(
    actor: Principal, account_id: str, protection: bool | None = None, grace_days: int | None = None
) -> Account:
    """Whether queues of the account can be deleted, and for how long they are kept then. None: as it is. Queues that
    were deleted before stay as long as they were told to. Raises AccountError."""
    if grace_days is not None and not 0 <= grace_days <= limits.DELETION_GRACE_DAYS_MAX:
        raise AccountError(f"deleted queues are kept for 0 to {limits.DELETION_GRACE_DAYS_MAX} days")
    account = Account.objects.select_for_update().get(id=account_id)
    wanted = {"deletion_protection": protection, "deletion_grace_days": grace_days}
    changed = {name: value for name, value in wanted.items() if value not in (None, getattr(account, name))}
    if changed:
        before = {name: getattr(account, name) for name in changed}
        for name, value in changed.items():
            setattr(account, name, value)
        account.save(update_fields=list(changed))  # front ends do not ask for it: no version
        record(actor, account_id, "account.configure", f"account:{account_id}", **changed, before=before)
    return account


def check_key_name(name: str) -> None:
    """Raises AccountError."""
    if not 1 <= len(name) <= limits.KEY_NAME_CHARACTERS_MAX or not name.isprintable():
        raise AccountError(f"a key name has 1 to {limits.KEY_NAME_CHARACTERS_MAX} printable characters")


@transaction.atomic
def create_key(actor: Principal, account_id: str, name: str, expires_at: datetime | None = None) -> NewKey:
    check_key_name(name)
    account = Account.objects.select_for_update().get(id=account_id)
    if AccessKey.objects.filter(account=account).count() >= limits.KEYS_PER_ACCOUNT_MAX:
        raise AccountError(f"an account has at most {limits.KEYS_PER_ACCOUNT_MAX} keys")
    minted = mint_key()
    key = AccessKey.objects.create(
        access_key_id=minted.access_key_id,
        account=account,
        name=name,
        secret_sealed=keyring().seal_secret(account_id, minted.access_key_id, minted.secret_access_key),
        bearer_hash=hash_bearer_token(account_id, minted.bearer_token, pepper()),
        created_at=timezone.now(),
        expires_at=expires_at,
        version=next_version(),
    )
    record(actor, account_id, "key.create", f"key:{key.access_key_id}", name=name)
    announce(RecordKind.KEY, key.access_key_id, key.version)
    return NewKey(key, minted.secret_access_key, minted.bearer_token)


@transaction.atomic
def delete_key(actor: Principal, account_id: str, access_key_id: str) -> bool:
    """False where the account has no such key."""
    key = AccessKey.objects.select_for_update().filter(account_id=account_id, access_key_id=access_key_id).first()
    if key is None:
        return False
    version = next_version()
    key.delete()
    record(actor, account_id, "key.delete", f"key:{access_key_id}", name=key.name)
    announce(RecordKind.KEY, access_key_id, version)
    return True


# Rows are locked in one order: two front ends do not wait for each other in a circle.
_NOTE_USES = """
WITH used AS (
     SELECT unnest(%s::text[]) AS id, to_timestamp(unnest(%s::bigint[]) / 1000.0) AS at),
   locked AS (
     SELECT access_key_id AS id FROM access_key WHERE access_key_id IN (SELECT id FROM used)
      ORDER BY access_key_id FOR NO KEY UPDATE)
UPDATE access_key SET last_used_at = least(used.at, clock_timestamp())
  FROM used JOIN locked USING (id)
 WHERE access_key_id = used.id AND (last_used_at IS NULL OR last_used_at < least(used.at, clock_timestamp()))
"""


def note_key_uses(uses: Mapping[str, int]) -> None:
    """`last_used_at` of keys as front ends saw them used, in Unix ms; no version, no announcement."""
    with connection.cursor() as cursor:
        cursor.execute(_NOTE_USES, (list(uses), list(uses.values())))


def note_key_use(access_key_id: str) -> None:
    """`last_used_at` of a management call, at most once per KEY_USE_RECORDED_EVERY_S; no version, no announcement."""
    now = timezone.now()
    due = now - timedelta(seconds=limits.KEY_USE_RECORDED_EVERY_S)
    rows = AccessKey.objects.filter(access_key_id=access_key_id)
    if not rows.filter(last_used_at__gt=due).exists():
        rows.update(last_used_at=now)
