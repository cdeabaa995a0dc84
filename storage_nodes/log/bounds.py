"""The bounds of one node's log, as parameters: tests use tiny ones, a node the defaults."""

from __future__ import annotations

from dataclasses import dataclass

from storage_nodes import limits


@dataclass(frozen=True, slots=True)
class LogBounds:
    # A WAL file takes groups until it is at least this long; the last one may run past it.
    wal_file_bytes: int = limits.WAL_FILE_BYTES
    # A WAL file that was never used before is zero-filled this far ahead of the groups, not in one go: opening a node
    # and rolling to a fresh file stay short. Recycled files need none of it.
    wal_grow_bytes: int = 4 * limits.MIB
    # Recycled WAL files kept for the next rolls; more are removed.
    wal_spare_files_max: int = 2
    memtable_bytes_max: int = limits.MEMTABLE_BYTES_MAX
    segment_bytes_max: int = limits.SEGMENT_BYTES_MAX
    # Segments below this size are merged with their neighbours, at least so many at a time.
    segment_small_bytes: int = limits.SEGMENT_SMALL_BYTES
    merge_segments_min: int = 4
    # A segment is written anew when no more than this share of it still matters.
    rewrite_live_share_max: float = 0.5
    segment_index_interval_bytes: int = limits.SEGMENT_INDEX_INTERVAL_BYTES
    open_segment_files_max: int = limits.OPEN_SEGMENT_FILES_MAX
    # Checkpoints up to this size live in the manifest, larger ones in a file of their own.
    checkpoint_inline_bytes_max: int = 512
    # At flush, entries are asked about in runs of about this size: a run with one live message is kept as a whole.
    flush_run_bytes: int = 32 * limits.KIB
    # How many untouched partitions with segments are looked at per flush, so that retention reaches idle ones too.
    flush_revisits_max: int = 256
    # How many partitions one turn of the event loop plans, or swaps, at a flush.
    flush_slice_partitions: int = limits.FLUSH_SLICE_PARTITIONS

    def __post_init__(self) -> None:
        assert 0 < self.wal_grow_bytes <= max(self.wal_file_bytes, self.wal_grow_bytes)
        assert self.wal_file_bytes < 2**31, "a position in a WAL file must fit the low half of a place"
