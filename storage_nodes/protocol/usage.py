"""What is metered of a message: its billed size and who sent it, clear, beside the sealed message.

A message says it in its record key, 5 bytes:

    byte 0     origin
    byte 1..4  billed bytes: body, attribute names, types and values of the plaintext (unsigned, big endian)

A batch says the sums of its messages in 63 bits, where the Kafka layout has the base timestamp, which no reader of a
batch with append times looks at (`log/record_batch.py`):

    bits 56..62  origin, MIXED where the messages do not all have the same, or the sums are too large for these fields
    bits 36..55  units
    bits  0..35  billed bytes

A unit is 64 KiB begun of one message. A message without such a key is billed by the size of its record.

Surface: other planes may import this module.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from operator import itemgetter

from storage_nodes.protocol.records import encode_varint

# Of the stream partition that usage is appended to.
USAGE_TAG = "__usage:0"
UNIT_BYTES = 65_536
UNIT_SHIFT = 16
BILLED_BYTES_MAX = (1 << 32) - 1
# Origin of a batch whose messages have several.
MIXED = 0

Usage = tuple[int, int, int]
"""Origin, billed bytes, units."""

_KEY = struct.Struct(">BI")
# Where the size begins in a key.
SIZE_AT = 1
# The size in a record's head, of one record and of several at once; what else a head is, is looked at before.
_SIZE = struct.Struct(">2xIx")
_SIZES_AT_ONCE = 16
_SIZES = struct.Struct(">" + "2xIx" * _SIZES_AT_ONCE)
_KEY_LENGTH = encode_varint(_KEY.size)[0]
_KEY_END = 1 + _KEY.size
_BYTES_BITS, _UNITS_BITS = 36, 20
_ORIGIN_SHIFT = _BYTES_BITS + _UNITS_BITS
_BYTES_MASK, _UNITS_MASK = (1 << _BYTES_BITS) - 1, (1 << _UNITS_BITS) - 1


class Origin(enum.IntEnum):
    """Who caused an operation. Numbers are on disk and in the usage stream: never reuse one."""

    CLIENT = 1
    PUSH = 2
    DESK = 3
    REDRIVE = 4  # moved from another queue: dead letters, and messages that are sent back
    CRON = 5


_CLIENT = int(Origin.CLIENT)
_MOVED = bytes((Origin.REDRIVE,))
_ORIGINS = bytes(Origin)
# A record with such a key, and whatever follows it.
_HEAD_BYTES = _KEY_END + 1
_HEAD = struct.Struct(">BBIx")


def usage_key(origin: int, billed_bytes: int) -> bytes:
    """The record key of a message."""
    return _KEY.pack(origin, min(billed_bytes, BILLED_BYTES_MAX))


def size_field(key: bytes | None) -> bytes:
    """The part of a record key that is bound to the sealed message; empty where the key says nothing of usage."""
    return key[SIZE_AT:] if key is not None and len(key) == _KEY.size else b""


def moved_key(key: bytes | None) -> bytes | None:
    """The key of a copy that a move makes."""
    size = size_field(key)
    return _MOVED + size if size else key


def usage_of(body: bytes) -> Usage:
    """Of one record body, whatever it holds."""
    if _is_keyed(body):
        billed = int.from_bytes(body[2:_KEY_END], "big")
        return body[1], billed, units_of(billed)
    billed = len(body)
    return _CLIENT, billed, units_of(billed)


def _is_keyed(body: bytes) -> bool:
    """Does a record body, or its head, say what it is billed for?"""
    return len(body) > _KEY_END and body[0] == _KEY_LENGTH and body[1] in _ORIGINS


_head_of: Callable[[bytes], bytes] = itemgetter(slice(0, _HEAD_BYTES))


def billed_bytes_of(bodies: Collection[bytes]) -> list[int]:
    """Of each record body the billed bytes."""
    return billed_bytes_of_heads(heads_of(bodies))


def heads_of(bodies: Collection[bytes]) -> bytes:
    """The parts of record bodies that say their sizes, side by side: what `billed_bytes_of_heads` reads. A body that
    says none gets one made up. Once a message that is handed over."""
    heads = b"".join(map(_head_of, bodies))
    count = len(bodies)
    is_keyed = len(heads) == count * _HEAD_BYTES and heads[0::_HEAD_BYTES].count(_KEY_LENGTH) == count
    if is_keyed and not heads[1::_HEAD_BYTES].strip(_ORIGINS):
        return heads
    return b"".join([_HEAD.pack(_KEY_LENGTH, _CLIENT, usage_of(body)[1]) for body in bodies])


def billed_bytes_of_heads(heads: bytes) -> list[int]:
    """Of each message the billed bytes."""
    whole = len(heads) // _SIZES.size * _SIZES.size
    sizes = list(chain.from_iterable(_SIZES.iter_unpack(heads[:whole])))
    sizes += chain.from_iterable(_SIZE.iter_unpack(heads[whole:]))
    return sizes


def units_of(billed_bytes: int) -> int:
    """64 KiB begun; a message without a byte is one, too."""
    return (billed_bytes + UNIT_BYTES - 1 >> UNIT_SHIFT) or 1


def units_of_all(sizes_bytes: Collection[int]) -> int:
    """Of messages of these billed bytes."""
    if not sizes_bytes or max(sizes_bytes) <= UNIT_BYTES:
        return len(sizes_bytes)
    return sum(map(units_of, sizes_bytes))


def sum_of(bodies: Sequence[bytes]) -> int:
    """The sums of a batch, packed. Every message costs this once, at the leader."""
    if len(bodies) == 1:
        return _pack(*usage_of(bodies[0]))
    count = len(bodies)
    # The first bytes of all of them side by side; every seventh one is the same byte of the next message.
    heads = b"".join(map(_head_of, bodies))
    if len(heads) == count * _HEAD_BYTES:
        keyed = heads[0::_HEAD_BYTES].count(_KEY_LENGTH)
        origins = heads[1::_HEAD_BYTES]
        origin = origins[0]
        if not keyed:
            billed_bytes = sum(map(len, bodies))
            if max(map(len, bodies)) <= UNIT_BYTES:
                return _pack(_CLIENT, billed_bytes, count)
        elif (
            keyed == origins.count(origin) == count
            and origin in _ORIGINS
            # None is of more than 65,535 bytes, nearly always.
            and heads[2::_HEAD_BYTES].count(0) == heads[3::_HEAD_BYTES].count(0) == count
        ):
            return _pack(origin, (sum(heads[4::_HEAD_BYTES]) << 8) + sum(heads[5::_HEAD_BYTES]), count)
    return _sum_one_by_one(bodies)


def _sum_one_by_one(bodies: Sequence[bytes]) -> int:
    origins, sizes, units = zip(*map(usage_of, bodies), strict=True)
    return _pack(origins[0], sum(sizes), sum(units)) if len(set(origins)) == 1 else MIXED


def _pack(origin: int, billed_bytes: int, units: int) -> int:
    if billed_bytes > _BYTES_MASK or units > _UNITS_MASK:
        return MIXED
    return origin << _ORIGIN_SHIFT | units << _BYTES_BITS | billed_bytes


def unpack_sum(packed: int) -> Usage:
    return packed >> _ORIGIN_SHIFT, packed & _BYTES_MASK, packed >> _BYTES_BITS & _UNITS_MASK
