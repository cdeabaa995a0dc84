"""A set of offsets as ranges that neither overlap nor touch, in two sorted arrays: 16 bytes a range, whatever it spans.

Additions come mostly at the end and removals at the front; both are one step there. In the middle they move the rest
of the arrays, a copy of 16 bytes a range.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

_NOTHING = array("q")


class OffsetRanges:
    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts = self._ends = _NOTHING  # arrays of their own from the first addition on; ends are exclusive

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        """Ranges, not offsets."""
        return len(self._starts)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __iter__(self) -> Iterator[int]:
        for start, end in zip(self._starts, self._ends, strict=True):
            yield from range(start, end)

    def __eq__(self, other: object) -> bool:
        return set(self) == (set(other) if isinstance(other, OffsetRanges) else other)

    __hash__ = None  # type: ignore[assignment]

    def add(self, first: int, end: int) -> None:
        """Take in [first, end)."""
        if self._starts is _NOTHING:
            self._starts, self._ends = array("q"), array("q")
        starts, ends = self._starts, self._ends
        if not ends or first > ends[-1]:
            starts.append(first)
            ends.append(end)
            return
        low = bisect_left(ends, first)
        high = bisect_right(starts, end)
        if low == high:
            starts.insert(low, first)
            ends.insert(low, end)
            return
        starts[low] = min(first, starts[low])
        ends[low] = max(end, ends[high - 1])
        if high - low > 1:
            del starts[low + 1 : high]
            del ends[low + 1 : high]

    def take(self, offset: int) -> bool:
        """Take in one offset; whether it was not there yet."""
        if self._starts is _NOTHING:
            self._starts, self._ends = array("q"), array("q")
        starts, ends = self._starts, self._ends
        at = bisect_right(starts, offset)  # of the range behind it
        before = ends[at - 1] if at else -1
        if offset < before:
            return False
        if at < len(starts) and starts[at] == offset + 1:
            if before == offset:
                ends[at - 1] = ends[at]
                del starts[at], ends[at]
            else:
                starts[at] = offset
        elif before == offset:
            ends[at - 1] = offset + 1
        else:
            starts.insert(at, offset)
            ends.insert(at, offset + 1)
        return True

    def drop_below(self, offset: int) -> None:
        starts, ends = self._starts, self._ends
        whole = bisect_right(ends, offset)
        if whole:
            del starts[:whole]
            del ends[:whole]
        if starts and starts[0] < offset:
            starts[0] = offset

    def covers(self, first: int, end: int) -> bool:
        at = bisect_right(self._starts, first) - 1
        return first >= end or (at >= 0 and end <= self._ends[at])

    def is_disjoint(self, first: int, end: int) -> bool:
        at = bisect_right(self._ends, first)
        return at == len(self._starts) or self._starts[at] >= end

    def gaps(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts [from, to) of [first, end) that are not in the set."""
        found: list[tuple[int, int]] = []
        starts, ends = self._starts, self._ends
        at = bisect_right(ends, first)
        while first < end:
            if at == len(starts) or starts[at] >= end:
                found.append((first, end))
                break
            if starts[at] > first:
                found.append((first, starts[at]))
            first = ends[at]
            at += 1
        return found

    def end_of_first(self, offset: int) -> int:
        """Where the range that holds `offset` ends, if it is the first one; `offset` itself otherwise."""
        return self._ends[0] if self._starts and self._starts[0] <= offset < self._ends[0] else offset

    def ranges(self) -> list[tuple[int, int]]:
        """[first, end) of each."""
        return list(zip(self._starts, self._ends, strict=True))

    def pack(self) -> list[int]:
        """Flat (gap since the last end, length)..."""
        flat: list[int] = []
        before = 0
        for start, end in zip(self._starts, self._ends, strict=True):
            flat += (start - before, end - start)
            before = end
        return flat

    @staticmethod
    def unpack(flat: list[int]) -> OffsetRanges:
        ranges = OffsetRanges()
        end = 0
        fields = iter(flat)
        for gap, length in zip(fields, fields, strict=True):
            start = end + gap
            end = start + length
            ranges.add(start, end)
        return ranges
