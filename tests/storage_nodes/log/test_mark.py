"""The mark of the synced end (`log/mark.py`): torn, and with slots that reach the disk in any order."""

from __future__ import annotations

import random

import pytest

from storage_nodes.log.mark import SyncMark
from tests.storage_nodes.log.faulty_disk import FaultyDisk, PowerLost

IDENTITY = b"sixteen bytes id"


def marked(seed: int, sequence: int) -> FaultyDisk:
    disk = FaultyDisk(random.Random(seed))
    disk.make_directory("/node")
    mark = SyncMark.create(disk, "/node", IDENTITY)
    for synced in range(1, sequence + 1):
        mark.note(synced, 1)
    return disk


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("power_lost", [False, True])
def test_mark_torn_in_two_lives_in_a_row_leaves_the_one_before(seed: int, power_lost: bool) -> None:
    """The group was synced, its mark was torn: the next life's first group is two further on than the mark that counts,
    and its mark must not be written over that one."""
    disk = marked(seed, 2)
    SyncMark.open(disk, "/node", IDENTITY).sync()
    for sequence in (3, 4, 5):
        mark = SyncMark.open(disk, "/node", IDENTITY)
        disk.crash_after = 1
        with pytest.raises(PowerLost):
            mark.note(sequence, 1)
        disk = disk.after_power_loss() if power_lost else disk.as_killed()
    assert 2 <= SyncMark.open(disk, "/node", IDENTITY).sequence <= 5


@pytest.mark.parametrize("seed", range(20))
def test_slots_that_reach_the_disk_in_any_order_leave_a_mark_that_is_not_older_than_the_last_sync(seed: int) -> None:
    disk = marked(seed, 2)
    mark = SyncMark.open(disk, "/node", IDENTITY)
    for sequence in (4, 5, 7, 9):
        mark.note(sequence, 1)
    assert 2 <= SyncMark.open(disk.after_power_loss(), "/node", IDENTITY).sequence <= 9
    mark.sync()
    assert SyncMark.open(disk.after_power_loss(), "/node", IDENTITY).sequence == 9
