"""Queues by their addresses: a metadata record made ready for the message path, rebuilt when the record changes.

A resolved queue holds what every message would otherwise compute again: parsed attributes, opened data keys, the owner
bytes of receipts.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from frontend.authz import NO_POLICY, PolicyKind, load_policy
from frontend.crypto.envelope import Content, DataKey, KeyNames, data_key
from frontend.crypto.keyring import Keyring
from frontend.crypto.receipts import receipt_owner
from frontend.errors import queue_does_not_exist, unavailable
from frontend.limits import LOST_KEYS_KEPT_MAX, MESSAGE_BYTES_MAX, QUEUES_RESOLVED_MAX
from frontend.metadata.interface import MISS, MetadataService, MetadataUnavailable
from frontend.metadata.records import EncryptionKeyRecord, QueueRecord
from frontend.queues.encryption import encryption_of
from frontend.queues.extensions import ACKS, DEDUPLICATION_WINDOW, UNCOUNTED_RELEASE, acks_of
from frontend.queues.fifo import FifoRules, sequence_number
from frontend.queues.key_uses import DataKeyUses, EncryptionKeyUses
from frontend.queues.names import FIFO_SUFFIX, Address
from frontend.queues.priority import PRIORITY, level_of, levels_of
from frontend.routing.partitioner import Routes, routes_of
from storage_nodes.model import Acks


class SendRules(NamedTuple):
    """What a queue asks of the messages that are sent to it.

    delay_ms   of a message that names none
    fifo       its rules if it is a FIFO queue
    dedups     a standard queue that drops what repeats a deduplication id (`Penstock.DeduplicationWindow`)
    acks       when the send of a message is answered that says nothing of it (`Penstock.Acks`)
    levels     how many priority levels a message may choose from; 0 = it has none
    """

    message_bytes_max: int = MESSAGE_BYTES_MAX
    delay_ms: int = 0
    fifo: FifoRules | None = None
    dedups: bool = False
    acks: Acks = Acks.QUORUM
    levels: int = 0

    @classmethod
    def of(cls, attributes: Mapping[str, str], fifo: FifoRules | None) -> SendRules:
        return cls(
            int(attributes.get("MaximumMessageSize", str(MESSAGE_BYTES_MAX))),
            1000 * int(attributes.get("DelaySeconds", "0")),
            fifo,
            fifo is None and DEDUPLICATION_WINDOW in attributes,
            acks_of(attributes.get(ACKS)),
            levels_of(attributes),
        )


def rules_of_new_queue(name: str) -> SendRules:
    """Of one that is made with the default attributes."""
    return SendRules.of({}, FifoRules.of({}) if name.endswith(FIFO_SUFFIX) else None)


class GrantedKey(NamedTuple):
    """Opens the dead letters of another queue of the account."""

    key: DataKey
    owner_name: str


class ResolvedQueue:
    """One queue as the message path sees it."""

    __slots__ = (
        "_data_key_uses",
        "_granted",
        "_keyring",
        "_keys",
        "_lost_keys",
        "_sealing_key",
        "encryption",
        "encryption_keys",
        "fifo",
        "is_restricted",
        "numbers_messages",
        "owner",
        "partitions",
        "policy",
        "rate_name",
        "record",
        "routes",
        "send_rules",
        "visibility_ms",
        "wait_ms",
        "zero_releases",
    )

    def __init__(
        self,
        record: QueueRecord,
        keyring: Keyring,
        encryption_keys: Sequence[EncryptionKeyRecord | None] = (),
        uses: EncryptionKeyUses | None = None,
        data_key_uses: DataKeyUses | None = None,
    ) -> None:
        """`encryption_keys` are those that the record names, in its order; None is one that does not exist. What is
        sealed is counted by `uses` and `data_key_uses`."""
        assert record.partitions and record.data_keys
        attributes = record.attributes
        self.record = record
        policy_text = attributes.get("Policy")
        self.policy = load_policy(policy_text, PolicyKind.RESOURCE, record.name) if policy_text else NO_POLICY
        self.partitions = tuple(record.partitions)
        # None: it has one partition, and nothing has to be decided.
        self.routes: Routes | None = routes_of(self.partitions, record.layout)
        self.visibility_ms = 1000 * int(attributes.get("VisibilityTimeout", "30"))
        self.wait_ms = 1000 * int(attributes.get("ReceiveMessageWaitTimeSeconds", "0"))
        self.zero_releases = attributes.get(UNCOUNTED_RELEASE) == "true"
        # None: a standard queue.
        self.fifo = FifoRules.of(attributes) if record.fifo else None
        if self.fifo is not None and self.routes is not None:
            # The scope of deduplication is that of the partitions: it changes with them.
            self.fifo = self.fifo._replace(per_group=self.routes.per_group)
        self.send_rules = SendRules.of(attributes, self.fifo)
        # Messages may have ids made from where they lie (frontend/crypto/message_ids.py).
        self.numbers_messages = record.fifo or self.send_rules.dedups
        self.owner = receipt_owner(record.account_id, record.queue_uuid)
        self.rate_name = f"{record.account_id}/{record.name}"
        self._keyring = keyring
        self._data_key_uses = data_key_uses
        self._keys: dict[int, DataKey] = {}
        self._granted: dict[KeyNames, list[GrantedKey]] = {}
        # (data key version, encryption key version) without a key when this view was read past every cache. A change
        # that brings one makes another view.
        self._lost_keys: set[tuple[int, int]] = set()
        self.encryption_keys = tuple(encryption_keys)
        # None: no encryption key of the customer has to do with its messages.
        self.encryption = encryption_of(record, keyring, [key for key in encryption_keys if key is not None], uses)
        # Something besides policies may refuse a request about it: only then they look for that.
        self.is_restricted = self.encryption is not None or self.is_held
        self._sealing_key = self._open_key(record.data_keys[-1].version)

    @property
    def address(self) -> Address:
        return Address(self.record.account_id, self.record.name)

    @property
    def is_held(self) -> bool:
        """Nothing may be sent here, or little."""
        return bool(self.record.sending_stopped or self.record.sends_per_s)

    def sequence_number(self, partition: int, offset: int) -> str:
        """FIFO: grows with every message of a group."""
        return sequence_number(offset if self.routes is None else self.routes.sequence_base(partition) + offset)

    def partition_for_copy(self, group: str | None, content: Content | None, turn: int) -> int:
        """Where a copy of a message of another queue goes; the same for the same `turn`, so that a second one of it
        meets the first."""
        if self.routes is None:
            return self.partitions[0]
        if self.fifo is not None:
            assert group is not None, "a message of a FIFO queue has a group"
            return self.routes.for_group(group.encode())
        given = None if content is None else content.attributes.get(PRIORITY)
        level = 0 if given is None else level_of(*given) or 0
        return self.routes.for_turn(level, turn)

    def sealing_key(self, now_s: float, messages: int = 1) -> DataKey:
        """What so many messages are sealed under now. Raises RequestError: an encryption key that the queue names
        cannot be used."""
        encryption = self.encryption
        names = None if encryption is None else encryption.sealing_names(self._sealing_key.version, now_s)
        if encryption is None or names is None:
            if self._data_key_uses is not None:
                self._data_key_uses.note(self.record.queue_uuid, self._sealing_key.version, messages)
            return self._sealing_key
        key = encryption.key_of(names, self.record.queue_uuid, self.record.data_keys[-1].wrapped)
        assert key is not None, "the current encryption key has versions"
        encryption.note(names, sealed=messages)
        return key

    def opening_key(self, names: KeyNames) -> DataKey | None:
        """The key of these names, None if the queue has none. Raises KeyUnusable."""
        if names.encryption_version:
            wrapped = next((known.wrapped for known in self.record.data_keys if known.version == names.version), None)
            return None if wrapped is None else self._derived(names, self.record.queue_uuid, wrapped)
        key = self._keys.get(names.version)
        if key is None and any(known.version == names.version for known in self.record.data_keys):
            key = self._open_key(names.version)
        return key

    def key_grants(self, names: KeyNames) -> Sequence[GrantedKey]:
        """The keys of these names that were granted to this queue: one, but for queues of old. Raises KeyUnusable."""
        openings = self._granted.get(names)
        if openings is None:
            openings = []
            for grant in self.record.key_grants:
                if grant.version == names.version:
                    key = self._granted_key(names, grant.owner_uuid, grant.wrapped)
                    if key is not None:
                        openings.append(GrantedKey(key, grant.owner_name))
            if openings and not names.encryption_version:
                self._granted[names] = openings
        return openings

    def note_lost_key(self, names: KeyNames) -> None:
        """No key of these names was found past every cache: nothing asks for it again."""
        if len(self._lost_keys) >= LOST_KEYS_KEPT_MAX:
            self._lost_keys.clear()
        self._lost_keys.add(names[:2])

    def is_lost_key(self, names: KeyNames) -> bool:
        return names[:2] in self._lost_keys

    def _granted_key(self, names: KeyNames, owner_uuid: bytes, wrapped: bytes) -> DataKey | None:
        if names.encryption_version:
            return self._derived(names, owner_uuid, wrapped)
        record = self.record
        owner = (record.account_id, record.account_key_wrapped, owner_uuid)
        plain = self._keyring.unwrap_data_key(*owner, names.version, wrapped)
        return data_key(names.version, plain, record.account_id, owner_uuid)

    def _derived(self, names: KeyNames, owner_uuid: bytes, wrapped: bytes) -> DataKey | None:
        return None if self.encryption is None else self.encryption.key_of(names, owner_uuid, wrapped)

    def _open_key(self, version: int) -> DataKey:
        record = self.record
        wrapped = next(known.wrapped for known in record.data_keys if known.version == version)
        plain = self._keyring.unwrap_data_key(
            record.account_id, record.account_key_wrapped, record.queue_uuid, version, wrapped
        )
        key = data_key(version, plain, record.account_id, record.queue_uuid)
        self._keys[version] = key
        return key


class QueueResolver:
    """The queues that this front end knows."""

    __slots__ = ("_keyring", "_metadata", "_resolved", "data_key_uses", "uses")

    def __init__(self, metadata: MetadataService, keyring: Keyring) -> None:
        self._metadata = metadata
        self._keyring = keyring
        self._resolved: dict[Address, ResolvedQueue] = {}
        self.uses = EncryptionKeyUses()
        self.data_key_uses = DataKeyUses()

    def cached(self, address: Address) -> ResolvedQueue | None:
        """The queue if it needs no waiting, else None. Raises RequestError for a queue known not to exist."""
        record = self._metadata.cached_queue(address.account_id, address.name)
        if record is MISS:
            return None
        if record is None or not record.encryption_keys:
            queue = self._resolved.get(address)
            # The view that was made of this very record, which was active.
            return queue if queue is not None and queue.record is record else self._resolve(address, record)
        keys: list[EncryptionKeyRecord | None] = []
        for key_id in record.encryption_keys:
            key = self._metadata.cached_encryption_key(key_id)
            if key is MISS:
                return None
            keys.append(key)
        return self._resolve(address, record, keys)

    def uuid_at_hand(self, address: Address) -> bytes | None:
        """Of a queue that was used lately."""
        queue = self._resolved.get(address)
        return None if queue is None else queue.record.queue_uuid

    async def find(self, address: Address) -> ResolvedQueue:
        """Raises RequestError: QueueDoesNotExist, or 503 where nobody can tell."""
        queue = self.cached(address)
        if queue is not None:
            return queue
        try:
            record = await self._metadata.get_queue(address.account_id, address.name)
            return self._resolve(address, record, await self._keys_of(record, address.account_id))
        except MetadataUnavailable:
            raise unavailable("Queues cannot be looked up at the moment.") from None

    async def look_up(self, asker: str, address: Address) -> ResolvedQueue:
        """What `cached` does not tell, for a caller of the account `asker`: counts in that account's share of the
        look-ups. Raises RequestError."""
        try:
            record = await self._metadata.look_up_queue(asker, address.account_id, address.name)
            return self._resolve(address, record, await self._keys_of(record, asker))
        except MetadataUnavailable:
            raise unavailable("Queues cannot be looked up at the moment.") from None

    async def repeat_look_up(self, asker: str, address: Address) -> None:
        """Waits for what `look_up` waits for. Raises RequestError."""
        try:
            await self._metadata.repeat_look_up(asker, address.account_id, address.name)
        except MetadataUnavailable:
            raise unavailable("Queues cannot be looked up at the moment.") from None

    async def refresh(self, address: Address) -> ResolvedQueue:
        """As `find`, past every cache."""
        try:
            record = await self._metadata.refresh_queue(address.account_id, address.name)
            return self._resolve(address, record, await self._keys_of(record, address.account_id, fresh=True))
        except MetadataUnavailable:
            raise unavailable("Queues cannot be looked up at the moment.") from None

    async def _keys_of(
        self, record: QueueRecord | None, asker: str, fresh: bool = False
    ) -> Sequence[EncryptionKeyRecord | None]:
        if record is None or not record.encryption_keys:
            return ()
        look_up = self._metadata.refresh_encryption_key if fresh else self._metadata.get_encryption_key
        return [await look_up(asker, key_id) for key_id in record.encryption_keys]

    def _resolve(
        self, address: Address, record: QueueRecord | None, keys: Sequence[EncryptionKeyRecord | None] = ()
    ) -> ResolvedQueue:
        if record is None or record.state != "active":
            self._resolved.pop(address, None)
            raise queue_does_not_exist()
        queue = self._resolved.get(address)
        if queue is None or queue.record is not record or not _are_same(queue.encryption_keys, keys):
            if queue is None and len(self._resolved) >= QUEUES_RESOLVED_MAX:
                del self._resolved[next(iter(self._resolved))]
            queue = self._resolved[address] = ResolvedQueue(record, self._keyring, keys, self.uses, self.data_key_uses)
        return queue


def _are_same(held: Sequence[EncryptionKeyRecord | None], found: Sequence[EncryptionKeyRecord | None]) -> bool:
    """The very same records."""
    return len(held) == len(found) and all(one is other for one, other in zip(held, found, strict=True))
