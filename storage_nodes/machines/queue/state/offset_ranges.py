"""A set of offsets as ranges that neither overlap nor touch: 16 bytes a range, whatever it spans.

The ranges stand in blocks of up to BLOCK_RANGES_MAX, each of two sorted arrays. So an addition among a million ranges,
or a removal in front of them, moves those of one block.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from math import inf
from operator import sub

from storage_nodes.machines.driver_contract import Piece

BLOCK_RANGES_MAX = 2_048
# Of so many ranges on the packed form is made piece by piece, each of a block.
LAZY_RANGES_MIN = 16_384
# msgpack: an array of up to 2^32 elements, and an integer in eight bytes.
_ARRAY, _INTEGER = 0xDD, 0xCF
_INTEGER_BYTES = 9


class OffsetRanges:
    __slots__ = ("_ends", "_lows", "_starts")

    def __init__(self) -> None:
        # By block, none of which is empty: starts and ends of its ranges, which are exclusive, and the first start.
        self._starts: list[array[int]] = []
        self._ends: list[array[int]] = []
        self._lows: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._lows)

    def __len__(self) -> int:
        """Ranges, not offsets."""
        return sum(map(len, self._starts))

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._lows, offset) - 1
        return at >= 0 and offset < self._ends[at][bisect_right(self._starts[at], offset) - 1]

    def __iter__(self) -> Iterator[int]:
        for start, end in self.ranges():
            yield from range(start, end)

    def __eq__(self, other: object) -> bool:
        return set(self) == (set(other) if isinstance(other, OffsetRanges) else other)

    __hash__ = None  # type: ignore[assignment]

    # --- changes ----------------------------------------------------------------------------------------------

    def add(self, first: int, end: int) -> None:
        """Take in [first, end)."""
        if not self._lows or first > self._ends[-1][-1]:
            self._append(first, end)
            return
        at = self._block(first)
        if self._low_behind(at) <= end:
            end = self._absorb(at + 1, end)
        starts, ends = self._starts[at], self._ends[at]
        low = bisect_left(ends, first)
        high = bisect_right(starts, end)
        if low == high:
            self._insert(at, low, first, end)
            return
        starts[low] = min(first, starts[low])
        ends[low] = max(end, ends[high - 1])
        if high - low > 1:
            del starts[low + 1 : high]
            del ends[low + 1 : high]
        self._lows[at] = starts[0]

    def take(self, offset: int) -> bool:
        """Take in one offset; whether it was not there yet."""
        lows = self._lows
        at = bisect_right(lows, offset) - 1
        if at < 0:
            if not lows:
                self._append(offset, offset + 1)
                return True
            at = 0
        starts, ends = self._starts[at], self._ends[at]
        place = bisect_right(starts, offset)  # of the range behind it
        before = ends[place - 1] if place else -1
        if offset < before:
            return False
        if place == len(starts):
            if at + 1 < len(lows) and lows[at + 1] == offset + 1:
                self.add(offset, offset + 1)
            elif before == offset:
                ends[-1] = offset + 1
            else:
                self._insert(at, place, offset, offset + 1)
        elif starts[place] == offset + 1:
            if before == offset:
                ends[place - 1] = ends[place]
                del starts[place], ends[place]
            else:
                starts[place] = offset
                lows[at] = starts[0]
        elif before == offset:
            ends[place - 1] = offset + 1
        else:
            self._insert(at, place, offset, offset + 1)
        return True

    def drop_below(self, offset: int) -> None:
        passed = bisect_right(self._lows, offset) - 1
        if passed < 0:
            return
        count = bisect_right(self._ends[passed], offset)
        if count == len(self._ends[passed]):
            passed, count = passed + 1, 0
        if passed:
            del self._starts[:passed], self._ends[:passed], self._lows[:passed]
        if self._lows:
            starts = self._starts[0]
            if count:
                del starts[:count], self._ends[0][:count]
            self._lows[0] = starts[0] = max(starts[0], offset)

    # --- questions --------------------------------------------------------------------------------------------

    def covers(self, first: int, end: int) -> bool:
        if first >= end:
            return True
        at = bisect_right(self._lows, first) - 1
        return at >= 0 and end <= self._ends[at][bisect_right(self._starts[at], first) - 1]

    def is_disjoint(self, first: int, end: int) -> bool:
        if not self._lows:
            return True
        at = self._block(first)
        place = bisect_right(self._ends[at], first)
        low = self._starts[at][place] if place < len(self._starts[at]) else self._low_behind(at)
        return low >= end

    def gaps(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts [from, to) of [first, end) that are not in the set."""
        found: list[tuple[int, int]] = []
        at = self._block(first)
        while first < end and at < len(self._lows) and self._lows[at] < end:
            starts, ends = self._starts[at], self._ends[at]
            place = bisect_right(ends, first)
            while first < end and place < len(starts) and starts[place] < end:
                if starts[place] > first:
                    found.append((first, starts[place]))
                first = ends[place]
                place += 1
            at += 1
        if first < end:
            found.append((first, end))
        return found

    def end_of_first(self, offset: int) -> int:
        """Where the range that holds `offset` ends, if it is the first one; `offset` itself otherwise."""
        return self._ends[0][0] if self and self._lows[0] <= offset < self._ends[0][0] else offset

    def ranges(self) -> list[tuple[int, int]]:
        """[first, end) of each."""
        return list(zip(chain.from_iterable(self._starts), chain.from_iterable(self._ends), strict=True))

    # --- checkpoints ------------------------------------------------------------------------------------------

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
        pieces: list[Piece] = [struct.pack(">BI", _ARRAY, 2 * len(self))]
        before = 0
        for starts, ends in zip(self._starts, self._ends, strict=True):
            pieces.append(_RangesPiece(before, starts[:], ends[:]))
            before = ends[-1]
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

    # --- blocks -----------------------------------------------------------------------------------------------

    def _block(self, offset: int) -> int:
        """That in which the offset belongs: what is before the first one, there."""
        return max(0, bisect_right(self._lows, offset) - 1)

    def _low_behind(self, at: int) -> float:
        """Where the block behind this one begins; infinite behind the last."""
        return self._lows[at + 1] if at + 1 < len(self._lows) else inf

    def _append(self, first: int, end: int) -> None:
        """A range behind all others."""
        if not self._lows or len(self._starts[-1]) >= BLOCK_RANGES_MAX:
            self._starts.append(array("q"))
            self._ends.append(array("q"))
            self._lows.append(first)
        self._starts[-1].append(first)
        self._ends[-1].append(end)

    def _insert(self, at: int, place: int, first: int, end: int) -> None:
        starts, ends = self._starts[at], self._ends[at]
        starts.insert(place, first)
        ends.insert(place, end)
        self._lows[at] = starts[0]
        if len(starts) > BLOCK_RANGES_MAX:
            half = len(starts) // 2
            self._starts.insert(at + 1, starts[half:])
            self._ends.insert(at + 1, ends[half:])
            self._lows.insert(at + 1, starts[half])
            del starts[half:], ends[half:]

    def _absorb(self, at: int, end: int) -> int:
        """Takes ranges that begin at `end`, or before, out of the blocks from this one on; where `end` is with them."""
        while at < len(self._lows) and self._lows[at] <= end:
            starts, ends = self._starts[at], self._ends[at]
            count = bisect_right(starts, end)
            end = max(end, ends[count - 1])
            if count < len(starts):
                del starts[:count], ends[:count]
                self._lows[at] = starts[0]
                break
            del self._starts[at], self._ends[at], self._lows[at]
        return end


class _RangesPiece:
    """The packed form of a block's ranges."""

    __slots__ = ("_before", "_ends", "_starts")

    def __init__(self, before: int, starts: array[int], ends: array[int]) -> None:
        """`before`: where the range in front of them ends."""
        self._before, self._starts, self._ends = before, starts, ends

    @property
    def nbytes(self) -> int:
        return 2 * _INTEGER_BYTES * len(self._starts)

    def __bytes__(self) -> bytes:
        starts, ends = self._starts, self._ends
        marked = [_INTEGER] * (4 * len(starts))
        marked[1::4] = map(sub, starts, chain((self._before,), ends))
        marked[3::4] = map(sub, ends, starts)
        return struct.pack(">" + "BQ" * (2 * len(starts)), *marked)
