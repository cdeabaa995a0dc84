"""The checkpoint of a stream machine: a msgpack array, version first; it is of version 1 as long as there was no group,
and of version 4 only beyond level 1.

    [1, log_start, log_end, last_ms, retention_ms, retention_bytes, mark_bytes,
     [[first_offset, last_offset, oldest_ms, newest_ms, bytes]...]]
    [2, what version 1 has, consumers]
    [3, what version 1 has, consumers (empty where there are none), producers (../producers.py)]
    [4, what version 3 has, level]
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from storage_nodes.machines.driver_contract import CheckpointError, Piece
from storage_nodes.machines.packed_later import PackedPieces, packed_array
from storage_nodes.machines.producers import ProducerTable
from storage_nodes.machines.stream.consumers import Consumers
from storage_nodes.machines.stream.retention import Mark, Marks
from storage_nodes.protocol.levels import LEVEL_FIRST

VERSION = 1
VERSION_GROUPS = 2
VERSION_PRODUCERS = 3
VERSION_LEVEL = 4

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class StreamState(NamedTuple):
    """What a checkpoint says."""

    log_start: int
    log_end: int
    last_ms: int
    retention_ms: int
    retention_bytes: int
    marks: Marks
    consumers: Consumers | None
    producers: ProducerTable | None
    level: int


def encode_checkpoint(state: StreamState) -> bytes:
    return _encode(_fields(state, state.producers.pack() if state.producers is not None else []))


def checkpoint_pieces(state: StreamState) -> bytes | list[Piece]:
    """The same; many rows of producers are copied, and packed by who writes."""
    if state.producers is None or not state.producers.is_large:
        return encode_checkpoint(state)
    return packed_array(_fields(state, state.producers.pack_later()))


def read_checkpoint(blob: bytes) -> StreamState:
    """Raises CheckpointError."""
    try:
        version, *fields = _decode(blob)
        if not VERSION <= version <= VERSION_LEVEL:
            raise CheckpointError(f"stream checkpoint of version {version}, 1 to 4 are read here")
        level = fields.pop() if version >= VERSION_LEVEL else LEVEL_FIRST
        producers = fields.pop() if version >= VERSION_PRODUCERS else []
        groups = fields.pop() if version >= VERSION_GROUPS else []
        log_start, log_end, last_ms, retention_ms, retention_bytes, mark_bytes, marks = fields
        return StreamState(
            log_start, log_end, last_ms, retention_ms, retention_bytes,
            Marks([Mark(*mark) for mark in marks], mark_bytes),
            Consumers.unpack(groups) if groups else None,
            ProducerTable.unpack(producers) if producers else None,
            level,
        )  # fmt: skip
    except (TypeError, ValueError, msgspec.DecodeError) as error:
        raise CheckpointError(f"stream checkpoint: {error}") from error


def _fields(state: StreamState, producers: list[Any] | PackedPieces) -> list[Any]:
    marks, consumers = state.marks, state.consumers
    fields = [VERSION, *state[:5], marks.mark_bytes, marks.marks]
    groups = consumers.pack() if consumers is not None and not consumers.is_blank else []
    if state.level > LEVEL_FIRST:
        fields[0] = VERSION_LEVEL
        fields += (groups, producers, state.level)
    elif state.producers is not None:
        fields[0] = VERSION_PRODUCERS
        fields += (groups, producers)
    elif groups:
        fields[0] = VERSION_GROUPS
        fields.append(groups)
    return fields
