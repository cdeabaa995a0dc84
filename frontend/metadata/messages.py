"""Messages between front end and metadata service: frames of `storage_nodes.protocol`, opcodes 60 to 79.

A connection opens with HELLO (the storage plane's own), asks with the opcodes here, and may subscribe once. Every
answer and every pushed change carries the correlation id of its request. `fresh` asks past the service's cache.
"""

from __future__ import annotations

import enum

from frontend.metadata.records import AccountRecord, KeyRecord, QueueRecord
from storage_nodes.protocol.messages import Message


class MetadataOpcode(enum.IntEnum):
    GET_KEY = 60
    GET_QUEUE = 61
    SUBSCRIBE = 62
    GET_ACCOUNT = 63


class GetKey(Message, frozen=True):
    access_key_id: str
    fresh: bool = False


class GetQueue(Message, frozen=True):
    account_id: str
    name: str
    fresh: bool = False


class GetAccount(Message, frozen=True):
    account_id: str
    fresh: bool = False


class KeyReply(Message, frozen=True):
    record: KeyRecord | None


class QueueReply(Message, frozen=True):
    record: QueueRecord | None


class AccountReply(Message, frozen=True):
    record: AccountRecord | None


class Subscribe(Message, frozen=True):
    pass


# Kind of a Change that says only "still here"; the first one confirms the subscription.
HEARTBEAT = "heartbeat"


class Change(Message, frozen=True):
    """Something of this kind and key has this version now. Whoever holds an older version forgets it."""

    kind: str
    key: str
    version: int
