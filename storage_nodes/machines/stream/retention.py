"""Where a stream's log may be cut, without remembering every batch.

The log's messages are divided into *marks*: neighbouring batches that are dropped together. A mark is closed when it
holds `mark_bytes` or spans a hundredth of the retention; when there are MARKS_MAX of them neighbours are joined in
pairs and `mark_bytes` doubles. So memory stays below 300 KB and retention is exact to a percent in time and to about
1/500 in bytes. All of it is a pure function of the log: every replica has the same marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage_nodes.machines.fold_constants import LEVEL_1

MARK_BYTES_MIN = LEVEL_1.mark_bytes_min
MARKS_MAX = LEVEL_1.marks_max
MARKS_PER_RETENTION = LEVEL_1.marks_per_retention


class Mark(NamedTuple):
    first_offset: int
    last_offset: int
    oldest_ms: int  # append time of its first batch
    newest_ms: int  # the latest append time in it
    size_bytes: int


class Marks:
    """Marks in offset order."""

    __slots__ = ("mark_bytes", "marks", "total_bytes")

    def __init__(self, marks: Sequence[Mark] = (), mark_bytes: int = MARK_BYTES_MIN) -> None:
        self.marks = list(marks)
        self.mark_bytes = mark_bytes
        self.total_bytes = sum(mark.size_bytes for mark in self.marks)

    def add(self, base_offset: int, last_offset: int, timestamp_ms: int, size_bytes: int, retention_ms: int) -> None:
        marks = self.marks
        self.total_bytes += size_bytes
        if marks:
            first, _, oldest_ms, newest_ms, held_bytes = marks[-1]
            if held_bytes < self.mark_bytes and timestamp_ms - oldest_ms <= retention_ms // MARKS_PER_RETENTION:
                newest_ms = max(newest_ms, timestamp_ms)
                marks[-1] = Mark(first, last_offset, oldest_ms, newest_ms, held_bytes + size_bytes)
                return
        marks.append(Mark(base_offset, last_offset, timestamp_ms, timestamp_ms, size_bytes))
        if len(marks) > MARKS_MAX:
            self._join()

    def start_after(self, oldest_ms: int, bytes_max: int) -> int:
        """Where the log should start: behind every mark that is too old, or one too many (0 = no limit).

        0 = nothing to cut.
        """
        excess_bytes = self.total_bytes - bytes_max if bytes_max else -1
        start = 0
        for mark in self.marks:
            if mark.newest_ms > oldest_ms and excess_bytes < mark.size_bytes:
                break
            excess_bytes -= mark.size_bytes
            start = mark.last_offset + 1
        return start

    def trim(self, log_start: int) -> None:
        """Forget marks that lie below log_start as a whole."""
        cut = 0
        while cut < len(self.marks) and self.marks[cut].last_offset < log_start:
            self.total_bytes -= self.marks[cut].size_bytes
            cut += 1
        del self.marks[:cut]

    def _join(self) -> None:
        marks = self.marks
        joined = [
            Mark(a.first_offset, b.last_offset, a.oldest_ms, max(a.newest_ms, b.newest_ms), a.size_bytes + b.size_bytes)
            for a, b in zip(marks[::2], marks[1::2], strict=False)
        ]
        if len(marks) % 2:
            joined.append(marks[-1])
        self.marks = joined
        self.mark_bytes *= 2
