"""Receipt handles: proof that a message was delivered, and the place to find it again. Big-endian, unsigned.

    offset size
       0     1  layout version, 1 or 2
       1     8  partition, masked (`partition_masks.py`)
       9     8  offset
      17     4  delivery number
      21     4  epoch of the leader that delivered
      25     4  when it was received, seconds since 1970; layout 2 only
      25    17  HMAC-SHA-256, first 136 bits, over all before it and `receipt_owner` of the queue; in layout 2, from 29:
      29    16  the same, first 128 bits

Base64url: 56 or 60 characters, no padding. A handle of another queue or account, or with one bit changed, is no handle.
Layout 1 is for what names no moment: scheduled messages, receives that may be repeated and then must give the same
handles, websockets, whose leases last as long as they do.
"""

from __future__ import annotations

import hashlib
import struct
from binascii import a2b_base64, b2a_base64
from hmac import compare_digest

import msgspec

from frontend.crypto.macs import MacKey
from frontend.crypto.partition_masks import PartitionMasks

# The two characters that base64url has others for.
_TO_URL = bytes.maketrans(b"+/", b"-_")
# Those of plain base64 are none here: a handle has one text.
_FROM_URL = bytes.maketrans(b"-_+/", b"+/??")
_UNTIMED = 1
_UNTIMED_HEAD = struct.Struct(">BQQII")
_UNTIMED_MAC_BYTES = 17
_TIMED = 2
_TIMED_HEAD = struct.Struct(">BQQIII")
_TIMED_MAC_BYTES = 16
_SCHEDULED = b"/scheduled"
_OWNER_BYTES = 24
# Characters of a handle -> its layout version, its head, the bytes of its MAC.
_LAYOUTS = {
    56: (_UNTIMED, _UNTIMED_HEAD, _UNTIMED_MAC_BYTES),
    60: (_TIMED, _TIMED_HEAD, _TIMED_MAC_BYTES),
}

# SHA-256 ends its last block of 64 bytes with 9 of its own: one block takes a third less time than two.
assert _TIMED_HEAD.size + _OWNER_BYTES <= 64 - 9
assert all((head.size + mac_bytes) * 4 == chars * 3 for chars, (_, head, mac_bytes) in _LAYOUTS.items())


class Receipt(msgspec.Struct, frozen=True, gc=False):
    partition: int
    offset: int
    delivery: int
    epoch: int
    received_s: int = 0  # not known


class ReceiptError(Exception):
    """Not a receipt handle of this queue."""


class ReceiptMaker:
    """Makes and reads the handles of one installation. `owner` is `receipt_owner` of the queue."""

    __slots__ = ("_key", "_known_masked", "_known_partitions", "_masks")

    def __init__(self, key: bytes) -> None:
        assert len(key) == 32
        self._key = MacKey(key)
        self._masks = PartitionMasks(key)
        self._known_masked, self._known_partitions = self._masks.known_masked, self._masks.known_partitions

    def make(self, owner: bytes, partition: int, offset: int, delivery: int, epoch: int, received_s: int = 0) -> str:
        try:
            masked = self._known_masked[partition]
        except KeyError:
            masked = self._masks.masked(partition)
        if received_s:
            head = _TIMED_HEAD.pack(_TIMED, masked, offset, delivery, epoch, received_s)
            mac = self._key.digest(head + owner)[:_TIMED_MAC_BYTES]
        else:
            head = _UNTIMED_HEAD.pack(_UNTIMED, masked, offset, delivery, epoch)
            mac = self._key.digest(head + owner)[:_UNTIMED_MAC_BYTES]
        return b2a_base64(head + mac, newline=False).translate(_TO_URL).decode()

    def make_again(self, owner: bytes, receipt: Receipt) -> str:
        """The handle that it was read from."""
        return self.make(owner, receipt.partition, receipt.offset, receipt.delivery, receipt.epoch, receipt.received_s)

    def read(self, owner: bytes, handle: str) -> Receipt:
        """Raises ReceiptError."""
        known = _LAYOUTS.get(len(handle))
        if known is None:
            raise ReceiptError
        layout, packed, mac_bytes = known
        try:
            raw = a2b_base64(handle.encode("ascii").translate(_FROM_URL), strict_mode=True)
        except ValueError:
            raise ReceiptError from None
        head, mac = raw[:-mac_bytes], raw[-mac_bytes:]
        if len(head) != packed.size or not compare_digest(mac, self._key.digest(head + owner)[:mac_bytes]):
            raise ReceiptError
        if head[0] != layout:
            raise ReceiptError
        received_s = 0
        if layout == _TIMED:
            _, masked, offset, delivery, epoch, received_s = _TIMED_HEAD.unpack(head)
        else:
            _, masked, offset, delivery, epoch = _UNTIMED_HEAD.unpack(head)
        try:
            partition = self._known_partitions[masked]
        except KeyError:
            partition = self._masks.partition(masked)
        return Receipt(partition, offset, delivery, epoch, received_s)


def make_schedule_id(receipts: ReceiptMaker, owner: bytes, partition: int, offset: int) -> str:
    """Names a scheduled message by its place; never to be taken for a receipt."""
    return receipts.make(owner + _SCHEDULED, partition, offset, 0, 0)


def read_schedule_id(receipts: ReceiptMaker, owner: bytes, text: str) -> Receipt:
    """Raises ReceiptError."""
    return receipts.read(owner + _SCHEDULED, text)


def receipt_owner(account_id: str, queue_uuid: bytes) -> bytes:
    """What stands for a queue in what is signed for it: first 192 bits of SHA-256 of its account id and uuid."""
    return hashlib.sha256(account_id.encode() + b"/" + queue_uuid).digest()[:_OWNER_BYTES]
