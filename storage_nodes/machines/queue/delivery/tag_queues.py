"""A tag queue: waiting messages of one tag, in log order. A backlog consists of tag queues (backlog.py).

    common tag queue of a tag   messages of all groups; runs of different groups follow each other
    tag queue aside             messages of one tag and one group, which was noisy when they were come upon

A run is a stretch of neighbouring messages of one group: 16 bytes and a reference, however long it is. `again` holds
messages that may be received again, or that were delayed and are due; an entry is only a hint, the leases decide.
Each of those stands where it came back: at the place in the log that was next then, one behind the other. So they and
what waits at those places take turns, and neither waits for all of the other.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right

from storage_nodes.machines.queue.effects import Key

# Runs at the front that are used up, before the arrays are cut.
_HEAD_MAX = 256
NOTHING = 1 << 62


class TagQueue:
    __slots__ = (
        "_ends",
        "_groups",
        "_head",
        "_starts",
        "again",
        "count",
        "group",
        "in_fronts",
        "is_noisy",
        "number",
        "offered",
        "tag",
    )

    def __init__(self, number: int, tag: bytes, group: bytes | None) -> None:
        self.number = number
        self.tag = tag
        self.group = group  # None: a common tag queue
        self.is_noisy = False  # its group is passed over now
        self.offered = NOTHING  # by what it is known in the heap it belongs to
        self.in_fronts = False
        self.again: list[tuple[int, int]] = []  # heap of (where it stands, offset)
        self.count = 0  # messages in its runs
        self._starts = array("q")
        self._ends = array("q")  # exclusive
        self._groups: list[bytes] = []  # of a common tag queue, a run each
        self._head = 0  # runs before it are used up

    @property
    def is_empty(self) -> bool:
        return self._head == len(self._starts) and not self.again

    @property
    def runs(self) -> int:
        return len(self._starts) - self._head

    @property
    def first_fresh(self) -> int:
        return self._starts[self._head] if self._head < len(self._starts) else NOTHING

    @property
    def sort_key(self) -> int:
        """Less than that of another tag queue: goes first. At one place the fresh message goes first, here too."""
        if self.is_again_next:
            return 2 * self.again[0][0] + 1
        first = self.first_fresh
        return 2 * first if first != NOTHING else NOTHING

    @property
    def is_again_next(self) -> bool:
        """Is what goes next one of `again`? At one place the fresh message goes first."""
        return bool(self.again) and self.again[0][0] < self.first_fresh

    @property
    def fresh_group(self) -> bytes:
        """Of its first run."""
        return self._groups[self._head] if self.group is None else self.group

    def add(self, first: int, end: int, group: bytes) -> bool:
        """Take in [first, end) behind all others; False if that only made the last run longer."""
        self.count += end - first
        ends = self._ends
        if self._head < len(ends) and ends[-1] == first and (self.group is not None or self._groups[-1] == group):
            ends[-1] = end
            return False
        self._starts.append(first)
        ends.append(end)
        if self.group is None:
            self._groups.append(group)
        return True

    def placed(self) -> list[tuple[int, Key]]:
        """(first offset, (group, tag)) of each run."""
        runs = range(self._head, len(self._starts))
        groups = self._groups
        return [(self._starts[at], (groups[at] if self.group is None else self.group, self.tag)) for at in runs]

    def add_again(self, place: int, offset: int) -> None:
        heapq.heappush(self.again, (place, offset))

    def first_run(self) -> tuple[int, int]:
        return self._starts[self._head], self._ends[self._head]

    def take(self, end: int) -> bool:
        """Take off the first run what stands before `end`; True if that was all of it."""
        self.count -= end - self._starts[self._head]
        if end < self._ends[self._head]:
            self._starts[self._head] = end
            return False
        self._head += 1
        if self._head > _HEAD_MAX and 2 * self._head > len(self._starts):
            del self._starts[: self._head], self._ends[: self._head], self._groups[: self._head]
            self._head = 0
        return True

    def holds(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset, self._head) - 1
        return at >= self._head and offset < self._ends[at]

    def cut(self, offset: int) -> int:
        """Take one message out that it holds; by how much the number of runs changed."""
        self.count -= 1
        at = bisect_right(self._starts, offset, self._head) - 1
        first, end = self._starts[at], self._ends[at]
        if first < offset and offset + 1 < end:
            self._ends[at] = offset
            self._starts.insert(at + 1, offset + 1)
            self._ends.insert(at + 1, end)
            if self.group is None:
                self._groups.insert(at + 1, self._groups[at])
            return 1
        if first < offset:
            self._ends[at] = offset
        elif offset + 1 < end:
            self._starts[at] = offset + 1
        else:
            del self._starts[at], self._ends[at]
            if self.group is None:
                del self._groups[at]
            return -1
        return 0

    def clear_fresh(self) -> None:
        del self._starts[:], self._ends[:], self._groups[:]
        self.count = 0
        self._head = 0
