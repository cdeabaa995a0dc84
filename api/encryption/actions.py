"""Every write to encryption keys: one call = one transaction = rows + audit + version + announcement.

Lock order: account, then its keys. A front end hears of a key by a record of its own, so that one announcement is
enough however many queues name the key.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from django.db import connection, transaction
from rest_framework.exceptions import APIException

from api import clock
from api.accounts.models import Account
from api.audit.actions import LIFECYCLE, record
from api.changes import announce, next_encryption_key_version, next_version
from api.encryption import limits
from api.encryption.models import EncryptionKey, EncryptionKeyUse, EncryptionKeyVersion, KeyState
from api.encryption.selectors import key_uuid
from api.secrets import keyring
from frontend.authn.principal import Principal
from frontend.metadata.records import RecordKind

_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ACCOUNT_ID = re.compile(r"[0-9]{12}", re.ASCII)


class EncryptionKeyProblem(APIException):
    """`code` is the last part of the problem's type."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status_code = status
        self.default_code = code


class KeyChange(NamedTuple):
    """None: stays as it is."""

    description: str | None = None
    shared_accounts: Sequence[str] | None = None


@transaction.atomic
def create_encryption_key(
    actor: Principal, account_id: str, name: str, description: str = "", shared_accounts: Sequence[str] = ()
) -> EncryptionKey:
    """Raises EncryptionKeyProblem."""
    if len(name) > limits.NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        longest = limits.NAME_CHARACTERS_MAX
        raise _invalid(f"A name of a key has 1 to {longest} letters, digits, hyphens and underscores.")
    account = Account.objects.select_for_update().get(id=account_id)
    live = EncryptionKey.objects.filter(account=account).exclude(state=KeyState.DELETED)
    if live.filter(name=name).exists():
        raise EncryptionKeyProblem(409, "encryption-key-exists", "The account has an encryption key of this name.")
    if live.count() >= limits.KEYS_PER_ACCOUNT_MAX:
        raise EncryptionKeyProblem(
            403, "over-limit", f"An account has at most {limits.KEYS_PER_ACCOUNT_MAX} encryption keys."
        )
    key = EncryptionKey.objects.create(
        account=account,
        name=name,
        description=_checked_description(description),
        shared_accounts=_checked_accounts(account_id, shared_accounts),
        created_at=clock.now(),
        version=next_version(),
    )
    number = _add_version(account, key)
    details = {"name": name, "key_version": number, "shared_accounts": key.shared_accounts}
    record(actor, account_id, "encryption_key.create", _subject(key), **details)
    announce(RecordKind.ENCRYPTION_KEY, str(key.pk), key.version)
    return key


@transaction.atomic
def update_encryption_key(actor: Principal, account_id: str, key_id: str, change: KeyChange) -> EncryptionKey:
    """Raises EncryptionKeyProblem."""
    key = _locked(account_id, key_id)
    before = {"description": key.description, "shared_accounts": key.shared_accounts}
    if change.description is not None:
        key.description = _checked_description(change.description)
    if change.shared_accounts is not None:
        key.shared_accounts = _checked_accounts(account_id, change.shared_accounts)
    after = {"description": key.description, "shared_accounts": key.shared_accounts}
    if after != before:
        _save(actor, key, "encryption_key.update", before=before, after=after)
    return key


@transaction.atomic
def enable_encryption_key(actor: Principal, account_id: str, key_id: str) -> EncryptionKey:
    """Raises EncryptionKeyProblem."""
    return _set_state(actor, _usable(account_id, key_id), KeyState.ENABLED, "encryption_key.enable")


@transaction.atomic
def disable_encryption_key(actor: Principal, account_id: str, key_id: str) -> EncryptionKey:
    """From now on its queues neither take nor give messages. Nothing is lost. Raises EncryptionKeyProblem."""
    return _set_state(actor, _usable(account_id, key_id), KeyState.DISABLED, "encryption_key.disable")


@transaction.atomic
def rotate_encryption_key(actor: Principal, account_id: str, key_id: str) -> EncryptionKey:
    """A new version seals from now on. No stored message is written again. Raises EncryptionKeyProblem."""
    key = _usable(account_id, key_id)
    if key.versions.count() >= limits.VERSIONS_PER_KEY_MAX:
        most = limits.VERSIONS_PER_KEY_MAX
        raise EncryptionKeyProblem(403, "over-limit", f"A key has at most {most} versions: give the queue another key.")
    number = _add_version(key.account, key)
    key.rotated_at = clock.now()
    _save(actor, key, "encryption_key.rotate", key_version=number)
    return key


@transaction.atomic
def schedule_deletion(
    actor: Principal, account_id: str, key_id: str, days: int = limits.DELETION_DAYS_DEFAULT
) -> EncryptionKey:
    """Its queues neither take nor give messages from now on; when the days are over, nothing that it sealed opens.
    Raises EncryptionKeyProblem."""
    if not limits.DELETION_DAYS_MIN <= days <= limits.DELETION_DAYS_MAX:
        raise _invalid(f"A key is deleted after {limits.DELETION_DAYS_MIN} to {limits.DELETION_DAYS_MAX} days.")
    key = _usable(account_id, key_id)
    key.state = KeyState.PENDING_DELETION
    key.deletes_at = clock.now() + timedelta(days=days)
    _save(actor, key, "encryption_key.schedule_deletion", deletes_at=str(key.deletes_at))
    return key


@transaction.atomic
def cancel_deletion(actor: Principal, account_id: str, key_id: str) -> EncryptionKey:
    """The key is disabled then, and can be enabled. Raises EncryptionKeyProblem."""
    key = _locked(account_id, key_id)
    if key.state != KeyState.PENDING_DELETION:
        raise _wrong_state("The deletion of the key is not scheduled.")
    key.state, key.deletes_at = KeyState.DISABLED, None
    _save(actor, key, "encryption_key.cancel_deletion")
    return key


def delete_due_keys() -> int:
    """Ends the keys whose waiting period is over; how many. Safe to run twice, and beside itself."""
    due = EncryptionKey.objects.filter(state=KeyState.PENDING_DELETION, deletes_at__lte=clock.now())
    found = list(due.order_by("deletes_at").values_list("account_id", "pk")[: limits.DELETED_AT_ONCE_MAX])
    return sum(_delete_if_due(account_id, key_pk) for account_id, key_pk in found)


@transaction.atomic
def shred_keys_of(actor: Principal, account_id: str) -> int:
    """Ends every encryption key of an account that is closed for good; how many. The account's row is locked."""
    keys = EncryptionKey.objects.select_for_update().filter(account_id=account_id).exclude(state=KeyState.DELETED)
    found = list(keys)
    for key in found:
        _shred(actor, key)
    return len(found)


# In one statement: front ends tell at the same time. Keys that are not there are left out.
_NOTE_USES = """
INSERT INTO encryption_key_use (key_id, hour, sealed, opened, last_told_at)
SELECT k.id, date_trunc('hour', clock_timestamp(), 'UTC'), used.sealed, used.opened, clock_timestamp()
  FROM (SELECT unnest(%s::uuid[]) AS id, unnest(%s::bigint[]) AS sealed, unnest(%s::bigint[]) AS opened) used
  JOIN encryption_key k USING (id)
 ORDER BY k.id
    ON CONFLICT (key_id, hour) DO UPDATE
       SET sealed = encryption_key_use.sealed + excluded.sealed, opened = encryption_key_use.opened + excluded.opened,
           last_told_at = excluded.last_told_at
"""


def note_uses(uses: Mapping[uuid.UUID, tuple[int, int]]) -> None:
    """(sealed, opened) messages by key, as a front end counted them since it told last."""
    sealed, opened = [count[0] for count in uses.values()], [count[1] for count in uses.values()]
    with connection.cursor() as cursor:
        cursor.execute(_NOTE_USES, (list(uses), sealed, opened))


def forget_old_uses() -> int:
    """How many rows went."""
    long_ago = clock.now() - timedelta(days=limits.USE_DAYS_KEPT)
    return EncryptionKeyUse.objects.filter(hour__lt=long_ago).delete()[0]


# --- rows ---


@transaction.atomic
def _delete_if_due(account_id: str, key_pk: uuid.UUID) -> bool:
    """False where another worker was first, or the deletion was cancelled."""
    key = _locked_live(account_id, key_pk)
    if key is None or key.state != KeyState.PENDING_DELETION or key.deletes_at is None or key.deletes_at > clock.now():
        return False
    _shred(LIFECYCLE, key)
    return True


def _shred(actor: Principal, key: EncryptionKey) -> None:
    """Without its versions no message under the key opens, wherever it lies: granted data keys do not help."""
    versions = key.versions.count()
    key.versions.all().delete()
    key.state, key.deletes_at = KeyState.DELETED, None
    _save(actor, key, "encryption_key.delete", versions=versions)


def _add_version(account: Account, key: EncryptionKey) -> int:
    number = next_encryption_key_version()
    wrapped = keyring().new_encryption_key(account.pk, bytes(account.account_key_wrapped), key.pk.bytes, number)
    EncryptionKeyVersion.objects.create(key=key, number=number, wrapped=wrapped, created_at=clock.now())
    return number


def _set_state(actor: Principal, key: EncryptionKey, state: KeyState, action: str) -> EncryptionKey:
    if key.state != state:
        key.state = state
        _save(actor, key, action)
    return key


def _usable(account_id: str, key_id: str) -> EncryptionKey:
    key = _locked(account_id, key_id)
    if key.state == KeyState.PENDING_DELETION:
        raise _wrong_state("The key is pending deletion: cancel that first.")
    return key


def _locked(account_id: str, key_id: str) -> EncryptionKey:
    """The account's row first. Raises EncryptionKeyProblem."""
    key_pk = key_uuid(key_id)
    found = None if key_pk is None else _locked_live(account_id, key_pk)
    if found is None:
        raise EncryptionKeyProblem(404, "not-found", "There is no such encryption key.")
    return found


def _locked_live(account_id: str, key_pk: uuid.UUID) -> EncryptionKey | None:
    Account.objects.select_for_update().get(id=account_id)
    rows = EncryptionKey.objects.select_for_update(of=("self",)).select_related("account")
    return rows.filter(account_id=account_id, pk=key_pk).exclude(state=KeyState.DELETED).first()


def _save(actor: Principal, key: EncryptionKey, action: str, **details: object) -> None:
    key.version = next_version()
    key.save()
    record(actor, key.account_id, action, _subject(key), name=key.name, **details)
    announce(RecordKind.ENCRYPTION_KEY, str(key.pk), key.version)


def _subject(key: EncryptionKey) -> str:
    return f"encryption_key:{key.pk}"


def _checked_description(text: str) -> str:
    if len(text) > limits.DESCRIPTION_CHARACTERS_MAX or not text.isprintable():
        raise _invalid(f"A description has at most {limits.DESCRIPTION_CHARACTERS_MAX} printable characters.")
    return text


def _checked_accounts(account_id: str, accounts: Sequence[str]) -> list[str]:
    """Whether they exist is not looked up: that would tell who is a customer."""
    if len(accounts) > limits.SHARED_ACCOUNTS_MAX:
        raise _invalid(f"A key is shared with at most {limits.SHARED_ACCOUNTS_MAX} accounts.")
    if any(not _ACCOUNT_ID.fullmatch(one) for one in accounts):
        raise _invalid("shared_accounts holds ids of accounts: twelve digits each.")
    return sorted(set(accounts) - {account_id})


def _invalid(detail: str) -> EncryptionKeyProblem:
    return EncryptionKeyProblem(400, "invalid-request", detail)


def _wrong_state(detail: str) -> EncryptionKeyProblem:
    return EncryptionKeyProblem(409, "encryption-key-state", detail)
