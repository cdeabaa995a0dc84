"""The checkpoint of a queue machine: a msgpack array, version first.

    [version, cursor, log_end, fresh_count, last_ms, last_purge_ms, retention_ms, in_flight_max,
     sent, received, deleted, expired, purged, runs, ahead]

    runs   `live` by offset, flat (gap, count, deadline_ms - sent_ms, delivery, first_received_ms - sent_ms,
           sent_ms - previous sent_ms)...; a run is a stretch of neighbouring offsets with equal entries, gap = its
           first offset less the end of the run before. Messages that were acquired together share a run, and the
           small differences take one to five bytes each.
    ahead  `deleted_ahead`, sorted, each less the one before

Equal states give equal bytes: replicas can be compared by their checkpoints.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec

VERSION = 1

# (deadline_ms, delivery, first_received_ms, sent_ms) of a message that is delivered or delayed.
#   delivery 0: delayed, deadline_ms = when it is due; first_received_ms is 0
#   delivery n: handed out n times, invisible until deadline_ms
# Messages acquired together share one tuple.
Entry = tuple[int, int, int, int]
Live = dict[int, Entry]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class CheckpointError(ValueError):
    """Bytes that are no checkpoint of a version this code reads."""


def encode_checkpoint(scalars: list[int], live: Live, ahead: set[int] | frozenset[int]) -> bytes:
    gaps: list[int] = []
    before = 0
    for offset in sorted(ahead):
        gaps.append(offset - before)
        before = offset
    return _encode([VERSION, *scalars, _pack_runs(live), gaps])


def decode_checkpoint(blob: bytes, scalars_count: int) -> tuple[list[int], Live, set[int]]:
    """Raises CheckpointError."""
    try:
        fields = _decode(blob)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"queue checkpoint: {error}") from error
    if not fields or fields[0] != VERSION or len(fields) != scalars_count + 3:
        raise CheckpointError(f"queue checkpoint of version {fields[:1]}, version {VERSION} is read here")
    try:
        return fields[1:-2], _unpack_runs(fields[-2]), set(accumulate(fields[-1]))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"queue checkpoint: {error}") from error


def _pack_runs(live: Live) -> list[int]:
    flat: list[int] = []
    end = first = previous_sent_ms = 0
    entry: Entry | None = None
    for offset in sorted(live):
        current = live[offset]
        if offset == end and (current is entry or current == entry):
            end += 1
            flat[-5] += 1
            continue
        deadline_ms, delivery, first_received_ms, sent_ms = current
        flat += (
            offset - end, 1, deadline_ms - sent_ms, delivery, first_received_ms - sent_ms, sent_ms - previous_sent_ms
        )  # fmt: skip
        first, entry, previous_sent_ms = offset, current, sent_ms
        end = first + 1
    return flat


def _unpack_runs(flat: list[int]) -> Live:
    live: Live = {}
    end = sent_ms = 0
    fields = iter(flat)
    for gap, count, deadline, delivery, first_received, sent in zip(*[fields] * 6, strict=True):
        sent_ms += sent
        first = end + gap
        end = first + count
        live.update(dict.fromkeys(range(first, end), (sent_ms + deadline, delivery, sent_ms + first_received, sent_ms)))
    return live
