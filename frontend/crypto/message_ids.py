"""Message ids of messages with deduplication ids (all of FIFO queues, and of standard queues those that were sent with
one): made from where the message lies, so that a duplicate is answered with the original's.

    key = HMAC-SHA-256(receipt key, "message-id")
    id  = HMAC-SHA-256(key, partition, 8 bytes || offset, 8 bytes), first 128 bits, as a UUID

A duplicate send learns the offset of its original and nothing else of it; whoever receives the original knows its
offset too. So both come to the same id, and nothing has to be stored or looked up. A dead letter keeps the id of the
place it came from. Other messages have random ids, inside the envelope; but for a message that a move task sent: its
id is made in the same way, under a key of its own, so that one that had to be sent twice shows it.

Surface: other planes may import this module.
"""

from __future__ import annotations

import hmac
import struct

from frontend.crypto.envelope import as_uuids, format_message_id
from frontend.crypto.macs import MacKey

_PLACE = struct.Struct(">QQ")


class MessageIds:
    """Of one installation."""

    __slots__ = ("_key", "_moved_key")

    def __init__(self, receipt_key: bytes) -> None:
        assert len(receipt_key) == 32
        self._key = MacKey(hmac.digest(receipt_key, b"message-id", "sha256"))
        self._moved_key = MacKey(hmac.digest(receipt_key, b"moved-message-id", "sha256"))

    def of(self, partition: int, offset: int) -> str:
        return format_message_id(_made(self._key, partition, offset))

    def moved_from(self, partition: int, offset: int) -> bytes:
        """The id, as an envelope holds it, of a message that was moved from there to a standard queue."""
        return _made(self._moved_key, partition, offset)


def _made(key: MacKey, partition: int, offset: int) -> bytes:
    return as_uuids(key.digest(_PLACE.pack(partition, offset))[:16])
