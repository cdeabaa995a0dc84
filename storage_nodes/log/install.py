"""A partition's log that comes from elsewhere: written beside what is there, put in its place by one manifest.

    LogImport.add      in a thread: entries, in order, with gaps, to segment files that no manifest names yet
    LogImport.finish   in a thread: they are durable but for their names
    plan_install       event loop: from here on, until install_done, nothing is staged for the partition but votes
    run_install        in a thread: files get their names, then the manifest names them: this is the switch
    install_done       event loop: the partition's log is the new one

A crash before the switch leaves files that the next start removes; after it, WAL records of the old log are still there
but void: the row says up to which group. So there is the old log or the new one, and never a mixture. The hard state
(epoch, vote) belongs to neither and is kept.
"""

from __future__ import annotations

from typing import NamedTuple

from storage_nodes.log.manifest import PartitionRow
from storage_nodes.log.partition_log import LogStore, PartitionLog
from storage_nodes.log.record_batch import read_header
from storage_nodes.log.segment import SegmentRef, SegmentWriter
from storage_nodes.protocol.configuration import ConfigurationEntry


class ImportedLog(NamedTuple):
    """All of a log below `end_offset` that matters; `checkpoint` is the machine's state as of there."""

    end_offset: int
    epochs: list[int]
    starts: list[int]
    checkpoint: bytes | None
    segments: list[tuple[str, SegmentRef]]  # path, and what it holds; the number is given at the switch
    configuration: ConfigurationEntry | None = None  # the group's as of end_offset; None = the boot configuration


EMPTY = ImportedLog(0, [], [], None, [])


class InstallPlan:
    __slots__ = ("image", "log", "row", "was_suspect")

    def __init__(self, log: PartitionLog, image: ImportedLog, row: PartitionRow) -> None:
        self.log = log
        self.image = image
        self.row = row
        # Before the plan: the row says what it makes of that.
        self.was_suspect = log.suspect


class LogImport:
    """Gathers the entries of one snapshot. All methods BLOCKING, one at a time."""

    def __init__(self, store: LogStore, partition: int, serial: int, segment_bytes_max: int) -> None:
        self._store = store
        self._partition = partition
        self._serial = serial
        self._segment_bytes_max = segment_bytes_max
        self._writer: SegmentWriter | None = None
        self._paths: list[str] = []
        self._segments: list[tuple[str, SegmentRef]] = []

    def add(self, batches: list[bytes]) -> None:
        """Entries whose checksums the caller has verified."""
        for batch in batches:
            if self._writer is not None and self._writer.size_bytes + len(batch) > self._segment_bytes_max:
                self._finish_segment()
            if self._writer is None:
                name = f"{self._serial}-{len(self._paths)}"
                path, self._writer = self._store.segments.create_incoming(self._partition, name)
                self._paths.append(path)
            header = read_header(batch)
            self._writer.add(batch, header.base_offset, header.end_offset)

    def finish(self) -> list[tuple[str, SegmentRef]]:
        if self._writer is not None:
            self._finish_segment()
        return self._segments

    def discard(self) -> None:
        """The snapshot was given up."""
        for path in self._paths:
            self._store.segments.remove(path)

    def _finish_segment(self) -> None:
        assert self._writer is not None
        self._segments.append((self._paths[-1], self._writer.finish(0)))
        self._writer = None
