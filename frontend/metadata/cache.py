"""A cache that never answers with less than it has been told.

Two streams meet here: fills (a lookup was started, its answer arrives later) and changes (the feed says that a key now
has version v). The order in which they arrive is not ours to choose, so:

    change while nothing is known of the key    nothing to do: a lookup that starts later sees it
    change, entry older than v                  the entry is forgotten
    change, entry at v or newer                 the entry stays (a refresh was quicker than the feed)
    change while a lookup is under way          the lookup's floor rises to v: an older answer is refused
    change while a lookup is under way, and
        the answer is "does not exist"          refused: an absence has no version to compare
    another lookup stored a newer record        as a change to that record's version
    drop (nobody can say what has changed)      every entry and every lookup under way is void

A refused fill is repeated by the caller. Pure: the clock is a parameter, steps can be taken in any order by a test.
Bounded: the oldest entry leaves when the cache is full.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Literal, Protocol, TypeVar

from frontend.metadata.interface import MISS, Missing
from frontend.metadata.limits import METADATA_NEGATIVE_MS_MAX, NEGATIVES_CACHED_MAX


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Versioned)


class Fill(Generic[K]):
    """A lookup under way. `floor` is the newest version heard of its key since it began, 0 for none."""

    __slots__ = ("floor", "key", "void")

    def __init__(self, key: K) -> None:
        self.key = key
        self.floor = 0
        self.void = False


class VersionedCache(Generic[K, R]):
    """Records by key, with known absences."""

    __slots__ = ("_absent_until_ms", "_entries", "_entries_max", "_fills", "_negative_ms", "held")

    def __init__(self, entries_max: int, negative_ms: int = METADATA_NEGATIVE_MS_MAX) -> None:
        assert entries_max > 0
        self._entries: dict[K, R] = {}
        # The record of a key, if it is at hand: asked for by each request, so it is no step of our own.
        self.held = self._entries.get
        self._absent_until_ms: dict[K, int] = {}
        self._fills: dict[K, list[Fill[K]]] = {}
        self._entries_max = entries_max
        self._negative_ms = negative_ms

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now_ms: int) -> R | Literal[Missing.MISS] | None:
        """The record, None where it is known to be absent, or MISS."""
        record = self._entries.get(key)
        if record is not None:
            return record
        until_ms = self._absent_until_ms.get(key)
        return MISS if until_ms is None or now_ms >= until_ms else None

    def begin(self, key: K) -> Fill[K]:
        """A lookup starts. Every Fill must be given to `finish` or `abandon`."""
        fill: Fill[K] = Fill(key)
        self._fills.setdefault(key, []).append(fill)
        return fill

    def finish(self, fill: Fill[K], record: R | None, now_ms: int) -> bool:
        """The answer of a lookup. False: it may be out of date, ask again."""
        self.abandon(fill)
        if fill.void:
            return False
        if record is None:
            if fill.floor:
                return False
            self._entries.pop(fill.key, None)
            self._put_absent(fill.key, now_ms)
            return True
        if record.version < fill.floor:
            return False
        self._put(fill.key, record)
        return True

    def abandon(self, fill: Fill[K]) -> None:
        """The lookup failed, or is over."""
        fills = self._fills[fill.key]
        fills.remove(fill)
        if not fills:
            del self._fills[fill.key]

    def invalidate(self, key: K, version: int) -> None:
        """The feed says: `key` has `version` now."""
        record = self._entries.get(key)
        if record is not None and record.version < version:
            del self._entries[key]
        self._absent_until_ms.pop(key, None)
        self._raise_floor(key, version)

    def versions(self) -> list[tuple[K, int]]:
        """What is held, to be compared."""
        return [(key, record.version) for key, record in self._entries.items()]

    def drop(self) -> None:
        """Changes were missed, and for too long nobody could be asked which: forget everything."""
        self._entries.clear()
        self._absent_until_ms.clear()
        for fills in self._fills.values():
            for fill in fills:
                fill.void = True

    def _put(self, key: K, record: R) -> None:
        known = self._entries.get(key)
        if known is not None and known.version > record.version:
            return
        self._absent_until_ms.pop(key, None)
        if known is None and len(self._entries) >= self._entries_max:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = record
        self._raise_floor(key, record.version)

    def _put_absent(self, key: K, now_ms: int) -> None:
        absent = self._absent_until_ms
        if key not in absent and len(absent) >= NEGATIVES_CACHED_MAX:
            del absent[next(iter(absent))]
        absent[key] = now_ms + self._negative_ms

    def _raise_floor(self, key: K, version: int) -> None:
        for fill in self._fills.get(key, ()):
            if version > fill.floor:
                fill.floor = version
