"""The copy of one kind of records: encoded, by their names in the change feed. Pure.

While the copy is complete it knows of every name whether it exists. A record that has changed is *due*: nothing is
answered for it until it was read again. Reads and changes meet here in any order:

    change, record held at that version or newer    nothing to do: a read was quicker
    change otherwise                                the record is due
    change while a read is under way                the read's floor rises: an older answer, or an absence, is refused

Beyond `bytes_max` the least recently used records leave, and the copy is complete no more: what it does not hold has to
be read from the database.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, NamedTuple

from api.limits import HELD_ROW_OVERHEAD_BYTES
from frontend.metadata.cache import Fill
from frontend.metadata.interface import MISS, Missing

_VERSION_BYTES = 8


class EncodedRecord(NamedTuple):
    """A record as it is sent: `reply` is the encoded answer to who asks for it."""

    key: str
    version: int
    reply: bytes


class Holding:
    """`complete`: every record there is was loaded, and none had to leave."""

    __slots__ = ("_bytes_max", "_due", "_fills", "_overflowed", "_rows", "bytes", "complete")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0
        self._bytes_max = bytes_max
        # The version, then the reply: one object per record instead of three.
        self._rows: OrderedDict[str, bytes] = OrderedDict()
        self._due: dict[str, int] = {}
        self._fills: dict[str, list[Fill[str]]] = {}
        self._overflowed = False
        self.bytes = 0
        self.complete = False

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> bytes | Literal[Missing.MISS] | None:
        """The reply, None where there is no such record, or MISS: it has to be read."""
        if key in self._due:
            return MISS
        row = self._rows.get(key)
        if row is None:
            return None if self.complete else MISS
        if not self.complete:
            self._rows.move_to_end(key)
        return row[_VERSION_BYTES:]

    def is_outdated(self, key: str, version: int, doubtful: bool) -> bool:
        """Is a record of that version, held by somebody else, out of date? `doubtful` where it cannot be said."""
        if self._due.get(key, 0) > version:
            return True
        held = self._rows.get(key)
        if held is None:
            return self.complete or doubtful
        return _version_of(held) > version

    @property
    def due(self) -> list[str]:
        return list(self._due)

    # --- changes and reads ---

    def heard(self, key: str, version: int) -> bool:
        """The feed says that `key` has `version` now. True: it has to be read again."""
        for fill in self._fills.get(key, ()):
            fill.floor = max(fill.floor, version)
        row = self._rows.get(key)
        if row is not None and _version_of(row) >= version:
            return False
        self._due[key] = max(version, self._due.get(key, 0))
        return True

    def begin(self, key: str) -> Fill[str]:
        """A read starts. Every Fill must be given to `finish` or `abandon`."""
        fill: Fill[str] = Fill(key)
        self._fills.setdefault(key, []).append(fill)
        return fill

    def finish(self, fill: Fill[str], row: EncodedRecord | None) -> bool:
        """What the database said. False: it may be out of date, read again."""
        self.abandon(fill)
        if (fill.floor > 0) if row is None else (row.version < fill.floor):
            return False
        if row is None:
            self._remove(fill.key)
            self._due.pop(fill.key, None)
            return True
        self.put(row)
        for other in self._fills.get(row.key, ()):
            other.floor = max(other.floor, row.version)
        return True

    def abandon(self, fill: Fill[str]) -> None:
        """The read failed, or is over."""
        fills = self._fills[fill.key]
        fills.remove(fill)
        if not fills:
            del self._fills[fill.key]

    # --- content ---

    def put(self, row: EncodedRecord) -> None:
        """Unless a newer one is held."""
        if self._due.get(row.key, 0) <= row.version:
            self._due.pop(row.key, None)
        held = self._rows.get(row.key)
        if held is not None:
            if _version_of(held) >= row.version:
                return
            self.bytes -= _cost(row.key, held)
        stored = row.version.to_bytes(_VERSION_BYTES, "big") + row.reply
        self._rows[row.key] = stored
        self.bytes += _cost(row.key, stored)
        while self.bytes > self._bytes_max and len(self._rows) > 1:
            self._overflowed, self.complete = True, False
            gone, leaving = self._rows.popitem(last=False)
            self.bytes -= _cost(gone, leaving)

    def begin_load(self) -> None:
        """Every record there is will be put; what is held answers meanwhile."""
        self._overflowed = False

    def end_load(self, keys: set[str]) -> None:
        """These were all."""
        for key in [key for key in self._rows if key not in keys]:
            self._remove(key)
        self.complete = not self._overflowed

    def _remove(self, key: str) -> None:
        row = self._rows.pop(key, None)
        if row is not None:
            self.bytes -= _cost(key, row)


def _version_of(row: bytes) -> int:
    return int.from_bytes(row[:_VERSION_BYTES], "big")


def _cost(key: str, row: bytes) -> int:
    return len(key) + len(row) + HELD_ROW_OVERHEAD_BYTES
