"""Scheduled messages of a partition: where each stands in the log and when it is due; no more of them is in memory.

Two orders of the same pairs, both changed by the fold and both in the checkpoint, so that neither a failover nor a
restore has anything to sort:

    by offset     (offset, due_ms)   what is live in a stretch of the log, when a message is due, cancelling
    by due time   (due_ms, offset)   what is due next, listing

So a scheduled message costs 16 bytes in memory where what stands together is due within 49 days (sorted_pairs.py), up
to 32 where it is not, and 32 in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_nodes.machines.driver_contract import Piece
from storage_nodes.machines.queue.state.sorted_pairs import Pair, SortedPairs

_NOTHING = SortedPairs()


class Schedule:
    """What is scheduled: offsets of messages and when they are due."""

    __slots__ = ("_by_due", "_by_offset", "count")

    def __init__(self) -> None:
        self._by_offset = self._by_due = _NOTHING  # pairs of their own from the first message on
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Pair]:
        """(offset, due_ms), by offset."""
        return iter(self._by_offset)

    def add(self, offset: int, due_ms: int) -> None:
        if self._by_offset is _NOTHING:
            self._by_offset, self._by_due = SortedPairs(), SortedPairs()
        self.count += 1
        self._by_offset.add(offset, due_ms)
        self._by_due.add(due_ms, offset)

    def remove(self, offset: int) -> bool:
        """Whether it was scheduled."""
        due_ms = self._by_offset.get(offset)
        if due_ms is None:
            return False
        self.count -= 1
        self._by_offset.remove(offset, due_ms)
        self._by_due.remove(due_ms, offset)
        return True

    def due_ms(self, offset: int) -> int | None:
        """None = it is not scheduled."""
        return self._by_offset.get(offset)

    def first_due_ms(self) -> int:
        """0 = nothing is scheduled."""
        first = self._by_due.first()
        return 0 if first is None else first[0]

    def first_offset(self) -> int | None:
        first = self._by_offset.first()
        return None if first is None else first[0]

    def due_by(self, time_ms: int, count_max: int) -> list[Pair]:
        """The first (due_ms, offset) that are due at that time."""
        return self._by_due.page((-1, -1), count_max, time_ms)

    def page(self, after: Pair, count_max: int, until_ms: int) -> list[Pair]:
        """(due_ms, offset) beyond `after`, in order."""
        return self._by_due.page(after, count_max, until_ms)

    def any_between(self, first_offset: int, last_offset: int) -> bool:
        return self._by_offset.has_key_between(first_offset, last_offset)

    def clear(self) -> None:
        self._by_offset = self._by_due = _NOTHING
        self.count = 0

    def pack(self) -> list[bytes]:
        """Empty where nothing is scheduled."""
        return [*self._by_offset.pack(), *self._by_due.pack()] if self.count else []

    def freeze(self) -> list[list[Piece]]:
        """What `pack` gives, in pieces that do not change any more; no copy."""
        return [*self._by_offset.freeze(), *self._by_due.freeze()] if self.count else []

    @classmethod
    def unpack(cls, packed: Sequence[bytes] = ()) -> Schedule:
        """Raises ValueError."""
        schedule = cls()
        if packed:
            offsets, dues_of_offsets, dues, offsets_of_dues = packed
            schedule._by_offset, schedule._by_due = SortedPairs(), SortedPairs()
            schedule._by_offset.unpack(offsets, dues_of_offsets)
            schedule._by_due.unpack(dues, offsets_of_dues)
            schedule.count = schedule._by_offset.count
            if schedule._by_due.count != schedule.count:
                raise ValueError("the two orders of scheduled messages differ")
        return schedule
