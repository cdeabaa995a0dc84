"""What a node remembers of entries that are not in a segment yet.

Two things, kept apart because they are bounded differently:

- `UnflushedIndex`, one per partition that has unflushed entries: three parallel arrays, 20 bytes an entry, however
  large the entry is. It must hold every unflushed entry. Arrays for one entry weigh 380 bytes, and a node has thousands
  of partitions whose logs hold little more than the start of an epoch: up to FEW_ENTRIES stand packed in one bytes
  object, and are unpacked whenever they are looked at.
- `PayloadCache`, one per node: the bytes of the most recent entries of all partitions, up to a bound, by *place*.

A *place* says where in the write-ahead log the bytes of an entry are: `file number << 32 | position in the file`.
Places only ever grow and are never reused, so they order all entries of a node by age, and a payload whose entry
was truncated or flushed needs no removal: nothing asks for its place again, and it ages out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from struct import Struct

# What Python spends on a cached payload beside its bytes (bytes header, dict slot, place, queue slot), so that
# very many very small entries stay within the bound too.
PAYLOAD_OVERHEAD_BYTES = 200

# Base offset, place and length of a packed entry.
_PACKED = Struct("=qqI")
FEW_ENTRIES = 4
_FEW_BYTES = FEW_ENTRIES * _PACKED.size


class PayloadCache:
    """Payloads of the most recent entries, oldest evicted first."""

    __slots__ = ("_bytes_max", "_order", "bytes_held", "payloads", "written_place")

    def __init__(self, bytes_max: int) -> None:
        self.payloads: dict[int, bytes] = {}
        self.bytes_held = 0
        # Everything before this place is in the WAL file. What is not must stay here: there is no other way to read it.
        self.written_place = 0
        self._bytes_max = bytes_max
        self._order: deque[int] = deque()

    def add(self, place: int, payload: bytes) -> None:
        """Remember the newest entry; makes room first-in first-out."""
        self.payloads[place] = payload
        order = self._order
        order.append(place)
        self.bytes_held += len(payload) + PAYLOAD_OVERHEAD_BYTES
        while self.bytes_held > self._bytes_max and order[0] < self.written_place:
            self.bytes_held -= len(self.payloads.pop(order.popleft())) + PAYLOAD_OVERHEAD_BYTES


class UnflushedIndex:
    """Where the unflushed entries of one partition are, oldest first. Invariant: the arrays are ascending and equally
    long, except while `add` runs: `lengths` is filled last, so another thread goes by its length."""

    __slots__ = ("bases", "lengths", "places")

    def __init__(self) -> None:
        self.bases = array("q")
        self.places = array("q")
        self.lengths = array("I")

    def __len__(self) -> int:
        return len(self.lengths)

    def find(self, offset: int) -> int:
        """Index of the entry that covers `offset`, or of the first one after it."""
        return max(bisect_right(self.bases, offset, 0, len(self.lengths)) - 1, 0)

    def count_before_place(self, place: int) -> int:
        """How many entries lie before `place` in the write-ahead log."""
        return bisect_left(self.places, place)

    def cut(self, offset: int) -> None:
        """Forget every entry from `offset` on, which must be the start of one."""
        first = bisect_left(self.bases, offset)
        del self.lengths[first:]
        del self.places[first:]
        del self.bases[first:]

    def copy_first(self, count: int, log_end: int) -> tuple[array[int], array[int], array[int]]:
        """(bases and the end of the last, places, lengths) of the `count` oldest entries."""
        bases = self.bases[: count + 1]
        if len(bases) == count:
            bases.append(log_end)
        return bases, self.places[:count], self.lengths[:count]

    def without_first(self, count: int) -> UnflushedIndex | None:
        """A new index without the `count` oldest entries; None if none is left."""
        if count == len(self.lengths):
            return None
        rest = UnflushedIndex()
        rest.bases = self.bases[count:]
        rest.places = self.places[count:]
        rest.lengths = self.lengths[count:]
        return rest


def packed_with(packed: bytes, base: int, place: int, length: int) -> bytes | UnflushedIndex:
    """What was packed, and a newer entry."""
    packed += _PACKED.pack(base, place, length)
    return packed if len(packed) <= _FEW_BYTES else unpacked(packed)


def unpacked(packed: bytes) -> UnflushedIndex:
    index = UnflushedIndex()
    for base, place, length in _PACKED.iter_unpack(packed):
        index.bases.append(base)
        index.places.append(place)
        index.lengths.append(length)
    return index


def packed_if_few(index: UnflushedIndex | None) -> bytes | UnflushedIndex:
    """As a partition keeps it; nothing is b""."""
    if index is None:
        return b""
    if len(index) > FEW_ENTRIES:
        return index
    return b"".join(map(_PACKED.pack, index.bases, index.places, index.lengths))
