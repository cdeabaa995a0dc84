"""The disk of a simulated node: the power-loss disk of the log's tests, with failing fsyncs, rotting bytes and an end
to its room."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence

from tests.storage_nodes.log.faulty_disk import FaultyDisk, FaultyFile, PowerLost

__all__ = ["DiskFull", "PowerLost", "SimDisk", "SyncFailed"]


class SyncFailed(OSError):
    """EIO from fsync: what was written since the last good one is gone from the page cache too."""


class DiskFull(OSError):
    """ENOSPC: a file could not grow, or only a part of the way."""


class SimFile(FaultyFile):
    def write(self, position: int, buffers: Sequence[bytes]) -> None:
        disk, inode = self._disk, self._inode
        assert isinstance(disk, SimDisk)
        if disk.full and position + sum(map(len, buffers)) > len(inode.data):
            data = b"".join(buffers)
            if position <= len(inode.data):
                inode.write(position, data[: disk.chance.randrange(len(data) + 1)])
            raise DiskFull(errno.ENOSPC, "no space left", self.path)
        super().write(position, buffers)

    def sync(self) -> None:
        disk = self._disk
        assert isinstance(disk, SimDisk)
        if disk.eio_rate and disk.chance.random() < disk.eio_rate:
            inode = self._inode
            inode.data = bytearray(inode.survivor(disk.chance).data)
            inode.synced = bytearray(inode.data)
            inode.unsynced = []
            raise SyncFailed(errno.EIO, "the disk failed", self.path)
        super().sync()


class SimDisk(FaultyDisk):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.eio_rate = 0.0
        self.full = False

    def open(self, path: str, create: bool = False) -> FaultyFile:
        if create and self.full:
            raise DiskFull(errno.ENOSPC, "no space left", path)
        opened = super().open(path, create)
        return SimFile(self, path, opened._inode)

    def restarted(self, power_lost: bool) -> SimDisk:
        """What the next process finds."""
        found = self.after_power_loss() if power_lost else self.as_killed()
        disk = SimDisk(self.chance)
        disk.full = self.full
        disk._names, disk._synced_names, disk._steps = found._names, found._synced_names, found._steps
        return disk

    def names_in(self, directory: str) -> list[str]:
        return sorted(self._names.get(directory, {}))

    def holds(self, path: str) -> bool:
        return os.path.basename(path) in self._names.get(os.path.dirname(path), {})

    def rot(self, path: str, position: int, cut: bool = False) -> None:
        """A byte that was synced changes, or the file ends there."""
        inode = self._names[os.path.dirname(path)][os.path.basename(path)]
        for data in (inode.data, inode.synced):
            if cut:
                del data[position:]
            elif position < len(data):
                data[position] ^= 0x10
