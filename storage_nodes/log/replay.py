"""Replaying the write-ahead log: its records, in order, on top of what the manifest says."""

from __future__ import annotations

import os

from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.flush import Flusher
from storage_nodes.log.manifest import Manifest
from storage_nodes.log.partition_log import LogStore, PartitionLog
from storage_nodes.log.record_batch import ATTRIBUTE_CONFIGURATION, BatchError, read_configuration, read_header
from storage_nodes.log.wal import (
    GROUP_HEADER_BYTES,
    OFFSET,
    PLACE_SHIFT,
    RECORD,
    RECORD_BYTES,
    RECORD_CREATE,
    RECORD_DROP,
    RECORD_ENTRY,
    RECORD_SUSPECT,
    RECORD_TRUNCATE,
    RECORD_VOTE,
    VOTE,
    wal_name,
)


class Replay:
    """Applies WAL records on top of the manifest's state.

    Older files may be replayed for the sake of one partition, so records that the manifest's row already covers come
    by again: an entry below `flushed_end` is passed over, a truncation cuts what this replay added, votes only move
    forward.
    """

    def __init__(
        self, store: LogStore, partitions: dict[int, PartitionLog], manifest: Manifest, flusher: Flusher
    ) -> None:
        self.touched: dict[int, dict[int, None]] = {}
        self._store = store
        self._partitions = partitions
        self._tombstones = manifest.head.tombstones
        self._flusher = flusher
        self._stale: set[int] = set()

    def apply(self, number: int, position: int, sequence: int, body: bytes, behind_damage: bool) -> None:
        touched = self.touched.setdefault(number, {})
        path = os.path.join(self._store.wal.directory, wal_name(number))
        fold = self._record_behind_damage if behind_damage else self._record
        at = 0
        place = (number << PLACE_SHIFT) + position + GROUP_HEADER_BYTES
        while at < len(body):
            kind, partition, length = RECORD.unpack_from(body, at)
            at += RECORD_BYTES
            payload = body[at : at + length]
            if sequence > self._tombstones.get(partition, 0):
                touched[partition] = None
                try:
                    fold(kind, partition, payload, place + at, sequence)
                except (KeyError, BatchError) as error:
                    problem = f"record {kind} of partition {partition} does not follow from those before it ({error!r})"
                    raise CorruptionError(path, position + GROUP_HEADER_BYTES + at, problem) from error
            at += length

    def _record_behind_damage(self, kind: int, partition: int, payload: bytes, place: int, sequence: int) -> None:
        """Only what can be proved to follow (`salvage.py`)."""
        log = self._partitions.get(partition)
        if kind == RECORD_CREATE:
            self._record(kind, partition, payload, place, sequence)
        elif log is None:
            pass  # its creation was in the damaged part
        elif kind == RECORD_ENTRY:
            header = read_header(payload)
            proved = header.base_offset == 0 or header.epoch == log.last_epoch
            if proved and header.base_offset == log.log_end and sequence > log.void_sequence:
                self._entry(log, payload, place)
        elif kind == RECORD_TRUNCATE:
            offset = OFFSET.unpack(payload)[0]
            index = log.index
            if sequence > log.void_sequence and index is not None and offset in index.bases:
                self._truncate(log, offset)
        else:
            self._record(kind, partition, payload, place, sequence)

    def _record(self, kind: int, partition: int, payload: bytes, place: int, sequence: int) -> None:
        if kind == RECORD_ENTRY:
            if sequence > self._partitions[partition].void_sequence:
                self._entry(self._partitions[partition], payload, place)
        elif kind == RECORD_TRUNCATE:
            if sequence > self._partitions[partition].void_sequence:
                self._truncate(self._partitions[partition], OFFSET.unpack(payload)[0])
        elif kind == RECORD_VOTE:
            log = self._partitions[partition]
            epoch, voted_for = VOTE.unpack(payload)
            if epoch > log.epoch or (epoch == log.epoch and not log.voted_for):
                log.epoch, log.voted_for = epoch, voted_for
        elif kind == RECORD_SUSPECT:
            if sequence > self._partitions[partition].void_sequence:
                self._partitions[partition].suspect = bool(payload[0])
        elif kind == RECORD_CREATE:
            if partition not in self._partitions:
                self._partitions[partition] = PartitionLog(self._store, partition, payload[0], payload[1:].decode())
        elif kind == RECORD_DROP:
            self._stale.discard(partition)
            self._flusher.dropped(self._partitions.pop(partition), sequence)
        else:
            raise BatchError(f"unknown record type {kind}")

    def _entry(self, log: PartitionLog, batch: bytes, place: int) -> None:
        header = read_header(batch)
        if header.base_offset < log.flushed_end:
            return
        if header.base_offset != log.log_end or header.epoch < log.last_epoch:
            # Written before the truncation that made room for what is flushed now: that must come by next.
            self._stale.add(log.partition)
            return
        if header.epoch != log.last_epoch:
            log.start_epoch(header.epoch, header.base_offset)
        log.last_stamp_ms = max(log.last_stamp_ms, header.timestamp_ms)
        log.add_entry(header.base_offset, place, len(batch))
        log.log_end = log.durable_end = header.end_offset
        if header.attributes & ATTRIBUTE_CONFIGURATION:
            log.configure(header.end_offset, read_configuration(batch))

    def _truncate(self, log: PartitionLog, offset: int) -> None:
        self._stale.discard(log.partition)
        offset = min(max(offset, log.flushed_end), log.log_end)
        index = log.index
        if offset < log.log_end and (index is None or offset not in index.bases):
            raise BatchError(f"a truncation to {offset} falls inside an entry")
        log.cut(offset)

    def finish(self, damaged: bool) -> None:
        """Raises CorruptionError if entries remain that follow neither what was flushed nor each other."""
        for partition in () if damaged else self._stale:
            log = self._partitions[partition]
            problem = f"partition {partition} has entries that do not follow its end, {log.log_end}"
            raise CorruptionError(self._store.wal.directory, 0, problem)
