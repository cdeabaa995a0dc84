"""Opaque words of the message desk: where a message stands, and where a search goes on. Big-endian, unsigned.

    place    1  kind, 1     cursor   1  kind, 2
             4  partition            4  partition
             8  offset               8  offset, the next one to be looked at
                                     8  messages looked at so far
                                     6  digest of the search that it belongs to

and 17 (place) or 15 (cursor) bytes of HMAC-SHA-256 over that, account id and queue uuid: 40 and 56 characters of
base64url. A word of another queue or account, or one with a bit changed, is none. A place is no receipt: it says
nothing about a lease, and stays right until the message is gone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from typing import NamedTuple

_PLACE = struct.Struct(">BIQ")
_CURSOR = struct.Struct(">BIQQ6s")
_PLACE_KIND, _CURSOR_KIND = 1, 2
_PLACE_BYTES, _CURSOR_BYTES = 30, 42
_SEARCH_BYTES = 6


class Place(NamedTuple):
    partition: int
    offset: int


class Cursor(NamedTuple):
    partition: int
    offset: int
    scanned: int


class WordError(Exception):
    """Not a word that we made for this queue, or not for this search."""


class Places:
    """Makes and reads the words of one installation. `owner` is `receipt_owner` of the queue."""

    __slots__ = ("_key",)

    def __init__(self, receipt_key: bytes) -> None:
        assert len(receipt_key) == 32
        self._key = hmac.digest(receipt_key, b"message-desk", "sha256")

    def place(self, owner: bytes, place: Place) -> str:
        return self._word(_PLACE.pack(_PLACE_KIND, *place), owner, _PLACE_BYTES)

    def read_place(self, owner: bytes, word: str) -> Place:
        """Raises WordError."""
        _, partition, offset = _PLACE.unpack(self._read(_PLACE_KIND, _PLACE.size, _PLACE_BYTES, owner, word))
        return Place(partition, offset)

    def cursor(self, owner: bytes, cursor: Cursor, search: bytes) -> str:
        """`search` is what is searched for, in one form only."""
        return self._word(_CURSOR.pack(_CURSOR_KIND, *cursor, _digest(search)), owner, _CURSOR_BYTES)

    def read_cursor(self, owner: bytes, word: str, search: bytes) -> Cursor:
        """Raises WordError, for a cursor of another search too."""
        head = self._read(_CURSOR_KIND, _CURSOR.size, _CURSOR_BYTES, owner, word)
        _, partition, offset, scanned, digest = _CURSOR.unpack(head)
        if digest != _digest(search):
            raise WordError
        return Cursor(partition, offset, scanned)

    def digest(self, owner: bytes, place: Place, content: bytes) -> bytes:
        """Sixteen bytes that tell one change of a message from another, and tell nobody what it is."""
        return hmac.digest(self._key, _PLACE.pack(0, *place) + owner + b"/" + content, "sha256")[:16]

    def _word(self, head: bytes, owner: bytes, size_bytes: int) -> str:
        return base64.urlsafe_b64encode(head + self._mac(head, owner, size_bytes - len(head))).decode()

    def _read(self, kind: int, head_bytes: int, size_bytes: int, owner: bytes, word: str) -> bytes:
        if len(word) != size_bytes * 4 // 3:
            raise WordError
        try:
            raw = base64.b64decode(word, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise WordError from None
        head = raw[:head_bytes]
        mac = self._mac(head, owner, size_bytes - head_bytes)
        if len(raw) != size_bytes or not hmac.compare_digest(raw[head_bytes:], mac) or head[0] != kind:
            raise WordError
        return head

    def _mac(self, head: bytes, owner: bytes, size_bytes: int) -> bytes:
        return hmac.digest(self._key, head + owner, "sha256")[:size_bytes]


def _digest(search: bytes) -> bytes:
    return hashlib.sha256(search).digest()[:_SEARCH_BYTES]
