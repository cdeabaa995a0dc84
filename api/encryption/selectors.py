"""Reading encryption keys, always as one account."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.db import connection

from api.encryption import limits
from api.encryption.models import EncryptionKey, EncryptionKeyUse, KeyState
from api.metadata.rows import ENCRYPTION_KEYS_OF, encryption_key_record
from api.settings.environment import environment
from frontend.authz.request_context import AWS_PARTITION
from frontend.metadata.records import EncryptionKeyRecord

_ALIAS = "alias/"


def keys_of(account_id: str, after: str, limit: int) -> list[EncryptionKey]:
    """By name, from the first one behind `after` on."""
    rows = EncryptionKey.objects.filter(account_id=account_id, name__gt=after).exclude(state=KeyState.DELETED)
    return list(rows.prefetch_related("versions").order_by("name")[:limit])


def encryption_key_of(account_id: str, key_id: str) -> EncryptionKey | None:
    found = key_uuid(key_id)
    if found is None:
        return None
    rows = EncryptionKey.objects.filter(account_id=account_id, pk=found)
    return rows.exclude(state=KeyState.DELETED).first()


def uses_of(key: EncryptionKey) -> list[EncryptionKeyUse]:
    """The newest hour first."""
    return list(key.uses.order_by("-hour")[: limits.USE_HOURS_SHOWN_MAX])


def named_key(account_id: str, named: str) -> EncryptionKey | None:
    """What a KmsMasterKeyId names: a key id, `alias/` and a name, or the ARN of either, in this account and region."""
    kind, _, rest = named.partition(":kms:")
    if rest:
        region, _, rest = rest.partition(":")
        owner, _, named = rest.partition(":")
        if (kind, region, owner) != (f"arn:{AWS_PARTITION}", environment().region, account_id):
            return None
        if not named.startswith((_ALIAS, "key/")):
            return None
        named = named.removeprefix("key/")
    if not named.startswith(_ALIAS):
        return encryption_key_of(account_id, named.lower())
    rows = EncryptionKey.objects.filter(account_id=account_id, name=named.removeprefix(_ALIAS))
    return rows.exclude(state=KeyState.DELETED).first()


def records_of(key_ids: Sequence[str]) -> list[EncryptionKeyRecord | None]:
    """As the metadata service tells them to front ends, in this order; None for one that is gone."""
    if not key_ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(ENCRYPTION_KEYS_OF, (list(key_ids),))
        rows: list[Any] = cursor.fetchall()
    found = {one.key_id: one for one in map(encryption_key_record, rows)}
    return [found.get(key_id) for key_id in key_ids]


def existing_of(key_ids: Sequence[str]) -> list[str]:
    """Those that are not deleted, in the order given."""
    rows = EncryptionKey.objects.filter(pk__in=key_ids).exclude(state=KeyState.DELETED)
    live = {str(pk) for pk in rows.values_list("pk", flat=True)}
    return [key_id for key_id in key_ids if key_id in live]


def key_uuid(key_id: str) -> uuid.UUID | None:
    """None for any other spelling of the id than the one in ARNs: a policy that denies the key denies that one."""
    try:
        found = uuid.UUID(key_id)
    except ValueError:
        return None
    return found if str(found) == key_id else None
