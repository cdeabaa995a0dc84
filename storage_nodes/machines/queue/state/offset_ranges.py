"""A set of offsets as ranges that neither overlap nor touch, in two sorted arrays: 16 bytes a range, whatever it spans.

Additions come mostly at the end and removals at the front; both are one step there: what is removed at the front stays
in the arrays until it is half of them. In the middle additions move the rest, a copy of 16 bytes a range.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from operator import sub

from storage_nodes.machines.driver_contract import Piece

_NOTHING = array("q")
# Ranges that were removed at the front and are still there, at least, before the arrays are cut.
_GARBAGE_MIN = 1_024
# Of so many ranges on the packed form is made piece by piece, each of so many.
LAZY_RANGES_MIN = 16_384
_PIECE_RANGES = 2_048
# msgpack: an array of up to 2^32 elements, and an integer in eight bytes.
_ARRAY, _INTEGER = 0xDD, 0xCF
_INTEGER_BYTES = 9


class OffsetRanges:
    __slots__ = ("_ends", "_first", "_starts")

    def __init__(self) -> None:
        self._starts = self._ends = _NOTHING  # arrays of their own from the first addition on; ends are exclusive
        self._first = 0  # of the ranges that are there; those before it were removed

    def __bool__(self) -> bool:
        return len(self._starts) > self._first

    def __len__(self) -> int:
        """Ranges, not offsets."""
        return len(self._starts) - self._first

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset, self._first) - 1
        return at >= self._first and offset < self._ends[at]

    def __iter__(self) -> Iterator[int]:
        for start, end in self.ranges():
            yield from range(start, end)

    def __eq__(self, other: object) -> bool:
        return set(self) == (set(other) if isinstance(other, OffsetRanges) else other)

    __hash__ = None  # type: ignore[assignment]

    def add(self, first: int, end: int) -> None:
        """Take in [first, end)."""
        if self._starts is _NOTHING:
            self._starts, self._ends = array("q"), array("q")
        starts, ends = self._starts, self._ends
        if len(ends) == self._first or first > ends[-1]:
            starts.append(first)
            ends.append(end)
            return
        low = bisect_left(ends, first, self._first)
        high = bisect_right(starts, end, self._first)
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
        at = bisect_right(starts, offset, self._first)  # of the range behind it
        before = ends[at - 1] if at > self._first else -1
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
        self._first = at = bisect_right(ends, offset, self._first)
        if at == len(starts) or (at > _GARBAGE_MIN and 2 * at > len(starts)):
            del starts[:at]
            del ends[:at]
            self._first = at = 0
        if at < len(starts) and starts[at] < offset:
            starts[at] = offset

    def covers(self, first: int, end: int) -> bool:
        at = bisect_right(self._starts, first, self._first) - 1
        return first >= end or (at >= self._first and end <= self._ends[at])

    def is_disjoint(self, first: int, end: int) -> bool:
        at = bisect_right(self._ends, first, self._first)
        return at == len(self._starts) or self._starts[at] >= end

    def gaps(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts [from, to) of [first, end) that are not in the set."""
        found: list[tuple[int, int]] = []
        starts, ends = self._starts, self._ends
        at = bisect_right(ends, first, self._first)
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
        at = self._first
        return self._ends[at] if self and self._starts[at] <= offset < self._ends[at] else offset

    def ranges(self) -> list[tuple[int, int]]:
        """[first, end) of each."""
        return list(zip(self._starts[self._first :], self._ends[self._first :], strict=True))

    def pack(self) -> list[int]:
        """Flat (gap since the last end, length)..."""
        flat: list[int] = []
        before = 0
        for start, end in self.ranges():
            flat += (start - before, end - start)
            before = end
        return flat

    def pack_lazily(self) -> list[Piece]:
        """The same as msgpack, in pieces that are made when they are written: from copies, which nothing changes.
        Integers have eight bytes each, so that the size is known before."""
        starts, ends = self._starts[self._first :], self._ends[self._first :]
        pieces: list[Piece] = [struct.pack(">BI", _ARRAY, 2 * len(starts))]
        pieces += [_RangesPiece(starts, ends, first) for first in range(0, len(starts), _PIECE_RANGES)]
        return pieces

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


class _RangesPiece:
    """The packed form of some neighbouring ranges."""

    __slots__ = ("_ends", "_first", "_starts")

    def __init__(self, starts: array[int], ends: array[int], first: int) -> None:
        self._starts, self._ends, self._first = starts, ends, first

    @property
    def nbytes(self) -> int:
        return 2 * _INTEGER_BYTES * min(_PIECE_RANGES, len(self._starts) - self._first)

    def __bytes__(self) -> bytes:
        first, end = self._first, self._first + _PIECE_RANGES
        starts, ends = self._starts[first:end], self._ends[first:end]
        before = self._ends[first - 1] if first else 0
        marked = [_INTEGER] * (4 * len(starts))
        marked[1::4] = map(sub, starts, chain((before,), ends))
        marked[3::4] = map(sub, ends, starts)
        return struct.pack(">" + "BQ" * (2 * len(starts)), *marked)
