"""What the data plane knows of accounts, keys and queues. msgpack arrays on the wire, fields by position.

A field may be added at the end with a default; none may be removed, reordered or given another meaning. `version` is
drawn from one database sequence for all kinds: of two states of the same thing the later one has the higher version.

Surface: other planes may import this module.
"""

from __future__ import annotations

import enum

import msgspec


class RecordKind(enum.StrEnum):
    """What a change is about. The values travel in the change feed: never reuse one."""

    KEY = "key"
    QUEUE = "queue"
    ACCOUNT = "account"
    ENCRYPTION_KEY = "encryption-key"


class MetadataRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of the records."""


class DataKeyRecord(MetadataRecord, frozen=True):
    """One version of a queue's data key, wrapped by the account key. No two keys have the same version."""

    version: int
    wrapped: bytes


class DataKeyGrantRecord(MetadataRecord, frozen=True):
    """A data key of another queue of the account, whose messages come here as dead letters. Opens, never seals."""

    version: int
    wrapped: bytes
    owner_uuid: bytes
    owner_name: str


# What decisions call the policy that a key has of its own.
OWN_POLICY = "key"


class PolicyRecord(MetadataRecord, frozen=True):
    """An identity policy as it was stored, under the name that decisions tell."""

    name: str
    text: str


class KeyRecord(MetadataRecord, frozen=True):
    """An access key. `active` is false also while the key's account is switched off.

    `policies` say what the key may do; None: everything in its account. An empty list: nothing. `tags` are those of
    the key (aws:PrincipalTag), and of no interest without policies.
    """

    access_key_id: str
    account_id: str
    name: str
    secret_sealed: bytes
    bearer_hash: bytes
    active: bool
    expires_at_ms: int | None
    version: int
    policies: list[PolicyRecord] | None = None
    tags: dict[str, str] = {}
    # Its own (quotas.SINGLE_QUOTAS); so are those of a queue.
    quotas: dict[str, int] = {}


class AccountRecord(MetadataRecord, frozen=True):
    account_id: str
    name: str
    active: bool
    version: int
    auto_create_queues: bool = False
    # Those that differ from the defaults (frontend/limits/quotas.py). The record of quotas.INSTALLATION has no others.
    quotas: dict[str, int] = {}
    # Why messages cannot be sent; "" where they can.
    sending_stopped: str = ""
    # Some queue of the account has quotas of its own: only then its requests look for them.
    queues_differ: bool = False
    # So many messages a second may be sent, over all front ends; 0: as many as the quotas allow. The reason is told.
    sends_per_s: int = 0
    held_reason: str = ""


class EncryptionKeyState(enum.StrEnum):
    """Of a customer's encryption key. One that is deleted has no record."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    PENDING_DELETION = "pending_deletion"


class EncryptionKeyVersionRecord(MetadataRecord, frozen=True):
    """Wrapped by the account key. No two versions of an installation have the same number."""

    version: int
    wrapped: bytes


class EncryptionKeyRecord(MetadataRecord, frozen=True):
    """A customer's encryption key. `versions` ascend: the last one seals, all of them open. `state` is one of
    EncryptionKeyState. `shared_accounts` may use it through queues that are open to them."""

    key_id: str
    account_id: str
    state: str
    versions: list[EncryptionKeyVersionRecord]
    version: int
    shared_accounts: list[str] = []


class PartitionRecord(MetadataRecord, frozen=True):
    """A partition of a queue that has several, or had others before.

    level       priority level, 0 the lowest; standard queues
    generation  FIFO: which set of partitions it belongs to; a later set takes the place of an earlier one
    closed      FIFO: takes no message any more; its set is received from before a later one
    drained     FIFO: closed, and holds nothing: only asked for the deduplication ids that it remembers
    per_group   FIFO: a deduplication id counts within its group
    """

    partition: int
    level: int = 0
    generation: int = 0
    closed: bool = False
    drained: bool = False
    per_group: bool = False


class QueueRecord(MetadataRecord, frozen=True):
    """A queue. `state` is "creating", "active" or "deleting"; `attributes` has the SQS names, all values as strings.

    `data_keys` stand in ascending version: the last one seals, all of them open. `layout` says more of `partitions`
    where there is more to say: without it all of them are open and of one level. `encryption_key` is the id of the key
    that its KmsMasterKeyId names, "" where that names none; `encryption_keys` are the ids of all that messages which
    lie here may have been sealed under.
    """

    account_id: str
    name: str
    queue_uuid: bytes
    partitions: list[int]
    state: str
    attributes: dict[str, str]
    fifo: bool
    account_key_wrapped: bytes
    data_keys: list[DataKeyRecord]
    created_ms: int
    modified_ms: int
    version: int
    key_grants: list[DataKeyGrantRecord] = []
    layout: list[PartitionRecord] = []
    tags: dict[str, str] = {}
    encryption_key: str = ""
    encryption_keys: list[str] = []
    quotas: dict[str, int] = {}
    # Why nothing may be sent here, and how much, whoever sends: as in the record of an account.
    sending_stopped: str = ""
    sends_per_s: int = 0
    held_reason: str = ""


def queue_change_key(account_id: str, name: str) -> str:
    """How the change feed names a queue. Neither part can hold a slash."""
    return f"{account_id}/{name}"


def split_queue_change_key(key: str) -> tuple[str, str]:
    account_id, _, name = key.partition("/")
    return account_id, name
