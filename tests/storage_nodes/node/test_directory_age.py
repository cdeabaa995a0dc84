"""Directories that went back: what peers remember, what they say, and what the node makes of it (R12)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from storage_nodes.log.node_log import NodeLog
from storage_nodes.model import PartitionKind
from storage_nodes.node.disk_care.going_back import GoingBack
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.transport.directory_age import OwnAge, PeerAge
from storage_nodes.protocol.peer_messages import Heartbeat, PeerHello, VoteRequest
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.node.test_peers import Rig

PARTITION = 7


@pytest.fixture
def rig() -> Iterator[Rig]:
    loop = asyncio.new_event_loop()
    yield Rig(loop)
    loop.close()


def test_peer_is_known_by_the_last_group_that_it_told() -> None:
    age = PeerAge()
    age.heard(3, 10, 5)
    age.heard(3, 12, 5)
    age.heard(3, 11, 5)
    assert (age.incarnation, age.sequence) == (3, 12)


def test_later_process_that_began_with_less_changes_nothing_until_it_is_accounted_for() -> None:
    age = PeerAge()
    age.heard(3, 12, 5)
    age.heard(4, 9, 8)
    age.heard(4, 50, 8)
    assert (age.incarnation, age.sequence) == (3, 12), "it has written much since, and lacks what it lacks"
    age.heard(4, 51, 12)
    assert (age.incarnation, age.sequence) == (4, 51)


def test_later_process_that_began_with_all_of_it_is_the_one_that_is_known() -> None:
    age = PeerAge()
    age.heard(3, 12, 5)
    age.heard(4, 13, 12)
    assert (age.incarnation, age.sequence) == (4, 13)


def beat(known_incarnation: int, known_sequence: int, seq: int = 1) -> Heartbeat:
    return Heartbeat(2, 3, seq, 0, 7, known_incarnation=known_incarnation, known_sequence=known_sequence)


def test_heartbeat_tells_this_node_of_groups_that_it_does_not_have(rig: Rig) -> None:
    told: list[tuple[int, int]] = []
    rig.links.on_older = lambda peer, sequence: told.append((peer, sequence))
    rig.links.age.accounted = 20
    rig.links.age.synced = lambda: 30
    rig.links.heard(beat(6, 20))
    rig.links.heard(beat(7, 30, 2))
    assert not told, "no more than it began with, and what this very process synced"
    rig.links.heard(beat(6, 21, 3))
    assert told == [(2, 21)]


def test_heartbeat_of_more_than_this_very_process_synced_is_of_another_life(rig: Rig) -> None:
    """Both have one incarnation: a clock that was far ahead gave it out, and the older directory once more."""
    told: list[tuple[int, int]] = []
    rig.links.on_older = lambda peer, sequence: told.append((peer, sequence))
    rig.links.age.accounted = 20
    rig.links.age.synced = lambda: 22
    rig.links.heard(beat(7, 22))
    assert not told
    rig.links.heard(beat(7, 23, 2))
    assert told == [(2, 23)]


def test_peer_was_heard_once_a_heartbeat_of_its_present_process_came(rig: Rig) -> None:
    assert not rig.links.was_heard(2) and not rig.links.was_heard(9)
    rig.links.heard(beat(0, 0))
    assert rig.links.was_heard(2)
    assert rig.links.greeted(PeerHello("c", 2, 4)) == ""
    assert not rig.links.was_heard(2)


def test_request_for_a_vote_of_a_node_that_was_not_heard_is_left_unanswered() -> None:
    replica = Replica.__new__(Replica)
    stepped: list[object] = []
    heard: set[int] = set()
    host: Any = SimpleNamespace(clock=SimpleNamespace(mono_ms=lambda: 0), was_heard=heard.__contains__)
    raft: Any = SimpleNamespace(step=lambda *arguments: stepped.append(arguments) or [], leader=0, timer_ms=0)
    replica.host, replica.raft, replica.closed, replica.serving, replica._leader_told = host, raft, False, False, 0
    replica.receive(2, VoteRequest(PARTITION, 2, 1, 1))
    assert not stepped
    heard.add(2)
    replica.receive(2, VoteRequest(PARTITION, 2, 1, 1))
    assert len(stepped) == 1


# --- the log and the node ------------------------------------------------------------------------------------


def sync(log: NodeLog) -> None:
    group = log.take_group()
    assert group is not None
    log.write_group(group)
    log.group_written(group)


def opened(disk: FaultyDisk) -> NodeLog:
    return NodeLog.open("/data", disk=disk)


def test_log_knows_the_last_group_that_it_found_and_the_last_one_that_is_durable() -> None:
    disk = FaultyDisk(random.Random(1))
    log = opened(disk)
    log.create(PARTITION, PartitionKind.QUEUE, "t")
    assert log.gathering_sequence == log.synced_sequence + 1
    sync(log)
    synced = log.synced_sequence
    again = opened(disk.as_killed())
    assert again.recovered_sequence == synced
    assert again.synced_sequence > synced, "a start writes a group of its own"


class Told:
    """A replica as far as this needs one."""

    def __init__(self) -> None:
        self.times = 0

    def became_suspect(self) -> None:
        self.times += 1


def test_node_that_went_back_makes_all_replicas_suspect_durably_and_then_says_so() -> None:
    disk = FaultyDisk(random.Random(1))
    log = opened(disk)
    log.create(PARTITION, PartitionKind.QUEUE, "t")
    sync(log)
    replica, age, woken = Told(), OwnAge(), list[bool]()
    going_back = GoingBack(log, cast(Any, {PARTITION: replica}), age, lambda: woken.append(True))
    began = age.accounted
    assert began == log.recovered_sequence and age.synced() == log.synced_sequence
    going_back.told(2, began + 90)
    going_back.told(3, began + 80)
    assert replica.times == 1 and woken == [True], "all that it lacks was reckoned with"
    assert log.partitions[PARTITION].suspect
    going_back.after_group()
    assert age.accounted == began, "its marks are not durable"
    sync(log)
    going_back.after_group()
    assert age.accounted == began + 90
    assert opened(disk.as_killed()).partitions[PARTITION].suspect
    going_back.told(3, began + 95)
    assert replica.times == 2, "it lacks more than it knew"
