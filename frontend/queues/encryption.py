"""The encryption keys of a customer, as one queue uses them.

A queue whose KmsMasterKeyId names a key of its account seals under keys that are derived from the queue's data key and
the newest version of that key, one for every KmsDataKeyReusePeriodSeconds (crypto/keyring.py). A message says in its
envelope which version that was, so it opens after a rotation, after the queue has got another key, and in every queue
that it comes to as a dead letter.

    enabled             seals and opens
    disabled            neither: KmsDisabled
    pending deletion    neither: KmsInvalidState
    gone                neither: KmsNotFound; nothing that it sealed opens

Within an account the right on the queue is enough. A caller of another account must be among those that the key is
shared with, else KmsAccessDenied. Pure: the clock is a parameter.

Surface: other planes may import this module.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from frontend.crypto.envelope import DataKey, EnvelopeError, KeyNames, derived_data_key
from frontend.crypto.keyring import Keyring, derived_key
from frontend.errors import RequestError
from frontend.limits import DERIVED_KEYS_KEPT_MAX
from frontend.metadata.records import EncryptionKeyRecord, EncryptionKeyState, QueueRecord
from frontend.queues.key_uses import EncryptionKeyUses

KMS_KEY = "KmsMasterKeyId"
REUSE_PERIOD = "KmsDataKeyReusePeriodSeconds"
REUSE_PERIOD_S_DEFAULT = 300
# Names the key that every account has: the one that its queues seal under where they name none.
MANAGED_KEY = "alias/aws/sqs"
_MANAGED_ARN_END = ":" + MANAGED_KEY


class KeyUnusable(EnvelopeError):
    """A message under a key that is there, and may not be used now."""

    def __init__(self, refusal: RequestError, key: EncryptionKeyRecord) -> None:
        super().__init__(refusal.message)
        self._refusal = refusal
        self._key = key

    def refusal_for(self, account_id: str) -> RequestError:
        """What a receiver of this account is told: id and state only of a key that it may use."""
        return self._refusal if _may_use(self._key, account_id) else _not_shared()


class QueueEncryption:
    """What the messages of one queue are sealed under besides its data key. Holds no unwrapped encryption key."""

    __slots__ = ("_by_version", "_kept", "_keyring", "_period_s", "_record", "_uses", "current", "is_needed")

    def __init__(
        self,
        record: QueueRecord,
        keyring: Keyring,
        keys: Sequence[EncryptionKeyRecord],
        uses: EncryptionKeyUses | None = None,
    ) -> None:
        # One of another account cannot be meant, whatever the row of the queue says.
        own = [key for key in keys if key.account_id == record.account_id]
        self._record = record
        self._keyring = keyring
        self._uses = uses
        self._by_version = {version.version: (key, version.wrapped) for key in own for version in key.versions}
        self._period_s = int(record.attributes.get(REUSE_PERIOD, REUSE_PERIOD_S_DEFAULT))
        self._kept: dict[tuple[bytes, KeyNames], DataKey] = {}
        # None: what its KmsMasterKeyId names is not there.
        self.current = next((key for key in own if key.key_id == record.encryption_key), None)
        # The queue names a key of the customer: nothing is sealed without it.
        self.is_needed = names_customer_key(record.attributes.get(KMS_KEY, ""))

    def require(self, account_id: str) -> None:
        """Raises RequestError where a caller of this account cannot send to the queue and receive from it."""
        key = self.current
        if not self.is_needed:
            return
        if key is not None and not _may_use(key, account_id):
            # First: the state of the key is not told to a caller that may not use it.
            raise _not_shared()
        refusal = _refusal_of(key)
        if refusal is not None:
            raise refusal

    def sealing_names(self, data_key_version: int, now_s: float) -> KeyNames | None:
        """Which key seals now; None: the data key itself. Raises RequestError."""
        if not self.is_needed:
            return None
        refusal = _refusal_of(self.current)
        if refusal is not None:
            raise refusal
        assert self.current is not None
        since_s = int(now_s) - int(now_s) % self._period_s
        return KeyNames(data_key_version, self.current.versions[-1].version, since_s)

    def key_of(self, names: KeyNames, owner_uuid: bytes, wrapped: bytes) -> DataKey | None:
        """The derived key of a data key of the queue `owner_uuid`; None where the encryption key is gone. Raises
        KeyUnusable."""
        found = self._by_version.get(names.encryption_version)
        if found is None:
            return None
        key, version_wrapped = found
        refusal = _refusal_of(key)
        if refusal is not None:
            raise KeyUnusable(refusal, key)
        kept = self._kept.get((owner_uuid, names))
        if kept is None:
            kept = self._derive(names, key, version_wrapped, owner_uuid, wrapped)
            if len(self._kept) >= DERIVED_KEYS_KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[owner_uuid, names] = kept
        return kept

    def note(self, names: KeyNames, sealed: int = 0, opened: int = 0) -> None:
        """Messages that were sealed or opened under a derived key."""
        if self._uses is not None and names.encryption_version in self._by_version:
            self._uses.note(self._by_version[names.encryption_version][0].key_id, sealed, opened)

    def _derive(
        self, names: KeyNames, key: EncryptionKeyRecord, version_wrapped: bytes, owner_uuid: bytes, wrapped: bytes
    ) -> DataKey:
        record, ring = self._record, self._keyring
        owner = (record.account_id, record.account_key_wrapped)
        data_key = ring.unwrap_data_key(*owner, owner_uuid, names.version, wrapped)
        key_id = uuid.UUID(key.key_id).bytes
        encryption_key = ring.unwrap_encryption_key(*owner, key_id, names.encryption_version, version_wrapped)
        derived = derived_key(encryption_key, data_key, names.since_s)
        return derived_data_key(names, derived, record.account_id, owner_uuid)


def encryption_of(
    record: QueueRecord, keyring: Keyring, keys: Sequence[EncryptionKeyRecord], uses: EncryptionKeyUses | None = None
) -> QueueEncryption | None:
    """None: no message of this queue has to do with an encryption key of the customer."""
    if not record.encryption_keys and not names_customer_key(record.attributes.get(KMS_KEY, "")):
        return None
    return QueueEncryption(record, keyring, keys, uses)


def names_customer_key(named: str) -> bool:
    """Of a KmsMasterKeyId: does it name a key that the customer made?"""
    return bool(named) and named != MANAGED_KEY and not named.endswith(_MANAGED_ARN_END)


def _may_use(key: EncryptionKeyRecord, account_id: str) -> bool:
    return account_id == key.account_id or account_id in key.shared_accounts


def _not_shared() -> RequestError:
    return RequestError("KmsAccessDenied", "The encryption key of the queue is not shared with the account that asks.")


def _refusal_of(key: EncryptionKeyRecord | None) -> RequestError | None:
    if key is None:
        return RequestError("KmsNotFound", "The encryption key that the queue names does not exist.")
    if key.state == EncryptionKeyState.ENABLED:
        return None
    if key.state == EncryptionKeyState.DISABLED:
        return RequestError("KmsDisabled", f"The encryption key {key.key_id} is disabled.")
    return RequestError("KmsInvalidState", f"The encryption key {key.key_id} is pending deletion.")
