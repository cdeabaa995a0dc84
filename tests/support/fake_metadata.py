"""Records of accounts, keys and queues for tests of the front end, in the place of the control plane's."""

from __future__ import annotations

from collections.abc import Sequence

from frontend.crypto.keyring import Keyring
from frontend.limits import QUEUE_NAME_CHARS_MAX
from frontend.metadata.interface import MISS, MetadataUnavailable, Missing
from frontend.metadata.records import (
    AccountRecord,
    DataKeyGrantRecord,
    DataKeyRecord,
    EncryptionKeyRecord,
    KeyRecord,
    PartitionRecord,
    QueueRecord,
)


class FakeMetadata:
    """Records by key. `cold` makes the cache miss, so that the asynchronous way is taken; `down` raises."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyRecord] = {}
        self.queues: dict[tuple[str, str], QueueRecord] = {}
        self.accounts: dict[str, AccountRecord] = {}
        self.encryption_keys: dict[str, EncryptionKeyRecord] = {}
        self.cold = False
        self.down = False
        self.lookups: list[tuple[str, ...]] = []

    def cached_key(self, access_key_id: str) -> KeyRecord | Missing | None:
        return MISS if self.cold or self.down else self.keys.get(access_key_id)

    def cached_queue(self, account_id: str, name: str) -> QueueRecord | Missing | None:
        return MISS if self.cold or self.down else self.queues.get((account_id, name))

    def cached_account(self, account_id: str) -> AccountRecord | Missing | None:
        return MISS if self.cold or self.down else self.accounts.get(account_id)

    def cached_encryption_key(self, key_id: str) -> EncryptionKeyRecord | Missing | None:
        return MISS if self.cold or self.down else self.encryption_keys.get(key_id)

    async def get_encryption_key(self, account_id: str, key_id: str) -> EncryptionKeyRecord | None:
        self._look("encryption key", key_id)
        return self.encryption_keys.get(key_id)

    async def refresh_encryption_key(self, account_id: str, key_id: str) -> EncryptionKeyRecord | None:
        self._look("refresh", key_id)
        return self.encryption_keys.get(key_id)

    async def get_key(self, access_key_id: str) -> KeyRecord | None:
        self._look("key", access_key_id)
        return self.keys.get(access_key_id)

    async def get_queue(self, account_id: str, name: str) -> QueueRecord | None:
        self._look("queue", account_id, name)
        return self.queues.get((account_id, name))

    async def get_account(self, account_id: str) -> AccountRecord | None:
        self._look("account", account_id)
        return self.accounts.get(account_id)

    async def refresh_queue(self, account_id: str, name: str) -> QueueRecord | None:
        self._look("refresh", account_id, name)
        return self.queues.get((account_id, name))

    async def look_up_queue(self, asker: str, account_id: str, name: str) -> QueueRecord | None:
        self._look("look up", asker, account_id, name)
        return self.queues.get((account_id, name))

    async def repeat_look_up(self, asker: str, account_id: str, name: str) -> None:
        self._look("look up", asker, account_id, name)

    def _look(self, *what: str) -> None:
        if self.down:
            raise MetadataUnavailable("down")
        assert all(len(word) <= QUEUE_NAME_CHARS_MAX + 1 for word in what), "a caller's text is looked up unbounded"
        self.lookups.append(what)


def queue_record(
    keyring: Keyring,
    account_id: str,
    name: str,
    partitions: Sequence[int] = (1,),
    attributes: dict[str, str] | None = None,
    state: str = "active",
    key_grants: Sequence[DataKeyGrantRecord] = (),
    layout: Sequence[PartitionRecord] = (),
) -> QueueRecord:
    """A queue with real, wrapped keys; its uuid follows from its name."""
    queue_uuid = f"{account_id}{name}".encode().ljust(16, b".")[-16:]
    account_key = keyring.new_account_key(account_id)
    data_keys = [DataKeyRecord(1, keyring.new_data_key(account_id, account_key, queue_uuid, 1))]
    return QueueRecord(
        account_id,
        name,
        queue_uuid,
        list(partitions),
        state,
        attributes or {},
        name.endswith(".fifo"),
        account_key,
        data_keys,
        1_700_000_000_000,
        1_700_000_001_000,
        1,
        list(key_grants),
        list(layout),
    )
