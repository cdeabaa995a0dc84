"""One partition's log, as its replica sees it: ends, epochs, hard state, reads.

    log_start            flushed_end                     durable_end     log_end
        |  segments (with    |   write-ahead log: every entry  |  staged    |
        |  gaps: dead ones)  |   has a place in the index      |  in groups |

Invariants: log_start <= whole_from <= flushed_end <= durable_end <= log_end; entries below flushed_end are committed
and never truncated; the first entry of the index starts at flushed_end; from whole_from on no entry is missing, so
that a follower which holds the log up to there can be fed from it. A log that was installed from a snapshot
(`install.py`) starts out as segments, maybe with gaps, and a flushed_end and whole_from at the snapshot's end.

A node has very many of these, most of them idle: slots, shared empty tuples, and an index only while there are
unflushed entries. The event-loop thread alone changes a partition; `read_cold` runs in other threads and takes
`LogStore.lock` for the moment in which it looks at what is where.
"""

from __future__ import annotations

import errno
import threading
from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import lru_cache
from typing import cast

from storage_nodes.log.checkpoint import CheckpointStore
from storage_nodes.log.errors import CorruptionError, UnreadableError
from storage_nodes.log.manifest import PartitionRow
from storage_nodes.log.memtable import PayloadCache, UnflushedIndex, packed_if_few, packed_with, unpacked
from storage_nodes.log.record_batch import BatchError, read_header, verify_batch
from storage_nodes.log.segment import SegmentRef, SegmentStore
from storage_nodes.log.wal import PLACE_MASK, PLACE_SHIFT, RECORD, RECORD_BYTES, RECORD_ENTRY, Wal, wal_name
from storage_nodes.protocol.configuration import (
    Configuration,
    ConfigurationEntry,
    decode_configuration,
    encode_configuration,
)

# Neighbours in a WAL file are read at once where no more than this lies between them.
_READ_GAP_BYTES = 16 * 1024
_READ_RUN_BYTES = 1024 * 1024
# Thousands of idle partitions have the same few epochs, at the same few offsets.
BOUNDARIES_SHARED_MAX = 1_024


class LogStore:
    """What all partitions of a node share."""

    __slots__ = ("cache", "checkpoints", "generation", "lock", "segments", "wal")

    def __init__(self, cache: PayloadCache, wal: Wal, segments: SegmentStore, checkpoints: CheckpointStore) -> None:
        self.cache = cache
        self.wal = wal
        self.segments = segments
        self.checkpoints = checkpoints
        # Held while an index is swapped or cut, and while a cold read looks up where to read.
        self.lock = threading.Lock()
        # Grows whenever files that a reader may have looked up are about to go: it then looks again.
        self.generation = 0


class PartitionLog:
    __slots__ = (
        "_checkpoint",
        "_checkpoint_number",
        "_epochs",
        "_index",
        "_segments",
        "_starts",
        "_store",
        "checkpoint_offset",
        "configurations",
        "dropped",
        "durable_end",
        "epoch",
        "flushed_end",
        "kind",
        "last_epoch",
        "last_stamp_ms",
        "log_end",
        "log_start",
        "partition",
        "suspect",
        "tag",
        "void_sequence",
        "voted_for",
        "whole_from",
    )

    def __init__(self, store: LogStore, partition: int, kind: int, tag: str) -> None:
        self._store = store
        self.partition = partition
        self.kind = kind
        self.tag = tag
        self.log_end = 0
        self.log_start = 0
        self.durable_end = 0
        self.flushed_end = 0
        self.whole_from = 0
        self.void_sequence = 0
        self.dropped = False  # its files may be gone at any time
        self.suspect = False  # may lack what it acknowledged (R12)
        self.epoch = 0
        self.voted_for = 0
        self.last_epoch = 0
        # The latest time that an entry was stamped with, also of those that were cut away or replaced by a snapshot.
        # Of a snapshot's own entries its checkpoint tells it; 0 = none is known.
        self.last_stamp_ms = 0
        self.checkpoint_offset = 0
        # Of the Raft group, oldest first: those whose entries are in the log or were dropped below its start, from the
        # one in force at the checkpoint on. A change is another tuple.
        self.configurations: tuple[ConfigurationEntry, ...] = ()
        self._checkpoint: bytes | None = None
        self._checkpoint_number = 0
        self._epochs: tuple[int, ...] = ()  # boundaries: epoch _epochs[i] starts at offset _starts[i]; both ascend
        self._starts: tuple[int, ...] = ()
        self._segments: tuple[SegmentRef, ...] = ()
        self._index: UnflushedIndex | bytes = b""  # packed while there are few

    @classmethod
    def from_row(cls, store: LogStore, row: PartitionRow) -> PartitionLog:
        log = cls(store, row.partition, row.kind, row.tag)
        log.epoch = row.epoch
        log.voted_for = row.voted_for
        log._adopt_row(row)
        return log

    def _adopt_row(self, row: PartitionRow) -> None:
        """The log ends where the flushed part ends."""
        self.log_start = row.log_start
        self.log_end = self.durable_end = self.flushed_end = row.flushed_end
        self.whole_from = row.flushed_end if row.whole_from < 0 else row.whole_from
        self.void_sequence = row.void_sequence
        self.suspect = row.suspect
        self.last_stamp_ms = max(self.last_stamp_ms, row.last_stamp_ms)
        self._epochs = _shared(row.epochs)
        self._starts = _shared(row.starts)
        self.last_epoch = row.epochs[-1] if row.epochs else 0
        self._segments = row.segments
        configurations = ((end, decode_configuration(data)) for end, data in row.configurations)
        self.configurations = tuple(ConfigurationEntry(*entry) for entry in configurations)
        self.adopt_checkpoint(row.checkpoint_offset, row.checkpoint, row.checkpoint_number)

    # --- positions ---------------------------------------------------------------------------------------------

    @property
    def checkpoint(self) -> bytes | None:
        """The fold state as of `checkpoint_offset`; None if there is none. Large ones are read from disk: BLOCKING."""
        if self._checkpoint_number:
            return self._store.checkpoints.read(self.partition, self._checkpoint_number, self.checkpoint_offset)
        return self._checkpoint

    def epoch_at(self, offset: int) -> int:
        """Epoch of the entry that ends at or covers offset - 1; 0 at offset 0 and below what is known."""
        assert 0 <= offset <= self.log_end
        if offset == self.log_end:
            return self.last_epoch
        at = bisect_left(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else 0

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest own epoch <= epoch, exclusive end of it); (0, where the known part starts) if all are younger."""
        at = bisect_right(self._epochs, epoch) - 1
        end = self._starts[at + 1] if at + 1 < len(self._starts) else self.log_end
        return (self._epochs[at], end) if at >= 0 else (0, end)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes of log lie beyond `offset`."""
        index = self.index
        unflushed = 0 if index is None else sum(index.lengths[index.find(offset) :])
        return unflushed + sum(ref.size_bytes for ref in self._segments if ref.end > offset)

    # --- reads -------------------------------------------------------------------------------------------------

    def read_hot(self, offset: int, bytes_max: int) -> list[bytes] | None:
        """Whole batches from memory, up to `bytes_max` but at least one; None if that takes `read_cold`. An empty
        list: there is nothing at or after `offset`."""
        if offset >= self.log_end:
            return []
        if offset < self.flushed_end and self._segments and self._segments[-1].end > offset:
            return None
        index = self.index
        if index is None:
            return []
        payloads = self._store.cache.payloads
        places = index.places
        lengths = index.lengths
        if lengths and index.bases[-1] == offset:
            # The newest entry: what a leader sends and folds nearly always.
            newest = payloads.get(places[-1])
            return None if newest is None else [newest]
        batches: list[bytes] = []
        for at in range(index.find(offset), len(lengths)):
            bytes_max -= lengths[at]
            if bytes_max < 0 and batches:
                break
            batch = payloads.get(places[at])
            if batch is None:
                return None
            batches.append(batch)
        return batches

    def read_cold(self, offset: int, bytes_max: int) -> list[bytes]:
        """BLOCKING, any thread: as `read_hot`, from wherever it is. Entries that are truncated meanwhile may still be
        returned; the caller looks at `log_end` again on the event loop. A dropped log may look empty. Raises
        CorruptionError."""
        store = self._store
        while True:
            with store.lock:
                generation = store.generation
                segments = self._segments
            try:
                batches, bytes_left = self._read_segments(segments, offset, bytes_max)
                if not batches or bytes_left > 0:
                    batches += self._read_wal(offset, bytes_left, not batches)
                if store.generation == generation:
                    return batches
            except (FileNotFoundError, CorruptionError) as error:
                # A flush may have moved what was looked up, and nobody misses what was dropped. Only if neither is so
                # is this the truth.
                if self.dropped:
                    return []
                if store.generation == generation:
                    if isinstance(error, CorruptionError):
                        raise
                    problem = "a file that the log still needs is missing"
                    raise CorruptionError(str(error.filename), 0, problem) from error

    def verify_segments(self) -> None:
        """BLOCKING: read all segments whole and check every checksum (the scrub). Raises CorruptionError."""
        for ref in self._segments:
            self._store.segments.open(self.partition, ref).verify()

    def _read_segments(self, segments: tuple[SegmentRef, ...], offset: int, bytes_max: int) -> tuple[list[bytes], int]:
        """(batches, bytes left for what follows the last segment)."""
        batches: list[bytes] = []
        for at in range(bisect_right(segments, offset, key=_segment_end), len(segments)):
            ref = segments[at]
            more = self._store.segments.open(self.partition, ref).read(offset, bytes_max, not batches)
            batches += more
            bytes_max -= sum(map(len, more))
            if bytes_max <= 0 or not more or read_header(more[-1]).end_offset < ref.end:
                return batches, 0
        return batches, bytes_max

    def _read_wal(self, offset: int, bytes_max: int, at_least_one: bool) -> list[bytes]:
        with self._store.lock:
            index = self.index
            if index is None or offset >= self.log_end:
                return []
            first = last = index.find(offset)
            while last < len(index):
                bytes_max -= index.lengths[last]
                if bytes_max < 0 and not (at_least_one and last == first):
                    break
                last += 1
            bases = index.bases[first:last].tolist()
            places = index.places[first:last].tolist()
            lengths = index.lengths[first:last].tolist()
            epochs = self.epochs_of(bases)
        batches: list[bytes] = []
        for start, end in split_runs(places, lengths):
            found = bases[start:end], epochs[start:end], places[start:end], lengths[start:end]
            batches += read_run(self._store, self.partition, *found)
        return batches

    # --- changes: by the node's log, on the event-loop thread -------------------------------------------------------

    def add_entry(self, base: int, place: int, length: int) -> None:
        """The entry at `base`, the newest one, is at `place`."""
        index = self._index
        if isinstance(index, bytes):
            self._index = packed_with(index, base, place, length)
        else:
            index.bases.append(base)
            index.places.append(place)
            index.lengths.append(length)

    def start_epoch(self, epoch: int, offset: int) -> None:
        """The entry at `offset` is the first of `epoch`."""
        assert epoch > self.last_epoch, "epochs of a log never fall"
        self._epochs = _shared((*self._epochs, epoch))
        self._starts = _shared((*self._starts, offset))
        self.last_epoch = epoch

    def configure(self, end_offset: int, configuration: Configuration) -> None:
        """The entry that ends at `end_offset` is a configuration of the group."""
        self.configurations += (ConfigurationEntry(end_offset, configuration),)

    def cut(self, offset: int) -> None:
        """Forget everything from `offset` on."""
        assert self.flushed_end <= offset <= self.log_end, "what was flushed is committed: it is never truncated"
        index = self.index
        if index is not None and offset < self.log_end:
            with self._store.lock:
                position = bisect_left(index.bases, offset)
                assert index.bases[position] == offset, "a truncation falls between entries"
                index.cut(offset)
                self._index = packed_if_few(index)
        known = bisect_left(self._starts, offset)
        self._epochs = self._epochs[:known]
        self._starts = self._starts[:known]
        self.last_epoch = self._epochs[-1] if known else 0
        if self.configurations and self.configurations[-1].end_offset > offset:
            self.configurations = tuple(entry for entry in self.configurations if entry.end_offset <= offset)
        self.log_end = offset
        self.durable_end = min(self.durable_end, offset)

    def adopt_checkpoint(self, offset: int, blob: bytes | None, number: int) -> None:
        self.checkpoint_offset = offset
        self._checkpoint = blob
        self._checkpoint_number = number

    def adopt_flush(self, row: PartitionRow, entries: int) -> None:
        """The `entries` oldest unflushed entries are where `row` says now. Under `LogStore.lock`."""
        if entries:
            index = self.index
            assert index is not None
            self._index = packed_if_few(index.without_first(entries))
        self.flushed_end = row.flushed_end
        self.log_start = row.log_start
        self.whole_from = row.whole_from
        self._segments = row.segments
        trimmed = len(self._starts) and bisect_left(self._starts, row.starts[0] if row.starts else 0)
        if trimmed:
            self._epochs = self._epochs[trimmed:]
            self._starts = self._starts[trimmed:]
        self.adopt_checkpoint(row.checkpoint_offset, row.checkpoint, row.checkpoint_number)
        first = _first_needed(self.configurations, row.checkpoint_offset)
        if first:
            self.configurations = self.configurations[first:]

    def adopt_install(self, row: PartitionRow, was_suspect: bool) -> None:
        """A snapshot replaced everything but the hard state and the suspect mark, which may have moved since the plan:
        a replica that became trusted meanwhile, or suspect, stays so. Under `LogStore.lock`."""
        cleared = was_suspect and not self.suspect
        marked = self.suspect and not was_suspect
        self._index = b""
        self._adopt_row(row)
        if cleared or marked:
            self.suspect = marked

    def adopt_rewrite(self, segments: tuple[SegmentRef, ...], log_start: int, whole_from: int) -> None:
        """The same entries, but for dead ones, are in these segments now. Under `LogStore.lock`."""
        self._segments = segments
        self.log_start = log_start
        self.whole_from = max(self.whole_from, whole_from)

    def adopt_index(self, index: UnflushedIndex) -> None:
        """The unflushed entries were written anew, elsewhere in the write-ahead log."""
        assert self.index is not None and len(index) == len(self.index)
        self._index = packed_if_few(index)

    # --- for the flush -----------------------------------------------------------------------------------------------

    @property
    def index(self) -> UnflushedIndex | None:
        """To be read: what is changed in it may be lost."""
        index = self._index
        if isinstance(index, bytes):
            return unpacked(index) if index else None
        return index

    @property
    def segments(self) -> tuple[SegmentRef, ...]:
        return self._segments

    @property
    def checkpoint_source(self) -> tuple[int, bytes | None, int]:
        """(offset, small blob, file number): as it stands in the manifest."""
        return self.checkpoint_offset, self._checkpoint, self._checkpoint_number

    def configuration_at(self, offset: int) -> ConfigurationEntry | None:
        """The configuration that the log up to `offset` ends with; None where it has none."""
        return next((entry for entry in reversed(self.configurations) if entry.end_offset <= offset), None)

    def committed_configuration(self) -> ConfigurationEntry | None:
        """What a replica goes on with that loses its log: the one in force at the checkpoint, without an entry."""
        entry = self.configuration_at(self.checkpoint_offset)
        return None if entry is None else entry._replace(end_offset=0)

    def configurations_below(self, checkpoint_offset: int, end: int) -> tuple[tuple[int, bytes], ...]:
        """For the manifest: the one in force at `checkpoint_offset` and those after it, up to `end`."""
        first = _first_needed(self.configurations, checkpoint_offset)
        return tuple(
            (entry.end_offset, encode_configuration(entry.configuration))
            for entry in self.configurations[first:]
            if entry.end_offset <= end
        )

    def epochs_of(self, bases: list[int]) -> list[int]:
        """Of the unflushed entries that begin there. In another thread under `LogStore.lock`, or for committed ones."""
        starts, epochs = self._starts, self._epochs
        known = (bisect_right(starts, base) for base in bases)
        return [epochs[at - 1] if at else 0 for at in known]

    def boundaries(self, first_offset: int, end: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Epochs and their starts that matter from `first_offset` to `end`, with the epoch of the entry before."""
        first = max(bisect_left(self._starts, first_offset) - 1, 0)
        last = bisect_left(self._starts, end)
        return self._epochs[first:last], self._starts[first:last]


@lru_cache(BOUNDARIES_SHARED_MAX)
def _shared(boundaries: tuple[int, ...]) -> tuple[int, ...]:
    return boundaries


def _first_needed(configurations: tuple[ConfigurationEntry, ...], offset: int) -> int:
    """Index of the configuration in force at `offset`: the ones before it are history."""
    return max(bisect_right(configurations, offset, key=_configuration_end) - 1, 0)


def _configuration_end(entry: ConfigurationEntry) -> int:
    return entry.end_offset


def _segment_end(ref: SegmentRef) -> int:
    return ref.end


def split_runs(places: list[int], lengths: list[int]) -> list[tuple[int, int]]:
    """[first, last) of neighbours that are near each other in one WAL file, so that one read gets them all."""
    runs: list[tuple[int, int]] = []
    first = 0
    for at in range(1, len(places)):
        gap = places[at] - places[at - 1] - lengths[at - 1]
        if not 0 <= gap <= _READ_GAP_BYTES or places[at] - places[first] > _READ_RUN_BYTES:
            runs.append((first, at))
            first = at
    if places:
        runs.append((first, len(places)))
    return runs


def read_run(
    store: LogStore, partition: int, bases: list[int], epochs: list[int], places: list[int], lengths: list[int]
) -> list[bytes]:
    """BLOCKING: the entries of one run, from memory where they are there (what is not written yet always is), otherwise
    from the WAL file, each checked against what it must be. Raises CorruptionError, FileNotFoundError."""
    payloads = store.cache.payloads
    batches = [payloads.get(place) for place in places]
    missing = [at for at, batch in enumerate(batches) if batch is None]
    if missing:
        first, last = missing[0], missing[-1]
        number = places[0] >> PLACE_SHIFT
        wal_file = store.wal.files.get(number)
        if wal_file is None or wal_file.file is None:
            raise FileNotFoundError(errno.ENOENT, "the WAL file was released", wal_name(number))
        position = (places[first] & PLACE_MASK) - RECORD_BYTES
        window: bytes | None = None
        with suppress(UnreadableError):  # what lies between them may be the reason
            window = wal_file.file.read(position, places[last] + lengths[last] - places[first] + RECORD_BYTES)
        for at in missing:
            start = places[at] - places[first]
            if window is None:
                record = wal_file.file.read(position + start, RECORD_BYTES + lengths[at])
            else:
                record = window[start : start + RECORD_BYTES + lengths[at]]
            problem = _problem_of(record, partition, bases[at], epochs[at], lengths[at])
            if problem:
                raise CorruptionError(wal_file.file.path, position + start, problem)
            batches[at] = record[RECORD_BYTES:]
    return cast(list[bytes], batches)


def _problem_of(record: bytes, partition: int, base: int, epoch: int, length: int) -> str:
    """Why the record is not the entry that was written there; empty if it is. The checksum of a batch covers neither
    its base offset nor its epoch."""
    if record[:RECORD_BYTES] != RECORD.pack(RECORD_ENTRY, partition, length):
        return f"not the record of partition {partition} that was written there"
    try:
        header = verify_batch(record[RECORD_BYTES:])
    except BatchError as error:
        return str(error)
    if (header.base_offset, header.epoch) == (base, epoch):
        return ""
    return f"the entry starts at offset {header.base_offset} in epoch {header.epoch}, not at {base} in {epoch}"
