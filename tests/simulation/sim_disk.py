"""The disk of a simulated node: the power-loss disk of the log's tests, with failing fsyncs and rotting bytes."""

from __future__ import annotations

import errno
import os
import random

from tests.storage_nodes.log.faulty_disk import FaultyDisk, FaultyFile, PowerLost

__all__ = ["PowerLost", "SimDisk", "SyncFailed"]


class SyncFailed(OSError):
    """EIO from fsync: what was written since the last good one is gone from the page cache too."""


class SimFile(FaultyFile):
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

    def open(self, path: str, create: bool = False) -> FaultyFile:
        opened = super().open(path, create)
        return SimFile(self, path, opened._inode)

    def restarted(self, power_lost: bool) -> SimDisk:
        """What the next process finds."""
        found = self.after_power_loss() if power_lost else self.as_killed()
        disk = SimDisk(self.chance)
        disk._names, disk._synced_names, disk._steps = found._names, found._synced_names, found._steps
        return disk

    def rot(self, path: str, position: int, cut: bool = False) -> None:
        """A byte that was synced changes, or the file ends there."""
        inode = self._names[os.path.dirname(path)][os.path.basename(path)]
        for data in (inode.data, inode.synced):
            if cut:
                del data[position:]
            elif position < len(data):
                data[position] ^= 0x10
