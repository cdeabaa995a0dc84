"""Deduplication ids that a partition remembers: which message had an id first, within the window (R28).

Part of the fold: a pure function of the committed entries and their times, in the checkpoint, so every replica drops
the same messages, whoever leads. An id is kept as a 16-byte digest. Entries stand in slices of time, newest last; a
lookup asks each slice, and a slice goes as a whole when its last entry is out of the window. What is found is judged by
its exact time, so the edge of the window is sharp.

Checkpoint: flat [slice start ms, (batch base offset less the one before, ms since slice start)..., digests joined,
offsets as 8-byte integers]...
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from itertools import islice
from sys import byteorder
from typing import Any

from msgspec import Raw

from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.packed_later import PackedLater, PackedPieces, array_header, raw_elements

DIGEST_BYTES = 16
SLICES_PER_WINDOW = LEVEL_1.dedup_slices_per_window
NOT_SEEN = -1
# So many ids are packed in one step, a fraction of a millisecond.
_STEP_IDS = 8_192
_SLICE_FIELDS = 4


class _Slice:
    __slots__ = ("bases", "offsets", "packed", "start_ms", "times_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.offsets: dict[bytes, int] = {}
        # Messages from bases[i] on were appended at times_ms[i]; both rise.
        self.bases = array("q")
        self.times_ms = array("q")
        self.packed: list[Any] = []

    def time_of(self, offset: int) -> int:
        return self.times_ms[bisect_right(self.bases, offset) - 1]

    def pack_full(self) -> list[Any]:
        """Of one to which nothing is added any more."""
        self.packed = self.packed or self.pack()
        return self.packed

    def copied(self) -> _Slice:
        other = _Slice(self.start_ms)
        other.offsets, other.bases, other.times_ms = self.offsets.copy(), self.bases[:], self.times_ms[:]
        return other

    def pack(self) -> list[Any]:
        steps: list[int] = []
        before = 0
        for base, time_ms in zip(self.bases, self.times_ms, strict=True):
            steps += (base - before, time_ms - self.start_ms)
            before = base
        digests, offsets = iter(self.offsets), iter(self.offsets.values())
        joined, numbers = bytearray(), array("q")
        for _ in range(0, len(self.offsets), _STEP_IDS):
            joined += b"".join(islice(digests, _STEP_IDS))
            numbers.extend(islice(offsets, _STEP_IDS))
        return [self.start_ms, steps, bytes(joined), _offsets_bytes(numbers)]


_NOTHING: list[_Slice] = []  # of windows that never held an id; nothing is ever put into it


class DedupWindow:
    __slots__ = ("_slices", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._slices: list[_Slice] = _NOTHING

    def __len__(self) -> int:
        return sum(len(each.offsets) for each in self._slices)

    @property
    def packed_numbers(self) -> int:
        """Ids, and steps of their times: of repeats alone there is one a batch."""
        return len(self) + sum(len(each.bases) for each in self._slices)

    @property
    def is_empty(self) -> bool:
        """As it was made: nothing of it stands in a checkpoint."""
        return not self._slices

    def count_at(self, now_ms: int) -> int:
        """Entries that a message sent now would leave standing."""
        oldest_ms = now_ms - self.window_ms
        return sum(len(each.offsets) for each in self._slices if each.times_ms[-1] > oldest_ms)

    def begin(self, base_offset: int, time_ms: int) -> None:
        """A batch with ids is about to be folded. Its time never is below that of an earlier one."""
        oldest_ms = time_ms - self.window_ms
        if self._slices is _NOTHING:
            self._slices = []
        slices = self._slices
        while slices and slices[0].times_ms[-1] <= oldest_ms:
            del slices[0]
        if not slices or time_ms - slices[-1].start_ms >= max(1, self.window_ms // SLICES_PER_WINDOW):
            slices.append(_Slice(time_ms))
        slices[-1].bases.append(base_offset)
        slices[-1].times_ms.append(time_ms)

    def original(self, dedup_id: bytes, offset: int, time_ms: int) -> int:
        """The message that had this id first, NOT_SEEN where there is none in the window: then `offset` is it."""
        digest = blake2b(dedup_id, digest_size=DIGEST_BYTES).digest()
        slices = self._slices
        for each in slices:
            if digest in each.offsets:
                found = self._find(digest, time_ms)
                if found != NOT_SEEN:
                    return found
                break
        slices[-1].offsets[digest] = offset
        return NOT_SEEN

    def find(self, dedup_id: bytes, time_ms: int) -> int:
        """As `original`, and nothing is remembered."""
        return self._find(blake2b(dedup_id, digest_size=DIGEST_BYTES).digest(), time_ms)

    def _find(self, digest: bytes, time_ms: int) -> int:
        for each in reversed(self._slices):
            found = each.offsets.get(digest)
            if found is not None:
                return found if each.time_of(found) > time_ms - self.window_ms else NOT_SEEN
        return NOT_SEEN

    def pack(self) -> list[Any]:
        flat: list[Any] = []
        for each in self._slices[:-1]:
            flat += each.pack_full()
        if self._slices:
            flat += self._slices[-1].pack()
        return flat

    def pack_later(self) -> PackedPieces:
        """The same as it is now, by who writes. Only the newest slice is copied: nothing changes in the others."""
        makers = [each.pack_full for each in self._slices[:-1]]
        makers += (each.copied().pack for each in self._slices[-1:])
        later = (PackedLater(partial(_elements, make)) for make in makers)
        return (array_header(_SLICE_FIELDS * len(makers)), *later)

    def unpack(self, flat: list[Any]) -> None:
        """Take the place of what was remembered: ids never outlive the log that they stand in (R28)."""
        self._slices = [] if flat else _NOTHING
        fields = iter(flat)
        for start_ms, steps, digests, offsets_bytes in zip(fields, fields, fields, fields, strict=True):
            each = _Slice(start_ms)
            base = 0
            for at in range(0, len(steps), 2):
                base += steps[at]
                each.bases.append(base)
                each.times_ms.append(start_ms + steps[at + 1])
            keys = [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]
            each.offsets = dict(zip(keys, _offsets_of(offsets_bytes), strict=True))
            self._slices.append(each)


def _elements(pack: Callable[[], list[Any]]) -> Raw:
    return raw_elements(pack())


def _offsets_bytes(offsets: array[int]) -> bytes:
    if byteorder == "little":
        offsets.byteswap()
    return offsets.tobytes()


def _offsets_of(data: bytes) -> array[int]:
    offsets = array("q")
    offsets.frombytes(data)
    if byteorder == "little":
        offsets.byteswap()
    return offsets
