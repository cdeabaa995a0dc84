"""What a node holds follows the cluster log, and folding it again after a restart neither makes nor drops anything."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from storage_nodes.log.node_log import NodeLog, PartitionLog
from storage_nodes.machines.cluster.commands import (
    BeginMove,
    Command,
    CreatePartition,
    DeletePartition,
    EndMove,
    RegisterNode,
    SetNodeState,
    encode_command,
)
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.model import CLUSTER_PARTITION, NodeAddress, NodeState
from storage_nodes.node.membership.assigned_replicas import AssignedReplicas
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas.partition_meta import PartitionMeta, shared_meta
from storage_nodes.node.transport.pending_raft_messages import PendingRaftMessages
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.log.writing import SMALL, append, commit

START: list[Command] = [RegisterNode(node, "h", node, f"z{node}") for node in (1, 2, 3, 4)]
CREATED: list[Command] = [*START, CreatePartition(1, "q", QueueConfig(), 3, 3)]


class FakeReplicas(dict[int, Any]):
    """They only say that they were made, and that they were made voters."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self.node_id = node_id
        self.closing = False
        self.made: list[int] = []
        self.made_voters: list[int] = []
        self.cluster = SimpleNamespace(
            machine=ClusterMachine(), log=SimpleNamespace(suspect=False), refolding=False,
            was_made_voter=lambda: self.made_voters.append(CLUSTER_PARTITION),
        )  # fmt: skip

    def open(self, log: PartitionLog, meta: PartitionMeta | None = None) -> Any:
        self.made.append(log.partition)
        self[log.partition] = replica = SimpleNamespace(
            start=lambda campaign: None, receive=None, close=lambda: None, meta=meta or shared_meta(log.tag),
            was_made_voter=lambda: self.made_voters.append(log.partition),
        )  # fmt: skip
        return replica


class FakeNode:
    """A node with a real log and the replicas that the cluster log assigns to it."""

    def __init__(self, disk: FaultyDisk, node_id: int = 1) -> None:
        self.node_id = node_id
        self.log = NodeLog.open("/node", SMALL, disk)
        self.disk = disk
        self.replicas: Any = FakeReplicas(node_id)
        self.made, self.made_voters = self.replicas.made, self.replicas.made_voters
        self.cluster = self.replicas.cluster
        self.admitted: set[int] = set()
        self.hung_up: list[int] = []
        self.links = SimpleNamespace(
            admit=lambda address: self.admitted.add(address.node_id), expel=self.admitted.discard
        )
        self._connections = SimpleNamespace(close_peer_connections=self.hung_up.append)
        work: Any = SimpleNamespace(
            run_maintenance=lambda work, done: done(work()), loop=SimpleNamespace(call_later=lambda *_: None)
        )
        committer: Any = SimpleNamespace(wake=lambda: None)
        early = PendingRaftMessages(lambda _sender: 1)
        self.assigned = AssignedReplicas(self.log, self.replicas, work, committer, self, early)

    def admit(self, address: NodeAddress) -> None:
        node: Any = self
        StorageNode.admit(node, address)

    def expel(self, node_id: int) -> None:
        node: Any = self
        StorageNode.expel(node, node_id)

    def fold(self, commands: list[Command]) -> None:
        for command in commands:
            for effect in self.cluster.machine.apply(encode_command(command))[1]:
                self.assigned.changed(effect)
            if self.log.staged_bytes:
                commit(self.log)

    def restarted(self, commands: list[Command]) -> FakeNode:
        """As after kill -9: the whole cluster log is folded again, then it ends."""
        again = FakeNode(self.disk.as_killed(), self.node_id)
        for log in again.log.partitions.values():
            again.replicas.open(log)
        again.made.clear()
        again.cluster.refolding = True
        again.assigned.catch_up()
        again.fold(commands)
        again.cluster.refolding = False
        again.assigned.replaced()
        return again

    def meta(self, partition: int = 1) -> PartitionMeta:
        return msgspec.json.decode(self.log.partitions[partition].tag, type=PartitionMeta)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode(FaultyDisk(random.Random(1)))


def test_replica_is_made_as_a_voter_and_dropped_when_its_move_away_has_ended(node: FakeNode) -> None:
    node.fold([*CREATED, BeginMove(1, 1, 4)])
    assert node.made == [1] and not node.meta().learner
    node.fold([EndMove(1, 1, True)])
    assert 1 not in node.log.partitions and node.replicas == {}


def test_node_that_the_cluster_log_never_heard_of_drops_nothing(node: FakeNode) -> None:
    """A directory that is opened under another name: what it holds was never taken away from anybody."""
    node.fold(CREATED)
    stranger = FakeNode(node.disk.as_killed(), 9)
    for command in CREATED:
        stranger.cluster.machine.apply(encode_command(command))
    stranger.assigned.replaced()
    assert 1 in stranger.log.partitions


def test_replica_that_comes_by_a_move_is_a_learner(node: FakeNode) -> None:
    away: list[Command] = [BeginMove(1, 1, 4), EndMove(1, 1, True)]
    node.fold([*CREATED, *away, BeginMove(1, 2, 1)])
    meta = node.meta()
    assert meta.learner and meta.replicas == (4, 2, 3) and meta.move == 2
    assert node.log.partitions[1].suspect, "its vote counts only once it has what its group committed"


@pytest.mark.parametrize("node_id", [1, 4], ids=["voter", "target"])
def test_replica_made_again_in_mid_move_by_a_node_that_lost_its_log_votes_with_those_the_group_was_made_of(
    node_id: int,
) -> None:
    """The group may never log a configuration: one that counts the target among its voters is a change by itself."""
    node = FakeNode(FaultyDisk(random.Random(1)), node_id)
    for command in [*CREATED, BeginMove(1, 2, 4)]:
        node.cluster.machine.apply(encode_command(command))
    node.cluster.log.suspect = True
    node.assigned.replaced()
    others = tuple(voter for voter in (1, 2, 3) if voter != node_id)
    boot = node.meta().boot(node_id)
    assert boot == (Configuration((1, 2, 3)) if node_id == 1 else Configuration(others, (4,)))
    assert not node.meta().learner, "it may have been a voter, whose leader does not call it a learner"
    assert node.log.partitions[1].suspect


def test_move_that_was_undone_takes_the_learner_away_again(node: FakeNode) -> None:
    node.fold([*CREATED, BeginMove(1, 1, 4), EndMove(1, 1, True), BeginMove(1, 2, 1)])
    node.fold([EndMove(1, 2, False)])
    assert 1 not in node.log.partitions


def test_replica_is_told_that_it_is_a_voter_when_its_move_is_done_and_after_every_restart(node: FakeNode) -> None:
    """It may have lost its log since, and its group takes it for a learner no more."""
    came: list[Command] = [*CREATED, BeginMove(1, 1, 4), EndMove(1, 1, True), BeginMove(1, 2, 1)]
    node.fold(came)
    assert node.made_voters == []
    pending = node.restarted(came)
    assert set(pending.made_voters) == {CLUSTER_PARTITION}
    pending.fold([EndMove(1, 2, True)])
    assert pending.made_voters[-1] == 1
    again = pending.restarted([*came, EndMove(1, 2, True)])
    assert 1 in again.made_voters


def test_state_from_before_the_move_that_brought_a_replica_does_not_call_it_a_voter(node: FakeNode) -> None:
    """The replica that it names was another one."""
    node.fold([*CREATED, BeginMove(1, 1, 4), EndMove(1, 1, True), BeginMove(1, 2, 1)])
    stale = node.restarted(CREATED)
    assert 1 in stale.cluster.machine.partitions[1].replicas and 1 not in stale.made_voters


def test_restart_makes_nothing_that_was_moved_away(node: FakeNode) -> None:
    history: list[Command] = [*CREATED, BeginMove(1, 1, 4), EndMove(1, 1, True)]
    node.fold(history)
    again = node.restarted(history)
    assert again.made == [] and 1 not in again.log.partitions


def test_restart_keeps_what_came_back_by_a_later_move(node: FakeNode) -> None:
    history: list[Command] = [
        *CREATED, BeginMove(1, 1, 4), EndMove(1, 1, True), BeginMove(1, 4, 1), EndMove(1, 2, True),
    ]  # fmt: skip
    node.fold(history[:-1])
    entry = append(node.log, 1)
    commit(node.log)
    node.fold(history[-1:])
    again = node.restarted(history)
    assert again.made == [] and again.log.partitions[1].read_cold(0, 1_000) == [entry]


def test_replica_that_is_to_come_back_is_not_made_by_a_node_that_stops(node: FakeNode) -> None:
    """Nobody would write what it stages: the stop would end in an assertion (seed 140004716)."""
    node.fold([*CREATED, BeginMove(1, 1, 4), EndMove(1, 1, True)])
    node.replicas.closing = True
    node.fold([BeginMove(1, 2, 1)])
    assert node.made == [1] and 1 not in node.log.partitions
    assert node.restarted([*CREATED, BeginMove(1, 1, 4), EndMove(1, 1, True), BeginMove(1, 2, 1)]).made == [1]


def test_restart_makes_what_was_not_durable(node: FakeNode) -> None:
    assert node.restarted(CREATED).made == [1]


def test_restart_in_mid_move_keeps_the_learner(node: FakeNode) -> None:
    history: list[Command] = [*CREATED, BeginMove(1, 1, 4), EndMove(1, 1, True), BeginMove(1, 2, 1)]
    node.fold(history)
    again = node.restarted(history)
    assert again.made == [] and again.meta().learner and again.meta().move == 2


def test_partition_deleted_goes_whatever_moved(node: FakeNode) -> None:
    node.fold([*CREATED, BeginMove(1, 2, 4), DeletePartition(1, "q")])
    assert 1 not in node.log.partitions


def test_snapshot_of_the_cluster_log_drops_what_it_no_longer_names(node: FakeNode) -> None:
    created: list[Command] = [*CREATED, CreatePartition(1, "r", QueueConfig(), 3, 3)]
    node.fold(created)
    node.cluster.machine = ClusterMachine()
    history: list[Command] = [*created, BeginMove(1, 1, 4), EndMove(1, 1, True), DeletePartition(2, "r")]
    for command in history:
        node.cluster.machine.apply(encode_command(command))
    node.assigned.replaced()
    assert 1 not in node.log.partitions and 2 not in node.log.partitions


def test_state_older_than_a_partition_keeps_it(node: FakeNode) -> None:
    node.fold(CREATED)
    node.cluster.machine = ClusterMachine()
    for command in START:
        node.cluster.machine.apply(encode_command(command))
    node.assigned.replaced()
    assert 1 in node.log.partitions


@pytest.mark.parametrize("end", [EndMove(1, 1, False), DeletePartition(1, "q")], ids=["undone", "deleted"])
def test_snapshot_that_passes_over_the_end_of_a_replica_after_a_restart_drops_it(end: Command) -> None:
    node = FakeNode(FaultyDisk(random.Random(1)), node_id=4)
    history: list[Command] = [*CREATED, BeginMove(1, 2, 4)]
    node.fold(history)
    assert node.made == [1]
    again = FakeNode(node.disk.as_killed(), node_id=4)
    again.replicas.open(again.log.partitions[1])
    for command in history:
        again.cluster.machine.apply(encode_command(command))
    again.assigned.replaced()
    assert 1 in again.replicas, "it is still to come"
    again.cluster.machine.apply(encode_command(end))
    again.assigned.replaced()
    assert again.replicas == {} and 1 not in again.log.partitions


def test_state_older_than_the_move_that_brought_a_replica_keeps_it(node: FakeNode) -> None:
    away: list[Command] = [BeginMove(1, 1, 4), EndMove(1, 1, True)]
    node.fold([*CREATED, *away, BeginMove(1, 2, 1)])
    again = FakeNode(node.disk.as_killed())
    again.replicas.open(again.log.partitions[1])
    for command in [*CREATED, *away]:
        again.cluster.machine.apply(encode_command(command))
    again.assigned.replaced()
    assert 1 in again.replicas and 1 in again.log.partitions


def test_nodes_are_let_in_and_sent_away(node: FakeNode) -> None:
    node.fold([*START, SetNodeState(3, NodeState.LEAVING), SetNodeState(3, NodeState.GONE)])
    assert node.admitted == {1, 2, 4} and node.hung_up == [3]
