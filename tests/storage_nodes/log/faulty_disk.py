"""A disk in memory that keeps only what was synced.

Writes are visible to reads at once, as through a page cache. `after_power_loss` gives the disk that is found at the
next start: of every file the synced bytes, plus any of the sectors written since; of every directory the synced names,
plus a prefix of the changes made since. `crash_after` stops the process in the middle of the n-th change from now on.
What `make_unreadable` names fails every read that touches it (EIO), until it is written anew.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence

from storage_nodes.log.errors import UnreadableError

SECTOR_BYTES = 64  # small, so that small groups can tear


class PowerLost(Exception):
    """The machine stopped here."""


class _Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = bytearray()
        self.unsynced: list[tuple[int, bytes]] = []
        self.unreadable: list[tuple[int, int]] = []  # [first, last)

    def write(self, position: int, data: bytes) -> None:
        _put(self.data, position, data)
        if self.unreadable:
            self.unreadable = [
                (first, last) for first, last in self.unreadable if last <= position or first >= position + len(data)
            ]
        self.unsynced.append((position, data))

    def sync(self) -> None:
        self.synced = bytearray(self.data)
        self.unsynced = []

    def survivor(self, chance: random.Random) -> _Inode:
        found = _Inode()
        found.synced = bytearray(self.synced)
        kept = chance.choice((0.0, 0.5, 1.0))
        for position, data in self.unsynced:
            at = 0
            while at < len(data):
                step = min(SECTOR_BYTES - (position + at) % SECTOR_BYTES, len(data) - at)
                if chance.random() < kept:
                    _put(found.synced, position + at, data[at : at + step])
                at += step
        found.data = bytearray(found.synced)
        found.unreadable = list(self.unreadable)
        return found


def _put(target: bytearray, position: int, data: bytes) -> None:
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


class FaultyFile:
    def __init__(self, disk: FaultyDisk, path: str, inode: _Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def read(self, position: int, length: int) -> bytes:
        if any(first < position + length and last > position for first, last in self._inode.unreadable):
            raise UnreadableError(self.path, position, OSError(errno.EIO, "Input/output error"))
        return bytes(self._inode.data[position : position + length])

    def write(self, position: int, buffers: Sequence[bytes]) -> None:
        data = b"".join(buffers)
        try:
            self._disk.change()
        except PowerLost:
            self._inode.write(position, data[: self._disk.chance.randrange(len(data) + 1)])
            raise
        self._inode.write(position, data)

    def write_zeros(self, position: int, length: int) -> None:
        if length > 0:
            self.write(position, [bytes(length)])

    def sync(self) -> None:
        self._disk.change()
        self._inode.sync()

    def forget(self, position: int, length: int) -> None:
        pass

    def size(self) -> int:
        return len(self._inode.data)


class NoLock:
    def close(self) -> None:
        pass


class FaultyDisk:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.crash_after: int | None = None
        self.changes = 0
        self.free = 1 << 40
        self._names: dict[str, dict[str, _Inode]] = {}
        self._synced_names: dict[str, dict[str, _Inode]] = {}
        self._steps: dict[str, list[dict[str, _Inode]]] = {}  # states of a directory since its last sync

    def change(self) -> None:
        self.changes += 1
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after <= 0:
                raise PowerLost

    def after_power_loss(self) -> FaultyDisk:
        found = FaultyDisk(self.chance)
        survivors: dict[int, _Inode] = {}
        for directory, synced in self._synced_names.items():
            names = self.chance.choice([synced, *self._steps[directory]])
            found._names[directory] = {
                name: survivors.setdefault(id(inode), inode.survivor(self.chance)) for name, inode in names.items()
            }
            found._synced_names[directory] = dict(found._names[directory])
            found._steps[directory] = []
        return found

    def as_killed(self) -> FaultyDisk:
        """The process was killed, the machine was not: everything written is still there, synced or not."""
        found = FaultyDisk(self.chance)
        found._names, found._synced_names, found._steps = self._names, self._synced_names, self._steps
        return found

    def data_of(self, path: str) -> bytearray:
        return self._names[os.path.dirname(path)][os.path.basename(path)].data

    def make_unreadable(self, path: str, position: int) -> None:
        """The sector there is lost, for every name of the file."""
        first = position // SECTOR_BYTES * SECTOR_BYTES
        inode = self._names[os.path.dirname(path)][os.path.basename(path)]
        inode.unreadable.append((first, first + SECTOR_BYTES))

    def settle(self) -> None:
        """Everything written is on the medium, as long after the last write."""
        for directory, names in self._names.items():
            for inode in names.values():
                inode.sync()
            self._synced_names[directory] = dict(names)
            self._steps[directory] = []

    def paths(self) -> list[str]:
        return sorted(os.path.join(directory, name) for directory, names in self._names.items() for name in names)

    def lose(self, path: str) -> None:
        """The file is gone, and no process removed it."""
        del self._names[os.path.dirname(path)][os.path.basename(path)]

    def make_directory(self, path: str) -> None:
        if path not in self._names:
            self._names[path], self._synced_names[path], self._steps[path] = {}, {}, []

    def lock_directory(self, path: str) -> NoLock:
        return NoLock()

    def list_directory(self, path: str) -> list[str]:
        inside = [os.path.basename(other) for other in self._names if os.path.dirname(other) == path]
        return sorted([*self._names[path], *inside])

    def open(self, path: str, create: bool = False) -> FaultyFile:
        directory, name = os.path.split(path)
        names = self._names[directory]
        if create:
            self.change()
            names[name] = _Inode()
            self._renamed(directory)
        elif name not in names:
            raise FileNotFoundError(2, "no such file", path)
        return FaultyFile(self, path, names[name])

    def rename(self, old: str, new: str) -> None:
        self.change()
        (old_directory, old_name), (new_directory, new_name) = os.path.split(old), os.path.split(new)
        if old_name not in self._names[old_directory]:
            raise FileNotFoundError(2, "no such file", old)
        self._names[new_directory][new_name] = self._names[old_directory].pop(old_name)
        self._renamed(new_directory)
        if new_directory != old_directory:
            self._renamed(old_directory)

    def remove(self, path: str) -> None:
        self.change()
        directory, name = os.path.split(path)
        self._names[directory].pop(name, None)
        self._renamed(directory)

    def sync_directory(self, path: str) -> None:
        self.change()
        self._synced_names[path] = dict(self._names[path])
        self._steps[path] = []

    def changed_ms(self, path: str) -> int:
        return 0

    def free_bytes(self, path: str) -> int:
        return self.free

    def random_bytes(self, count: int) -> bytes:
        return self.chance.randbytes(count)

    def _renamed(self, directory: str) -> None:
        self._steps[directory].append(dict(self._names[directory]))
