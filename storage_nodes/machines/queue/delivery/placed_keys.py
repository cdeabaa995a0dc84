"""With which group and tag the messages in view were put there: one entry for neighbours that have both alike.

Tag queues are by tag, and each is searched by offset. To find the one that holds an offset among thousands, its tag has
to be known first, and the log is not here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from storage_nodes.machines.queue.effects import NO_KEY, Key


class PlacedKeys:
    __slots__ = ("_bases", "_keys")

    def __init__(self) -> None:
        # Messages from _bases[i] up to _bases[i + 1] have _keys[i]. Where none waits it says nothing.
        self._bases = array("q")
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._bases)

    def note(self, first: int, key: Key) -> None:
        """Messages from `first` on, behind all others, have this key."""
        if not self._keys or self._keys[-1] != key:
            self._bases.append(first)
            self._keys.append(key)

    def key_at(self, offset: int) -> Key:
        at = bisect_right(self._bases, offset) - 1
        return self._keys[at] if at >= 0 else NO_KEY

    def replace(self, placed: Iterable[tuple[int, Key]]) -> None:
        """Only these: (first offset of a stretch, its key), in any order."""
        self.clear()
        for first, key in sorted(placed):
            self.note(first, key)

    def clear(self) -> None:
        del self._bases[:], self._keys[:]
