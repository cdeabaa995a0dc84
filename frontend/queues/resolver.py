"""Queues by their addresses: a metadata record made ready for the message path, rebuilt when the record changes.

A resolved queue holds what every message would otherwise compute again: parsed attributes, opened data keys, the owner
bytes of receipts.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from frontend.authz import NO_POLICY, PolicyKind, load_policy
from frontend.crypto.envelope import Content, DataKey, data_key
from frontend.crypto.keyring import Keyring
from frontend.crypto.receipts import receipt_owner
from frontend.errors import queue_does_not_exist, unavailable
from frontend.limits import MESSAGE_BYTES_MAX, QUEUES_RESOLVED_MAX
from frontend.metadata.interface import MISS, MetadataService, MetadataUnavailable
from frontend.metadata.records import QueueRecord
from frontend.queues.extensions import ACKS, DEDUPLICATION_WINDOW, UNCOUNTED_RELEASE, acks_of
from frontend.queues.fifo import FifoRules, sequence_number
from frontend.queues.names import Address
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


class GrantedKey(NamedTuple):
    """Opens the dead letters of another queue of the account."""

    key: DataKey
    owner_name: str


class ResolvedQueue:
    """One queue as the message path sees it."""

    __slots__ = (
        "_granted",
        "_keyring",
        "_keys",
        "fifo",
        "numbers_messages",
        "owner",
        "partitions",
        "policy",
        "rate_name",
        "record",
        "routes",
        "sealing_key",
        "send_rules",
        "visibility_ms",
        "wait_ms",
        "zero_releases",
    )

    def __init__(self, record: QueueRecord, keyring: Keyring) -> None:
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
        dedups = self.fifo is None and DEDUPLICATION_WINDOW in attributes
        self.send_rules = SendRules(
            int(attributes.get("MaximumMessageSize", str(MESSAGE_BYTES_MAX))),
            1000 * int(attributes.get("DelaySeconds", "0")),
            self.fifo,
            dedups,
            acks_of(attributes.get(ACKS)),
            levels_of(attributes),
        )
        # Messages may have ids made from where they lie (frontend/crypto/message_ids.py).
        self.numbers_messages = record.fifo or dedups
        self.owner = receipt_owner(record.account_id, record.queue_uuid)
        self.rate_name = f"{record.account_id}/{record.name}"
        self._keyring = keyring
        self._keys: dict[int, DataKey] = {}
        self._granted: dict[int, list[GrantedKey]] = {}
        self.sealing_key = self._open_key(record.data_keys[-1].version)

    @property
    def address(self) -> Address:
        return Address(self.record.account_id, self.record.name)

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

    def opening_key(self, version: int) -> DataKey | None:
        """The data key of that version, None if the queue has no such version."""
        key = self._keys.get(version)
        if key is None and any(known.version == version for known in self.record.data_keys):
            key = self._open_key(version)
        return key

    def key_grants(self, version: int) -> Sequence[GrantedKey]:
        """The keys of that version that were granted to this queue: one, but for queues of old."""
        openings = self._granted.get(version)
        if openings is None:
            record = self.record
            openings = []
            for grant in record.key_grants:
                if grant.version == version:
                    plain = self._keyring.unwrap_data_key(
                        record.account_id, record.account_key_wrapped, grant.owner_uuid, version, grant.wrapped
                    )
                    key = data_key(version, plain, record.account_id, grant.owner_uuid)
                    openings.append(GrantedKey(key, grant.owner_name))
            if openings:
                self._granted[version] = openings
        return openings

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

    __slots__ = ("_keyring", "_metadata", "_resolved")

    def __init__(self, metadata: MetadataService, keyring: Keyring) -> None:
        self._metadata = metadata
        self._keyring = keyring
        self._resolved: dict[Address, ResolvedQueue] = {}

    def cached(self, address: Address) -> ResolvedQueue | None:
        """The queue if it needs no waiting, else None. Raises RequestError for a queue known not to exist."""
        record = self._metadata.cached_queue(address.account_id, address.name)
        if record is MISS:
            return None
        return self._resolve(address, record)

    async def find(self, address: Address) -> ResolvedQueue:
        """Raises RequestError: QueueDoesNotExist, or 503 where nobody can tell."""
        queue = self.cached(address)
        if queue is not None:
            return queue
        try:
            record = await self._metadata.get_queue(address.account_id, address.name)
        except MetadataUnavailable:
            raise unavailable("Queues cannot be looked up at the moment.") from None
        return self._resolve(address, record)

    async def refresh(self, address: Address) -> ResolvedQueue:
        """As `find`, past every cache."""
        try:
            record = await self._metadata.refresh_queue(address.account_id, address.name)
        except MetadataUnavailable:
            raise unavailable("Queues cannot be looked up at the moment.") from None
        return self._resolve(address, record)

    def _resolve(self, address: Address, record: QueueRecord | None) -> ResolvedQueue:
        if record is None or record.state != "active":
            self._resolved.pop(address, None)
            raise queue_does_not_exist()
        queue = self._resolved.get(address)
        if queue is None or queue.record is not record:
            if queue is None and len(self._resolved) >= QUEUES_RESOLVED_MAX:
                del self._resolved[next(iter(self._resolved))]
            queue = self._resolved[address] = ResolvedQueue(record, self._keyring)
        return queue
