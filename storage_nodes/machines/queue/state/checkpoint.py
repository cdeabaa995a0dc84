"""The checkpoint of a queue machine: a msgpack array, version first.

    [version, scalars, runs, ahead, dedup, groups, config, scheduled, producers, last_purge, metering,
     letters_taken, delayed, level]

    scalars  [cursor, log_end, fresh_count, last_ms, last_purge_ms,
              sent, received, deleted, expired, purged, duplicates, dead_lettered]
    runs     `live` by offset, flat (gap, count, deadline_ms - sent_ms, delivery, first_received_ms - sent_ms,
             sent_ms - previous sent_ms)...; a run is a stretch of neighbouring offsets with equal entries, gap = its
             first offset less the end of the run before. Messages that were acquired together share a run, and the
             small differences take one to five bytes each.
    ahead    `removed_above_cursor`, flat (gap, length)...
    dedup    see dedup.py
    groups   see fifo_state.py; empty for a standard queue
    config   the fields of a QueueConfig, by position
    scheduled  see schedule.py: offsets, their due times, due times, their offsets, each as 8 bytes little-endian; empty
             where nothing is scheduled
    producers  see machines/producers.py; empty where no record had one
    last_purge  [attempt, messages purged]; empty where it had none
    metering  see metering.py; empty where there is nothing to meter
    letters_taken  see taken_letters.py; empty where no dead letter came
    delayed  as `scheduled`
    level    of the partition (protocol/levels.py); missing at level 1, so that an older release reads it

Of version 3 what follows `config` may be missing. Version 2 ended with `groups`, but had retention_ms and in_flight_max
before `sent` among the scalars, and fifo, dedup_window_ms, max_receives and dead_letter_partition after `purged`.
Version 1 had the first twelve of these scalars in place of the second field, and ended with `ahead` as single offsets,
each less the one before.

Equal states give equal bytes: replicas can be compared by their checkpoints.
"""

from __future__ import annotations

import struct
from functools import partial
from itertools import accumulate, chain
from typing import Any, NamedTuple

import msgspec

from storage_nodes.machines.driver_contract import CheckpointError, Piece, piece_bytes
from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.packed_later import PackedLater, PackedPieces, array_header, packed_pieces
from storage_nodes.machines.queue.state.offset_ranges import LAZY_RANGES_MIN, OffsetRanges
from storage_nodes.machines.queue.state.schedule import Schedule
from storage_nodes.protocol.levels import LEVEL_FIRST

VERSION = 3
SCALARS = 12
_VERSION_2_SCALARS = 18
_VERSION_1_SCALARS = 12
_VERSION_1_REST = [0, LEVEL_1.dedup_window_ms_default, 0, 0, 0, 0]
_FIFO = 2  # of the config

# (deadline_ms, delivery, first_received_ms, sent_ms) of a message that is delivered or delayed.
#   delivery 0: delayed, deadline_ms = when it is due; first_received_ms is 0
#   delivery n: handed out n times, invisible until deadline_ms
# Messages acquired together share one tuple.
Entry = tuple[int, int, int, int]
Live = dict[int, Entry]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class Checkpoint(NamedTuple):
    scalars: list[int]
    live: Live
    ahead: OffsetRanges
    dedup: list[Any] | PackedPieces
    groups: list[Any] | PackedPieces
    config: list[Any]
    scheduled: Schedule
    producers: list[Any] | PackedPieces
    last_purge: list[Any]
    metering: list[Any]
    letters_taken: list[Any]
    delayed: Schedule
    level: int = LEVEL_FIRST

    @property
    def is_fifo(self) -> bool:
        return bool(self.config[_FIFO])


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    return b"".join(map(bytes, checkpoint_pieces(checkpoint)))


def checkpoint_pieces(checkpoint: Checkpoint, later: bool = False) -> list[Piece]:
    """The same, not joined: the arrays of schedules are those in memory, which do not change any more, and are widened
    as they are written. So millions of scheduled messages cost no copy, and no pause of the event loop. `later`: `live`
    is copied, and packed by who writes."""
    scalars, live, ahead, dedup, groups, config, scheduled, *others, delayed, level = checkpoint
    assert len(scalars) == SCALARS
    head = array_header(13 if level == LEVEL_FIRST else 14)
    runs = PackedLater(partial(_pack_runs, live.copy())) if later else _encode(_pack_runs(live))
    pieces: list[Piece] = [head, _encode(VERSION), _encode(scalars), runs]
    pieces += ahead.pack_lazily() if len(ahead) >= LAZY_RANGES_MIN else (_encode(ahead.pack()),)
    pieces += chain.from_iterable(map(packed_pieces, (dedup, groups, config)))
    _add_schedule(pieces, scheduled)
    pieces += chain.from_iterable(map(packed_pieces, others))
    _add_schedule(pieces, delayed)
    if level != LEVEL_FIRST:
        pieces.append(_encode(level))
    return pieces


def _add_schedule(pieces: list[Piece], schedule: Schedule) -> None:
    columns = schedule.freeze()
    pieces.append(array_header(len(columns)))
    for chunks in columns:
        pieces.append(_binary_header(sum(map(piece_bytes, chunks))))
        pieces += chunks


def _binary_header(length: int) -> bytes:
    """What msgpack writes before so many bytes."""
    if length < 1 << 8:
        return struct.pack(">BB", 0xC4, length)
    return struct.pack(">BH", 0xC5, length) if length < 1 << 16 else struct.pack(">BI", 0xC6, length)


def decode_checkpoint(blob: bytes) -> Checkpoint:
    """Raises CheckpointError."""
    try:
        fields = _decode(blob)
        if fields and fields[0] == 1 and len(fields) == _VERSION_1_SCALARS + 3:
            return _read_version_1(fields)
        if fields and fields[0] == 2 and len(fields) == 6 and len(fields[1]) == _VERSION_2_SCALARS:
            return _of_version_2(fields[1], _unpack_runs(fields[2]), OffsetRanges.unpack(fields[3]), *fields[4:])
        if not fields or fields[0] != VERSION or not 7 <= len(fields) <= 14 or len(fields[1]) != SCALARS:
            raise CheckpointError(f"queue checkpoint of version {fields[:1]}, version {VERSION} is read here")
        _, scalars, runs, ahead, dedup, groups, config, *later = fields
        level = later.pop() if len(later) == 7 else LEVEL_FIRST
        scheduled, producers, last_purge, metering, letters_taken, delayed = [*later, *([[]] * 6)][:6]
        return Checkpoint(
            scalars, _unpack_runs(runs), OffsetRanges.unpack(ahead), dedup, groups, config,
            Schedule.unpack(scheduled), producers, last_purge, metering, letters_taken, Schedule.unpack(delayed), level,
        )  # fmt: skip
    except CheckpointError:
        raise
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise CheckpointError(f"queue checkpoint: {error}") from error


def _read_version_1(fields: list[Any]) -> Checkpoint:
    ahead = OffsetRanges()
    for offset in accumulate(fields[-1]):
        ahead.add(offset, offset + 1)
    return _of_version_2([*fields[1:-2], *_VERSION_1_REST], _unpack_runs(fields[-2]), ahead, [], [])


def _of_version_2(
    scalars: list[int], live: Live, ahead: OffsetRanges, dedup: list[Any], groups: list[Any]
) -> Checkpoint:
    config = [*scalars[5:7], bool(scalars[12]), *scalars[13:16]]
    scalars = [*scalars[:5], *scalars[7:12], *scalars[16:]]
    return Checkpoint(scalars, live, ahead, dedup, groups, config, Schedule(), [], [], [], [], Schedule())


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
