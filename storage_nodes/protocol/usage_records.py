"""Records of the usage stream that storage nodes write: what one queue partition did in one hour.

The layout is that of docs/usage_records.md, whose golden bytes the test of this module holds too.

Surface: other planes may import this module.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol

import msgspec

from storage_nodes.protocol.records import encode_body

VERSION = 1
KIND_WINDOW = 1
HOUR_MS = 3_600_000
NO_QUEUE = bytes(16)

_KEY = struct.Struct(">QI")
_PREFIX = bytes((VERSION, KIND_WINDOW))
_encode = msgspec.msgpack.Encoder().encode


class ClosedWindow(Protocol):
    @property
    def hour_ms(self) -> int: ...
    @property
    def until_ms(self) -> int: ...
    @property
    def stored_byte_ms(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def origins(self) -> Sequence[Sequence[int]]: ...


def window_key(partition: int, hour_ms: int) -> bytes:
    return _KEY.pack(partition, hour_ms // HOUR_MS)


def window_record(
    cluster: str, partition: int, account_id: str, queue_uuid: bytes, window: ClosedWindow, is_final: bool = False
) -> bytes:
    """The record body of a closed window. `is_final`: the partition is to be deleted: nothing is stored after it."""
    row = [
        cluster, partition, account_id, queue_uuid, window.hour_ms, window.until_ms, is_final,
        window.stored_byte_ms, window.stored_bytes, window.origins,
    ]  # fmt: skip
    return encode_body(_PREFIX + _encode(row), window_key(partition, window.hour_ms))


def queue_of_tag(tag: str) -> bytes:
    """The queue that owns a partition with this tag, `queue:<uuid>:<number>`; zeros where the tag names none."""
    parts = tag.split(":")
    try:
        uuid = bytes.fromhex(parts[1])
    except (IndexError, ValueError):
        return NO_QUEUE
    return uuid if len(uuid) == len(NO_QUEUE) else NO_QUEUE
