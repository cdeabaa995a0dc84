"""Scheduled messages of a partition: where each stands in the log and when it is due; no more of them is in memory.

Two orders of the same pairs, both changed by the fold and both in the checkpoint, so that neither a failover nor a
restore has anything to sort:

    by offset     (offset, due_ms)   what is live in a stretch of the log, when a message is due, cancelling
    by due time   (due_ms, offset)   what is due next, listing

A `SortedPairs` is a list of chunks, each two arrays of at most CHUNK_PAIRS_MAX numbers: 16 bytes a pair. A change moves
a part of one chunk, whatever the count; messages that arrive (their offsets grow) and delays of one length only append.
So a scheduled message costs 32 bytes in memory and in the checkpoint. That is not a copy: `freeze` lends the arrays to
who writes them, and a chunk that was lent is copied before its next change.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

assert sys.byteorder == "little", "checkpoints hold arrays as they stand in memory"

CHUNK_PAIRS_MAX = 2_048
_NUMBER_BYTES = 8

Pair = tuple[int, int]
Chunks = list["array[int]"]


class SortedPairs:
    """Distinct pairs of integers in ascending order."""

    __slots__ = ("_firsts", "_heads", "_is_lent", "_keys", "_values", "count")

    def __init__(self) -> None:
        self._keys: list[array[int]] = []
        self._values: list[array[int]] = []
        self._is_lent: list[bool] = []  # must the chunk be copied before a change?
        self._heads: list[Pair] = []  # the first pair of each chunk
        self._firsts: list[int] = []  # ... and its key
        self.count = 0

    def __iter__(self) -> Iterator[Pair]:
        for keys, values in zip(self._keys, self._values, strict=True):
            yield from zip(keys, values, strict=True)

    def add(self, key: int, value: int) -> None:
        """The pair must not be there yet."""
        self.count += 1
        if not self._heads:
            self._insert_chunk(0, array("q", (key,)), array("q", (value,)))
            return
        keys, values = self._keys[-1], self._values[-1]
        if (key, value) > (keys[-1], values[-1]):
            if len(keys) < CHUNK_PAIRS_MAX:
                keys, values = self._own(len(self._keys) - 1)
                keys.append(key)
                values.append(value)
            else:
                self._insert_chunk(len(self._heads), array("q", (key,)), array("q", (value,)))
            return
        chunk = max(0, bisect_right(self._heads, (key, value)) - 1)
        keys, values = self._own(chunk)
        at = _position(keys, values, key, value)
        keys.insert(at, key)
        values.insert(at, value)
        if at == 0:
            self._set_head(chunk)
        if len(keys) > CHUNK_PAIRS_MAX:
            half = len(keys) // 2
            self._insert_chunk(chunk + 1, keys[half:], values[half:])
            del keys[half:], values[half:]

    def remove(self, key: int, value: int) -> None:
        """The pair must be there."""
        chunk = bisect_right(self._heads, (key, value)) - 1
        keys, values = self._own(chunk)
        at = _position(keys, values, key, value)
        assert keys[at] == key and values[at] == value, "a pair that is not there"
        del keys[at], values[at]
        self.count -= 1
        if not keys:
            self._delete_chunk(chunk)
            return
        if at == 0:
            self._set_head(chunk)
        if chunk + 1 < len(self._heads) and len(keys) + len(self._keys[chunk + 1]) <= CHUNK_PAIRS_MAX // 2:
            keys.extend(self._keys[chunk + 1])
            values.extend(self._values[chunk + 1])
            self._delete_chunk(chunk + 1)

    def first(self) -> Pair | None:
        return self._heads[0] if self._heads else None

    def get(self, key: int) -> int | None:
        """The value of a key that stands in one pair at most."""
        chunk = bisect_right(self._firsts, key) - 1
        if chunk < 0:
            return None
        keys = self._keys[chunk]
        at = bisect_left(keys, key)
        return self._values[chunk][at] if at < len(keys) and keys[at] == key else None

    def has_key_between(self, first: int, last: int) -> bool:
        """Both ends included."""
        chunk = bisect_right(self._firsts, last) - 1
        if chunk < 0:
            return False
        keys = self._keys[chunk]
        return keys[bisect_right(keys, last) - 1] >= first

    def page(self, after: Pair, count_max: int, key_max: int) -> list[Pair]:
        """Up to count_max pairs beyond `after`, whose keys are at most key_max."""
        found: list[Pair] = []
        chunk = max(0, bisect_right(self._heads, after) - 1)
        while chunk < len(self._heads) and len(found) < count_max:
            keys, values = self._keys[chunk], self._values[chunk]
            start = _position(keys, values, after[0], after[1] + 1) if self._heads[chunk] <= after else 0
            end = min(bisect_right(keys, key_max, start), start + count_max - len(found))
            found += zip(keys[start:end], values[start:end], strict=True)
            if end < len(keys):
                break
            chunk += 1
        return found

    def pack(self) -> tuple[bytes, bytes]:
        """Keys and values; the same for equal sets."""
        return b"".join(self._keys), b"".join(self._values)

    def freeze(self) -> tuple[Chunks, Chunks]:
        """The arrays of keys and of values, one behind the other as `pack` has them. They do not change any more."""
        self._is_lent = [True] * len(self._is_lent)
        return list(self._keys), list(self._values)

    def unpack(self, raw_keys: bytes, raw_values: bytes) -> None:
        """Into an empty set. Raises ValueError."""
        if len(raw_keys) % _NUMBER_BYTES or len(raw_keys) != len(raw_values):
            raise ValueError("arrays of scheduled messages that do not fit each other")
        step = CHUNK_PAIRS_MAX * _NUMBER_BYTES
        for at in range(0, len(raw_keys), step):
            keys, values = array("q"), array("q")
            keys.frombytes(raw_keys[at : at + step])
            values.frombytes(raw_values[at : at + step])
            self._insert_chunk(len(self._heads), keys, values)
        self.count = len(raw_keys) // _NUMBER_BYTES

    def _own(self, chunk: int) -> tuple[array[int], array[int]]:
        """Keys and values of a chunk that is about to change."""
        if self._is_lent[chunk]:
            self._keys[chunk], self._values[chunk] = self._keys[chunk][:], self._values[chunk][:]
            self._is_lent[chunk] = False
        return self._keys[chunk], self._values[chunk]

    def _insert_chunk(self, chunk: int, keys: array[int], values: array[int]) -> None:
        self._is_lent.insert(chunk, False)
        self._keys.insert(chunk, keys)
        self._values.insert(chunk, values)
        self._heads.insert(chunk, (keys[0], values[0]))
        self._firsts.insert(chunk, keys[0])

    def _delete_chunk(self, chunk: int) -> None:
        del self._keys[chunk], self._values[chunk], self._heads[chunk], self._firsts[chunk], self._is_lent[chunk]

    def _set_head(self, chunk: int) -> None:
        self._heads[chunk] = (self._keys[chunk][0], self._values[chunk][0])
        self._firsts[chunk] = self._keys[chunk][0]


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

    def freeze(self) -> list[Chunks]:
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


def _position(keys: array[int], values: array[int], key: int, value: int) -> int:
    """Of the first pair that is not below (key, value)."""
    low = bisect_left(keys, key)
    high = bisect_right(keys, key, low)
    return bisect_left(values, value, low, high)
