"""Messages between front end and metadata service: frames of `storage_nodes.protocol`, opcodes 60 to 79.

A connection opens with HELLO (the storage plane's own), asks with the opcodes here, and may subscribe once. Every
answer and everything pushed carries the correlation id of its request. `fresh` asks past the service's copy.

Whoever subscribes says what it heard last: the service's epoch and the number of the last change in it. What it missed
is then told again; where the service cannot tell (another epoch, or too many changes), the subscriber asks with COMPARE
which of the records that it holds are out of date. So nobody drops a cache.

Surface: other planes may import this module.
"""

from __future__ import annotations

import enum

from frontend.metadata.records import AccountRecord, EncryptionKeyRecord, KeyRecord, QueueRecord
from storage_nodes.protocol.messages import Message


class MetadataOpcode(enum.IntEnum):
    GET_KEY = 60
    GET_QUEUE = 61
    SUBSCRIBE = 62
    GET_ACCOUNT = 63
    FEED_STATE = 64
    COMPARE = 65
    REPORT_USE = 66
    GET_ENCRYPTION_KEY = 67


class GetKey(Message, frozen=True):
    access_key_id: str
    fresh: bool = False


class GetQueue(Message, frozen=True):
    """`confirmed`: a record that is held is answered as late as an absence, which is looked into first."""

    account_id: str
    name: str
    fresh: bool = False
    confirmed: bool = False


class GetAccount(Message, frozen=True):
    account_id: str
    fresh: bool = False


class GetEncryptionKey(Message, frozen=True):
    key_id: str
    fresh: bool = False


class KeyReply(Message, frozen=True):
    record: KeyRecord | None


class QueueReply(Message, frozen=True):
    record: QueueRecord | None


class AccountReply(Message, frozen=True):
    record: AccountRecord | None


class EncryptionKeyReply(Message, frozen=True):
    record: EncryptionKeyRecord | None


class Subscribe(Message, frozen=True):
    epoch: str = ""
    sequence: int = 0


class Change(Message, frozen=True):
    """Something of this kind and key has this version now. Whoever holds an older version forgets it.

    `sequence` numbers the changes of one epoch of the service, without gaps.
    """

    kind: str
    key: str
    version: int
    sequence: int = 0


class FeedState(Message, frozen=True):
    """Pushed at the start, when something changes, and as a heartbeat.

    missed         at the start: changes were missed that the service cannot tell; compare
    loaded         the service holds a copy of the records: it can answer COMPARE
    database_lost_at_ms   since when PostgreSQL does not answer the service (Unix time), 0 while it does
    refused        PostgreSQL is there, and takes no more connections: changes may be made that the service does not
                   hear of
    never_reached  the service has looked for PostgreSQL since its start, and nobody was there
    """

    epoch: str
    sequence: int
    missed: bool
    loaded: bool
    database_lost_at_ms: int
    never_reached: bool = False
    refused: bool = False


class Compare(Message, frozen=True):
    """Records of one kind as the asker holds them; keys as in the change feed."""

    kind: str
    keys: list[str]
    versions: list[int]


class CompareReply(Message, frozen=True):
    """Those of the keys whose records have changed or are gone."""

    outdated: list[str]


class AccountUse(Message, frozen=True):
    """In a report: what one holder asked a front end for, in parts of its quotas. In the answer: the front end's share
    of them, and in `total` the largest part that it asked all front ends for. A holder is an account, a key (by its id)
    or a queue (`account/name`)."""

    account_id: str
    requests: float
    messages: float
    bytes: float
    total: float = 0.0


class UseReport(Message, frozen=True):
    """Sent by every front end once a second, with the holders that ask for much; also with none."""

    accounts: list[AccountUse]


class UseShares(Message, frozen=True):
    """So many front ends report, and these are the shares of the one that asks, in the order of its accounts."""

    front_ends: int
    shares: list[AccountUse]
