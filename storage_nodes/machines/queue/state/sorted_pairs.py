"""A set of pairs of integers in order, by the million: 8 bytes a pair where numbers that stand together are near each
other, as offsets and times do, else up to 16.

It is a list of chunks, each two arrays of at most CHUNK_PAIRS_MAX numbers. A chunk of which all keys (or all values)
have the same upper 32 bits keeps the lower ones, and those once, as its *base*; a number that does not fit makes the
array wide (8 bytes a number, base 0), which it stays. A change moves a part of one chunk, whatever the count; pairs
that come in order only append.

A checkpoint holds all numbers with 8 bytes. That is no copy of the set: `freeze` lends the arrays to who writes them,
who widens one after the other, and a chunk that was lent is copied before its next change.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from storage_nodes.machines.driver_contract import Piece

assert sys.byteorder == "little", "checkpoints hold arrays as they stand in memory"

CHUNK_PAIRS_MAX = 2_048
_NUMBER_BYTES = 8
_NARROW: Final = "I"
_WIDE: Final = "q"
_WORD_BITS = 32
_WORD = (1 << _WORD_BITS) - 1
assert (array(_NARROW).itemsize, array(_WIDE).itemsize) == (4, _NUMBER_BYTES)

Pair = tuple[int, int]
Numbers = list["array[int]"]


class FrozenChunk:
    """Numbers as a checkpoint holds them, made when they are asked for."""

    __slots__ = ("_base", "_numbers", "nbytes")

    def __init__(self, base: int, numbers: array[int]) -> None:
        self._base, self._numbers = base, numbers
        self.nbytes = _NUMBER_BYTES * len(numbers)

    def __bytes__(self) -> bytes:
        return widened(self._base, self._numbers).tobytes()


class SortedPairs:
    """Distinct pairs of integers in ascending order."""

    __slots__ = ("_firsts", "_heads", "_is_lent", "_key_bases", "_keys", "_value_bases", "_values", "count")

    def __init__(self) -> None:
        # Of each chunk; a number is what the array says, and the base.
        self._keys: Numbers = []
        self._key_bases: list[int] = []
        self._values: Numbers = []
        self._value_bases: list[int] = []
        self._is_lent: list[bool] = []  # must the chunk be copied before a change?
        self._heads: list[Pair] = []  # the first pair of each chunk
        self._firsts: list[int] = []  # ... and its key
        self.count = 0

    def __iter__(self) -> Iterator[Pair]:
        for chunk in range(len(self._heads)):
            yield from self._slice(chunk, 0, len(self._keys[chunk]))

    def add(self, key: int, value: int) -> None:
        """The pair must not be there yet."""
        self.count += 1
        last = len(self._heads) - 1
        if last < 0:
            self._begin_chunk(0, key, value)
            return
        keys = self._keys[last]
        last_key = keys[-1] + self._key_bases[last]
        if key > last_key or (key == last_key and value > self._values[last][-1] + self._value_bases[last]):
            if len(keys) < CHUNK_PAIRS_MAX:
                keys, values = self._own(last)
                if (key ^ self._key_bases[last]) >> _WORD_BITS or (value ^ self._value_bases[last]) >> _WORD_BITS:
                    keys, values = self._make_room(last, key, value)
                keys.append(key - self._key_bases[last])
                values.append(value - self._value_bases[last])
            else:
                # It has as much room again as it grew by last; a copy has none.
                self._keys[last], self._values[last], self._is_lent[last] = keys[:], self._values[last][:], False
                self._begin_chunk(last + 1, key, value)
            return
        chunk = max(0, bisect_right(self._heads, (key, value)) - 1)
        self._own(chunk)
        keys, values = self._make_room(chunk, key, value)
        key, value = key - self._key_bases[chunk], value - self._value_bases[chunk]
        at = _position(keys, values, key, value)
        keys.insert(at, key)
        values.insert(at, value)
        if at == 0:
            self._set_head(chunk)
        if len(keys) > CHUNK_PAIRS_MAX:
            half = len(keys) // 2
            bases = self._key_bases[chunk], self._value_bases[chunk]
            self._insert_chunk(chunk + 1, keys[half:], values[half:], *bases)
            del keys[half:], values[half:]

    def remove(self, key: int, value: int) -> None:
        """The pair must be there."""
        chunk = bisect_right(self._heads, (key, value)) - 1
        keys, values = self._own(chunk)
        key, value = key - self._key_bases[chunk], value - self._value_bases[chunk]
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
            _extend(self._keys, self._key_bases, chunk)
            _extend(self._values, self._value_bases, chunk)
            self._delete_chunk(chunk + 1)

    def first(self) -> Pair | None:
        return self._heads[0] if self._heads else None

    def get(self, key: int) -> int | None:
        """The value of a key that stands in one pair at most."""
        chunk = bisect_right(self._firsts, key) - 1
        if chunk < 0:
            return None
        keys = self._keys[chunk]
        key -= self._key_bases[chunk]
        at = bisect_left(keys, key)
        found = at < len(keys) and keys[at] == key
        return self._values[chunk][at] + self._value_bases[chunk] if found else None

    def has_key_between(self, first: int, last: int) -> bool:
        """Both ends included."""
        chunk = bisect_right(self._firsts, last) - 1
        if chunk < 0:
            return False
        keys, base = self._keys[chunk], self._key_bases[chunk]
        return keys[bisect_right(keys, last - base) - 1] >= first - base

    def page(self, after: Pair, count_max: int, key_max: int) -> list[Pair]:
        """Up to count_max pairs beyond `after`, whose keys are at most key_max."""
        found: list[Pair] = []
        chunk = max(0, bisect_right(self._heads, after) - 1)
        while chunk < len(self._heads) and len(found) < count_max:
            keys, values = self._keys[chunk], self._values[chunk]
            base, start = self._key_bases[chunk], 0
            if self._heads[chunk] <= after:
                start = _position(keys, values, after[0] - base, after[1] + 1 - self._value_bases[chunk])
            end = min(bisect_right(keys, key_max - base, start), start + count_max - len(found))
            found += self._slice(chunk, start, end)
            if end < len(keys):
                break
            chunk += 1
        return found

    def pack(self) -> tuple[bytes, bytes]:
        """Keys and values; the same for equal sets."""
        keys, values = self._columns()
        return b"".join(map(bytes, keys)), b"".join(map(bytes, values))

    def freeze(self) -> tuple[list[Piece], list[Piece]]:
        """What `pack` gives, in pieces that do not change any more."""
        self._is_lent = [True] * len(self._is_lent)
        return self._columns()

    def unpack(self, raw_keys: bytes, raw_values: bytes) -> None:
        """Into an empty set. Raises ValueError."""
        if len(raw_keys) % _NUMBER_BYTES or len(raw_keys) != len(raw_values):
            raise ValueError("arrays of scheduled messages that do not fit each other")
        step = CHUNK_PAIRS_MAX * _NUMBER_BYTES
        for at in range(0, len(raw_keys), step):
            keys, key_base = _narrowed(array(_WIDE, raw_keys[at : at + step]))
            values, value_base = _narrowed(array(_WIDE, raw_values[at : at + step]))
            self._insert_chunk(len(self._heads), keys, values, key_base, value_base)
        self.count = len(raw_keys) // _NUMBER_BYTES

    # --- inside ----------------------------------------------------------------------------------------------

    def _slice(self, chunk: int, start: int, end: int) -> Iterator[Pair]:
        key_base, value_base = self._key_bases[chunk], self._value_bases[chunk]
        return zip(
            map(key_base.__add__, self._keys[chunk][start:end]),
            map(value_base.__add__, self._values[chunk][start:end]),
            strict=True,
        )

    def _columns(self) -> tuple[list[Piece], list[Piece]]:
        return (
            list(map(FrozenChunk, self._key_bases, self._keys)),
            list(map(FrozenChunk, self._value_bases, self._values)),
        )

    def _own(self, chunk: int) -> tuple[array[int], array[int]]:
        """Keys and values of a chunk that is about to change."""
        if self._is_lent[chunk]:
            self._keys[chunk], self._values[chunk] = self._keys[chunk][:], self._values[chunk][:]
            self._is_lent[chunk] = False
        return self._keys[chunk], self._values[chunk]

    def _make_room(self, chunk: int, key: int, value: int) -> tuple[array[int], array[int]]:
        """The same, with arrays that can hold this pair."""
        if (key ^ self._key_bases[chunk]) >> _WORD_BITS:
            _widen(self._keys, self._key_bases, chunk)
        if (value ^ self._value_bases[chunk]) >> _WORD_BITS:
            _widen(self._values, self._value_bases, chunk)
        return self._keys[chunk], self._values[chunk]

    def _begin_chunk(self, chunk: int, key: int, value: int) -> None:
        key_base, value_base = key & ~_WORD, value & ~_WORD
        keys, values = array(_NARROW, (key - key_base,)), array(_NARROW, (value - value_base,))
        self._insert_chunk(chunk, keys, values, key_base, value_base)

    def _insert_chunk(self, chunk: int, keys: array[int], values: array[int], key_base: int, value_base: int) -> None:
        self._is_lent.insert(chunk, False)
        self._keys.insert(chunk, keys)
        self._values.insert(chunk, values)
        self._key_bases.insert(chunk, key_base)
        self._value_bases.insert(chunk, value_base)
        self._heads.insert(chunk, (keys[0] + key_base, values[0] + value_base))
        self._firsts.insert(chunk, keys[0] + key_base)

    def _delete_chunk(self, chunk: int) -> None:
        del self._keys[chunk], self._values[chunk], self._heads[chunk], self._firsts[chunk], self._is_lent[chunk]
        del self._key_bases[chunk], self._value_bases[chunk]

    def _set_head(self, chunk: int) -> None:
        self._firsts[chunk] = key = self._keys[chunk][0] + self._key_bases[chunk]
        self._heads[chunk] = (key, self._values[chunk][0] + self._value_bases[chunk])


def widened(base: int, numbers: array[int]) -> array[int]:
    """A copy with 8 bytes a number."""
    if numbers.typecode == _WIDE:
        return numbers[:]
    wide = array(_WIDE, bytes(_NUMBER_BYTES * len(numbers)))
    words = memoryview(wide).cast("B").cast(_NARROW)
    words[::2] = memoryview(numbers)
    words[1::2] = memoryview(array(_NARROW, (base >> _WORD_BITS & _WORD,)) * len(numbers))
    return wide


def _narrowed(wide: array[int]) -> tuple[array[int], int]:
    """With their base; as they are where they have none in common."""
    words = memoryview(wide).cast("B").cast(_NARROW)
    base = wide[0] & ~_WORD
    if words[1::2].tobytes() != words[1:2].tobytes() * len(wide):
        return wide, 0
    return array(_NARROW, words[::2].tobytes()), base


def _widen(arrays: Numbers, bases: list[int], chunk: int) -> None:
    """Of a chunk that was not lent; harmless where it is wide."""
    if arrays[chunk].typecode == _NARROW:
        arrays[chunk] = widened(bases[chunk], arrays[chunk])
        bases[chunk] = 0


def _extend(arrays: Numbers, bases: list[int], chunk: int) -> None:
    """Add the numbers of the next chunk, which may be lent, to one that is not."""
    following = arrays[chunk + 1]
    if following.typecode != arrays[chunk].typecode or bases[chunk + 1] != bases[chunk]:
        _widen(arrays, bases, chunk)
        following = widened(bases[chunk + 1], following)
    arrays[chunk].extend(following)


def _position(keys: array[int], values: array[int], key: int, value: int) -> int:
    """Of the first pair that is not below (key, value)."""
    low = bisect_left(keys, key)
    high = bisect_right(keys, key, low)
    return bisect_left(values, value, low, high)
