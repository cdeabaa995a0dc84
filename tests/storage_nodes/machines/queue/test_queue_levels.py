"""A queue partition goes by its own feature level; what level 2 brought: deletes of lost leases are billed."""

from __future__ import annotations

import pytest

from storage_nodes.machines.queue.commands import LeveledCommand, decode_command
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.protocol.levels import DELETES_OF_LOST_LEASES_BILLED
from tests.storage_nodes.machines.queue.metered import BILLED, delivered, message, open_window, rows, send, tell
from tests.storage_nodes.machines.queue.partition import Partition, receipts_of

LEVEL = DELETES_OF_LOST_LEASES_BILLED


def kinds_taken(partition: Partition, level: int) -> list[type]:
    bodies = partition.leader.take_commands(partition.now_ms, level)
    partition.is_proposed = False
    partition.append(bodies, control=True) if bodies else None
    return [type(command) for command in map(decode_command, bodies) if command is not None]


def test_first_commands_that_may_use_a_higher_level_raise_the_partition_and_no_later_ones() -> None:
    partition = Partition()
    partition.send(2)
    partition.acquire("a", 1)
    assert kinds_taken(partition, LEVEL)[0] == LeveledCommand
    assert (partition.leader.level, partition.follower.level) == (LEVEL, LEVEL)
    partition.acquire("b", 1)
    assert LeveledCommand not in kinds_taken(partition, LEVEL)


def test_idle_partition_writes_nothing_when_the_level_of_the_cluster_rises() -> None:
    partition = Partition()
    assert partition.leader.take_commands(partition.now_ms, LEVEL) == []
    partition.send()
    assert partition.leader.take_commands(partition.now_ms, LEVEL) == [] and partition.leader.level == 1


def test_raise_that_was_lost_with_its_leader_is_done_by_the_next_one() -> None:
    partition = Partition()
    partition.send(2)
    partition.acquire("a", 1)
    partition.leader.take_commands(partition.now_ms, LEVEL)
    partition.fail_over()
    partition.acquire("b", 1)
    assert kinds_taken(partition, LEVEL)[0] == LeveledCommand


def test_level_is_in_the_checkpoint_and_one_of_level_1_is_what_it_was() -> None:
    partition = Partition()
    partition.send()
    assert len(partition.leader.checkpoint()) and partition.leader.checkpoint()[0] == 0x90 + 13
    partition.acquire("a", 1)
    kinds_taken(partition, LEVEL)
    blob = partition.leader.checkpoint()
    again = QueueMachine()
    again.restore(blob)
    assert again.level == LEVEL and again.checkpoint() == blob and blob[0] == 0x90 + 14


# --- level 2: a lease that is lost with its leader is billed when its message is deleted ---------------------------


@pytest.fixture
def metered() -> Partition:
    return Partition(BILLED)


def lost_lease(partition: Partition, level: int) -> None:
    """Two messages of 100 and 300 bytes stand in the queue; the first one was answered under a lease that is lost."""
    partition.acquire("nothing", 1)
    send(partition, message(50))
    kinds_taken(partition, level)
    partition.delete("d", receipts_of(partition.acquire("b", 1) or partition.delivered["nothing"]))
    kinds_taken(partition, level)
    tell(partition)
    send(partition, message(100), message(300))
    picks = partition.acquire("a", 1)
    partition.fail_over()
    partition.delete("late", receipts_of(picks))
    kinds_taken(partition, level)
    tell(partition)


def test_delete_of_a_lost_lease_is_a_delivery_from_level_2_on(metered: Partition) -> None:
    lost_lease(metered, LEVEL)
    assert delivered(metered) == (2, 50 + 200, 2), "of the mean size of what was held: its leader is gone"
    assert rows(open_window(metered))[1][:3] == (3, 2, 2)
    assert metered.leader.checkpoint() == metered.follower.checkpoint()
    assert metered.leader.state.received == 2


def test_delete_of_a_lost_lease_is_none_at_level_1(metered: Partition) -> None:
    lost_lease(metered, 1)
    assert delivered(metered) == (1, 50, 1)
    assert metered.leader.state.received == 1


def test_message_that_is_deleted_after_an_ordinary_delivery_is_billed_once(metered: Partition) -> None:
    send(metered, message(100))
    picks = metered.acquire("a", 1)
    kinds_taken(metered, LEVEL)
    metered.delete("d", receipts_of(picks))
    kinds_taken(metered, LEVEL)
    metered.delete("again", receipts_of(picks))
    kinds_taken(metered, LEVEL)
    tell(metered)
    assert delivered(metered) == (1, 100, 1)
