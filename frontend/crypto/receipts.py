"""Receipt handles: proof that a message was delivered, and the place to find it again. Big-endian, unsigned.

    offset size
       0     1  layout version, 1
       1     4  partition
       5     8  offset
      13     4  delivery number
      17     4  epoch of the leader that delivered
      21    15  HMAC-SHA-256, first 120 bits, over the 21 bytes before, account id and queue uuid

Base64url: 48 characters, no padding. A handle of another queue or account, or with one bit changed, is no handle.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
from typing import NamedTuple

LAYOUT = 1
RECEIPT_CHARS = 48
_HEAD = struct.Struct(">BIQII")
_MAC_BYTES = 15
_SCHEDULED = b"/scheduled"

assert (_HEAD.size + _MAC_BYTES) * 4 == RECEIPT_CHARS * 3


class Receipt(NamedTuple):
    partition: int
    offset: int
    delivery: int
    epoch: int


class ReceiptError(Exception):
    """Not a receipt handle of this queue."""


class ReceiptMaker:
    """Makes and reads the handles of one installation. `owner` is `receipt_owner` of the queue."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        assert len(key) == 32
        self._key = key

    def make(self, owner: bytes, partition: int, offset: int, delivery: int, epoch: int) -> str:
        head = _HEAD.pack(LAYOUT, partition, offset, delivery, epoch)
        return base64.urlsafe_b64encode(head + self._mac(head, owner)).decode()

    def read(self, owner: bytes, handle: str) -> Receipt:
        """Raises ReceiptError."""
        if len(handle) != RECEIPT_CHARS:
            raise ReceiptError
        try:
            raw = base64.b64decode(handle, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise ReceiptError from None
        head = raw[: _HEAD.size]
        if len(raw) != _HEAD.size + _MAC_BYTES or not hmac.compare_digest(raw[_HEAD.size :], self._mac(head, owner)):
            raise ReceiptError
        layout, partition, offset, delivery, epoch = _HEAD.unpack(head)
        if layout != LAYOUT:
            raise ReceiptError
        return Receipt(partition, offset, delivery, epoch)

    def _mac(self, head: bytes, owner: bytes) -> bytes:
        return hmac.digest(self._key, head + owner, "sha256")[:_MAC_BYTES]


def make_schedule_id(receipts: ReceiptMaker, owner: bytes, partition: int, offset: int) -> str:
    """Names a scheduled message by its place; never to be taken for a receipt."""
    return receipts.make(owner + _SCHEDULED, partition, offset, 0, 0)


def read_schedule_id(receipts: ReceiptMaker, owner: bytes, text: str) -> Receipt:
    """Raises ReceiptError."""
    return receipts.read(owner + _SCHEDULED, text)


def receipt_owner(account_id: str, queue_uuid: bytes) -> bytes:
    return account_id.encode() + b"/" + queue_uuid
