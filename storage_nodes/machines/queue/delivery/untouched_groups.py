"""Groups that a new leader found in flight, or delayed, and of which nothing changed since.

A queue may have 120,000 of them, each with an object of two containers once it is looked at, and the derivation is one
turn of the event loop. So only what such an object begins with is kept here, in plain dicts, and a group leaves with
the first input that concerns it.
"""

from __future__ import annotations

from collections.abc import Mapping


class UntouchedGroups:
    __slots__ = ("_last", "_several")

    def __init__(self, group_of: Mapping[int, bytes]) -> None:
        """`group_of`: of every message in `live`, in any order: a delayed one may stand before older ones that were
        leased later."""
        self._last = dict(zip(group_of.values(), group_of, strict=True))  # by group, one of its messages
        self._several: dict[bytes, list[int]] = {}  # of groups with more than one: all of them, in order
        if len(self._last) < len(group_of):
            self._gather(group_of)

    def __len__(self) -> int:
        return len(self._last)

    def __contains__(self, key: bytes) -> bool:
        return key in self._last

    @property
    def messages(self) -> int:
        return len(self._last) - len(self._several) + sum(map(len, self._several.values()))

    def count_of(self, key: bytes) -> int:
        """Messages of a group; 0 where it is not here."""
        several = self._several.get(key)
        return len(several) if several is not None else int(key in self._last)

    def take(self, key: bytes) -> list[int]:
        """Messages of a group, in order; it leaves. None where it was not here."""
        offset = self._last.pop(key, None)
        if offset is None:
            return []
        return self._several.pop(key, None) or [offset]

    def clear(self) -> None:
        self._last.clear()
        self._several.clear()

    def _gather(self, group_of: Mapping[int, bytes]) -> None:
        last, several = self._last, self._several
        for offset, key in group_of.items():
            if last[key] != offset:
                known = several.get(key)
                if known is None:
                    several[key] = [offset]
                else:
                    known.append(offset)
        for key, offsets in several.items():
            offsets.append(last[key])
            offsets.sort()  # mostly they are: then it is one look at each
