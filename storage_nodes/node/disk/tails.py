"""Ends of the logs of stopped replicas, carried forward in the write-ahead log.

What a stopped replica holds beyond the commit position that it knows cannot move to segments: it may yet be cut. Where
its group has no leader that stays so, for days perhaps, and the write-ahead log file that holds it would stay, with all
files after it, until the disk is full. So once it lies STOPPED_WAL_FILES_MAX files back it is staged anew: a cut, and
the same entries behind it, in one group. A group is on the disk whole or not at all, so nothing is ever missing, and
the next flush lets go of the old files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from storage_nodes.limits import READ_BYTES_MAX, STOPPED_TAIL_BYTES_MAX, STOPPED_WAL_FILES_MAX
from storage_nodes.log.node_log import NodeLog, PartitionLog
from storage_nodes.log.record_batch import read_header
from storage_nodes.log.wal import PLACE_SHIFT


class LogTail(NamedTuple):
    """Entries [first, end) of a log that are not in segments."""

    log: PartitionLog
    commit: int
    first: int
    end: int


def old_tails(node_log: NodeLog, stopped: Iterable[tuple[PartitionLog, int]]) -> list[LogTail]:
    """Of these logs, with the position up to which each is known to be committed, those that hold old files."""
    found = []
    for log, commit in stopped:
        tail = _tail_of(node_log, log, commit)
        if tail is not None:
            found.append(tail)
    return found


def _tail_of(node_log: NodeLog, log: PartitionLog, commit: int) -> LogTail | None:
    index = log.index
    if log.dropped or index is None:
        return None
    at = bisect_left(index.bases, commit)
    if at == len(index.bases):
        return None
    if (index.places[at] >> PLACE_SHIFT) + STOPPED_WAL_FILES_MAX > node_log.wal_file_number:
        return None
    is_small = sum(index.lengths[at:]) <= STOPPED_TAIL_BYTES_MAX
    return LogTail(log, commit, index.bases[at], log.log_end) if is_small else None


def read_tail(tail: LogTail) -> list[bytes]:
    """BLOCKING. Raises CorruptionError."""
    batches: list[bytes] = []
    at = tail.first
    while at < tail.end:
        some = tail.log.read_cold(at, READ_BYTES_MAX)
        if not some:
            break  # it was dropped
        batches += some
        at = read_header(some[-1]).end_offset
    return batches


def carry(node_log: NodeLog, tail: LogTail, batches: list[bytes]) -> bool:
    """Stage it anew; False: the log is another one by now, or what was read is not all of it."""
    log = tail.log
    is_whole = bool(batches) and (read_header(batches[0]).base_offset, read_header(batches[-1]).end_offset) == (
        tail.first,
        tail.end,
    )
    is_same = node_log.partitions.get(log.partition) is log and _tail_of(node_log, log, tail.commit) == tail
    if not (is_whole and is_same):
        return False
    node_log.restage(log.partition, batches)
    return True
