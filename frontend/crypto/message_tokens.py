"""Opaque tokens of the message browser: where a message stands, and where a search goes on. Big-endian, unsigned.

    message  1  kind, 1     cursor   1  kind, 2                               schedule  1  kind, 3
             8  partition, masked    8  partition, masked                               8  partition, masked
             8  offset               8  offset, the next one to be looked at            8  offset of the last one
                                     8  messages looked at so far                       8  its due time, Unix ms
                                     6  digest of the search that it belongs to         6  digest of the listing

and 16 (message) or 17 bytes of HMAC-SHA-256 over that and `receipt_owner` of the queue: 44 and 64 characters of
base64url. A token of another queue or account, or one with a bit changed, is none. Partitions are masked as in receipts
(`partition_masks.py`). It is no receipt: it says nothing about a lease, and stays right until the message is gone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from typing import NamedTuple

from frontend.crypto.partition_masks import PartitionMasks

_TOKEN = struct.Struct(">BQQ")
_CURSOR = struct.Struct(">BQQQ6s")
_TOKEN_KIND, _CURSOR_KIND, _SCHEDULE_KIND = 1, 2, 3
_TOKEN_BYTES, _CURSOR_BYTES = 33, 48
_SEARCH_BYTES = 6


class MessageToken(NamedTuple):
    partition: int
    offset: int


class SearchCursor(NamedTuple):
    partition: int
    offset: int
    scanned: int


class ScheduleCursor(NamedTuple):
    """Of the last message of a page of scheduled ones."""

    partition: int
    offset: int
    due_ms: int


class InvalidToken(Exception):
    """Not a token that was made for this queue, or not for this search."""


class MessageTokens:
    """Makes and reads the tokens of one installation. `owner` is `receipt_owner` of the queue."""

    __slots__ = ("_key", "_masks")

    def __init__(self, receipt_key: bytes) -> None:
        assert len(receipt_key) == 32
        self._key = hmac.digest(receipt_key, b"message-browser", "sha256")
        self._masks = PartitionMasks(receipt_key)

    def make(self, owner: bytes, token: MessageToken) -> str:
        head = _TOKEN.pack(_TOKEN_KIND, self._masks.masked(token.partition), token.offset)
        return self._seal(head, owner, _TOKEN_BYTES)

    def read(self, owner: bytes, text: str) -> MessageToken:
        """Raises InvalidToken."""
        _, masked, offset = _TOKEN.unpack(self._open(_TOKEN_KIND, _TOKEN.size, _TOKEN_BYTES, owner, text))
        return MessageToken(self._masks.partition(masked), offset)

    def cursor(self, owner: bytes, cursor: SearchCursor, search: bytes) -> str:
        """`search` is what is searched for, in one form only."""
        return self._seal_cursor(_CURSOR_KIND, owner, cursor, search)

    def read_cursor(self, owner: bytes, text: str, search: bytes) -> SearchCursor:
        """Raises InvalidToken, for a cursor of another search too."""
        return SearchCursor(*self._open_cursor(_CURSOR_KIND, owner, text, search))

    def schedule_cursor(self, owner: bytes, cursor: ScheduleCursor, listing: bytes) -> str:
        """`listing` is what is listed, in one form only."""
        return self._seal_cursor(_SCHEDULE_KIND, owner, cursor, listing)

    def read_schedule_cursor(self, owner: bytes, text: str, listing: bytes) -> ScheduleCursor:
        """Raises InvalidToken, for a cursor of another listing too."""
        return ScheduleCursor(*self._open_cursor(_SCHEDULE_KIND, owner, text, listing))

    def _seal_cursor(self, kind: int, owner: bytes, cursor: tuple[int, int, int], of: bytes) -> str:
        partition, *rest = cursor
        return self._seal(_CURSOR.pack(kind, self._masks.masked(partition), *rest, _digest(of)), owner, _CURSOR_BYTES)

    def _open_cursor(self, kind: int, owner: bytes, text: str, of: bytes) -> tuple[int, int, int]:
        head = self._open(kind, _CURSOR.size, _CURSOR_BYTES, owner, text)
        _, masked, offset, third, digest = _CURSOR.unpack(head)
        if digest != _digest(of):
            raise InvalidToken
        return self._masks.partition(masked), offset, third

    def digest(self, owner: bytes, token: MessageToken, content: bytes) -> bytes:
        """Sixteen bytes that tell one change of a message from another, and tell nobody what it is."""
        return hmac.digest(self._key, _TOKEN.pack(0, *token) + owner + b"/" + content, "sha256")[:16]

    def _seal(self, head: bytes, owner: bytes, size_bytes: int) -> str:
        return base64.urlsafe_b64encode(head + self._mac(head, owner, size_bytes - len(head))).decode()

    def _open(self, kind: int, head_bytes: int, size_bytes: int, owner: bytes, text: str) -> bytes:
        if len(text) != size_bytes * 4 // 3 or "+" in text or "/" in text:  # a token has one text
            raise InvalidToken
        try:
            raw = base64.b64decode(text, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise InvalidToken from None
        head = raw[:head_bytes]
        mac = self._mac(head, owner, size_bytes - head_bytes)
        if len(raw) != size_bytes or not hmac.compare_digest(raw[head_bytes:], mac) or head[0] != kind:
            raise InvalidToken
        return head

    def _mac(self, head: bytes, owner: bytes, size_bytes: int) -> bytes:
        return hmac.digest(self._key, head + owner, "sha256")[:size_bytes]


def _digest(search: bytes) -> bytes:
    return hashlib.sha256(search).digest()[:_SEARCH_BYTES]
