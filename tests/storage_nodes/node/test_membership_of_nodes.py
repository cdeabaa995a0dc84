"""Membership changes of one partition on real nodes, in one process: under traffic, and with a restart at each step."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks.storage_cluster import _free_ports
from storage_nodes.client import StorageClient
from storage_nodes.config import NodeConfig
from storage_nodes.limits import KIB
from storage_nodes.log.bounds import LogBounds
from storage_nodes.log.node_log import NodeLog
from storage_nodes.machines.cluster.commands import Move, MoveBegun, PartitionCreated
from storage_nodes.machines.raft.membership import AddLearner, Change, ConfigChangeError, Promote, Remove
from storage_nodes.model import CLUSTER_PARTITION, NodeAddress, PartitionKind, format_node_list
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.test_cluster_of_nodes import drain

WAIT_S = 30.0
# Small files, so that what is dead is trimmed after little traffic and a learner needs a snapshot.
SMALL_FILES = LogBounds(wal_file_bytes=256 * KIB, wal_grow_bytes=64 * KIB, segment_bytes_max=256 * KIB)


class Nodes:
    """Four nodes; a partition of three of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.addresses = [
            NodeAddress(index + 1, "127.0.0.1", port, f"zone-{index + 1}") for index, port in enumerate(_free_ports(4))
        ]
        self.nodes: dict[int, StorageNode] = {}
        self.partition = 0
        self.settled: list[tuple[int, Configuration]] = []

    async def start(self, node_id: int) -> None:
        address = self.addresses[node_id - 1]
        listen = f"{address.host}:{address.port}"
        directory = str(self._directory / f"node-{node_id}")
        node = StorageNode(NodeConfig("c", node_id, directory, listen, format_node_list(self.addresses)))
        self.nodes[node_id] = node
        node.configuration_committed = functools.partial(self._settled, node_id)  # type: ignore[method-assign]
        await node.start()

    async def crash(self, node_id: int) -> None:
        """It stops without handing over what it leads; nothing it has to say gets out any more."""
        node = self.nodes.pop(node_id)
        node._retire = functools.partial(asyncio.sleep, 0)  # type: ignore[method-assign]
        node.send = lambda peer, message: None  # type: ignore[method-assign]
        await node.close()

    async def stop(self) -> None:
        for node_id in list(self.nodes):
            await self.crash(node_id)

    async def client(self) -> StorageClient:
        client = StorageClient("c", self.addresses, "test")
        await client.start()
        return client

    async def make_partition(self, client: StorageClient) -> None:
        deadline = time.monotonic() + WAIT_S
        while not self.partition:
            try:
                self.partition = (await client.create_partition(PartitionKind.QUEUE, "t")).partition
            except StorageError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
        await client.stats(self.partition)

    def replica(self, node_id: int) -> Replica:
        return self.nodes[node_id].replicas[self.partition]

    def leader(self) -> Replica | None:
        replicas = [n.replicas[self.partition] for n in self.nodes.values() if self.partition in n.replicas]
        serving = [replica for replica in replicas if replica.serving]
        return max(serving, key=lambda replica: replica.raft.epoch, default=None)

    def make_learner(self, node_id: int) -> None:
        """As a mover does: the replica is there before the group adds it. It came by a move that the cluster log does
        not have yet; a restart would drop one that came by an earlier move."""
        leader = self.leader()
        assert leader is not None
        meta = PartitionMeta(leader.meta.tag, leader.voters, leader.meta.config, learner=True, move=1)
        node = self.nodes[node_id]
        log = node.log.create(self.partition, PartitionKind.QUEUE, msgspec.json.encode(meta).decode())
        node.committer.wake()
        node.replicas.open(log).start(campaign=False)

    async def change(self, change: Change) -> None:
        """Ask whoever leads until it is done."""

        def done() -> bool:
            leader = self.leader()
            if leader is None or leader.raft.configuration_pending:
                return False
            voters, learners = leader.raft.configuration
            is_voter, is_learner = change.node_id in voters, change.node_id in learners
            wanted = {AddLearner: is_learner, Promote: is_voter, Remove: not (is_voter or is_learner)}[type(change)]
            if not wanted:
                leader.change_configuration(change)
            return wanted

        await until(done)

    def _settled(self, node_id: int, partition: int, configuration: Configuration) -> None:
        if partition == self.partition:
            self.settled.append((node_id, configuration))


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0.01)


class Traffic:
    """Sends all the time; what is answered is acknowledged."""

    def __init__(self, client: StorageClient, partition: int) -> None:
        self.acknowledged: list[bytes] = []
        self._client = client
        self._partition = partition
        self._stopped = False
        self._tasks = [asyncio.create_task(self._send(sender)) for sender in range(4)]

    async def _send(self, sender: int) -> None:
        number = 0
        while not self._stopped:
            number += 1
            value = b"%d-%d" % (sender, number)
            await self._client.send(self._partition, [encode_body(value)])
            self.acknowledged.append(value)
            await asyncio.sleep(0.002)

    async def flow(self) -> None:
        """Until some more is acknowledged."""
        count = len(self.acknowledged) + 20
        await until(lambda: len(self.acknowledged) >= count)

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._tasks)


async def churn(client: StorageClient, partition: int, total_bytes: int) -> None:
    """Send and delete, so that dead entries fill whole WAL files."""
    filler = encode_body(bytes(16 * KIB))
    for _ in range(total_bytes // (8 * 16 * KIB)):
        await asyncio.gather(*(client.send(partition, [filler]) for _ in range(8)))
        await drain(client, partition)


def run(directory: Path, scenario: Callable[[Nodes, StorageClient], object]) -> None:
    async def play() -> None:
        nodes = Nodes(directory)
        for node_id in (1, 2, 3, 4):
            await nodes.start(node_id)
        client = await nodes.client()
        try:
            await nodes.make_partition(client)
            await scenario(nodes, client)  # type: ignore[misc]
        finally:
            await client.close()
            await nodes.stop()

    asyncio.run(asyncio.wait_for(play(), 120))


def outsider(nodes: Nodes) -> int:
    leader = nodes.leader()
    assert leader is not None
    return next(node for node in (1, 2, 3, 4) if node not in leader.raft.configuration.members)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    real = NodeLog.open
    monkeypatch.setattr(NodeLog, "open", functools.partial(real, bounds=SMALL_FILES))


@pytest.mark.parametrize("by", ["log", "snapshot"])
def test_replica_moves_under_traffic_and_no_acknowledged_message_is_lost(
    tmp_path: Path, small_files: None, by: str
) -> None:
    async def scenario(nodes: Nodes, client: StorageClient) -> None:
        if by == "snapshot":
            await churn(client, nodes.partition, 4 * 256 * KIB)
            await until(lambda: nodes.leader() is not None and nodes.leader().log.whole_from > 0)  # type: ignore[union-attr]
        traffic = Traffic(client, nodes.partition)
        await traffic.flow()
        newcomer = outsider(nodes)
        old = next(node for node in (1, 2, 3, 4) if node not in (newcomer, nodes.leader().host.node_id))  # type: ignore[union-attr]
        nodes.make_learner(newcomer)
        await nodes.change(AddLearner(newcomer))
        await traffic.flow()
        await nodes.change(Promote(newcomer))
        assert (nodes.replica(newcomer).log.log_start > 0) is (by == "snapshot")
        await traffic.flow()
        await nodes.change(Remove(old))
        await traffic.flow()
        await until(lambda: not nodes.replica(old).raft.members.can_campaign())
        # The newcomer must be able to carry the group: with the leader gone, it is one of the two that are left.
        leader = nodes.leader()
        assert leader is not None
        await nodes.crash(leader.host.node_id)
        await traffic.flow()
        await traffic.stop()
        assert set(traffic.acknowledged) <= set(await drain(client, nodes.partition))
        voters = {1, 2, 3, 4} - {old}
        for node_id in voters - {leader.host.node_id}:
            assert (node_id, nodes.replica(node_id).raft.configuration) in nodes.settled
            assert set(nodes.replica(node_id).voters) == voters

    run(tmp_path, scenario)


def test_leader_that_is_removed_hands_over_and_no_acknowledged_message_is_lost(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, client: StorageClient) -> None:
        traffic = Traffic(client, nodes.partition)
        await traffic.flow()
        newcomer = outsider(nodes)
        nodes.make_learner(newcomer)
        await nodes.change(AddLearner(newcomer))
        await nodes.change(Promote(newcomer))
        leader = nodes.leader()
        assert leader is not None
        started = time.monotonic()
        await nodes.change(Remove(leader.host.node_id))
        await until(lambda: not leader.serving)
        await traffic.flow()
        heir = nodes.leader()
        assert heir is not None and heir.host.node_id != leader.host.node_id
        assert leader.host.node_id not in heir.raft.configuration.members and leader.raft.next_tick_ms() == 0
        assert "handed over" in heir.raft.status().leader_reason, f"after {time.monotonic() - started} s"
        await traffic.stop()
        assert set(traffic.acknowledged) <= set(await drain(client, nodes.partition))

    run(tmp_path, scenario)


def test_move_with_all_nodes_restarted_at_each_step_goes_on_where_it_was(tmp_path: Path, small_files: None) -> None:
    async def scenario(nodes: Nodes, client: StorageClient) -> None:
        acknowledged: list[bytes] = []

        async def restart() -> None:
            value = b"%d" % len(acknowledged)
            await client.send(nodes.partition, [encode_body(value)])
            acknowledged.append(value)
            for node_id in list(nodes.nodes):
                await nodes.crash(node_id)
            for node_id in (1, 2, 3, 4):
                await nodes.start(node_id)
            await until(lambda: nodes.leader() is not None)

        newcomer = outsider(nodes)
        leader = nodes.leader()
        assert leader is not None
        old = leader.voters[0]
        nodes.make_learner(newcomer)
        await restart()
        await nodes.change(AddLearner(newcomer))
        await restart()
        assert nodes.leader().raft.learners == (newcomer,)  # type: ignore[union-attr]
        await nodes.change(Promote(newcomer))
        await churn(client, nodes.partition, 4 * 256 * KIB)  # its entry goes to the manifest
        acknowledged.clear()
        await restart()
        await nodes.change(Remove(old))
        await restart()
        leader = nodes.leader()
        assert leader is not None and set(leader.voters) == {1, 2, 3, 4} - {old}
        assert set(acknowledged) <= set(await drain(client, nodes.partition))

    run(tmp_path, scenario)


def test_change_that_its_leader_could_not_commit_is_undone(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, client: StorageClient) -> None:
        traffic = Traffic(client, nodes.partition)
        await traffic.flow()
        leader = nodes.leader()
        assert leader is not None
        before, newcomer, old = leader.raft.configuration, outsider(nodes), leader.host.node_id
        nodes.nodes[old].send = lambda peer, message: None  # type: ignore[method-assign]
        assert leader.change_configuration(AddLearner(newcomer)) is None
        assert leader.change_configuration(Remove(newcomer)) is ConfigChangeError.CHANGE_UNDER_WAY
        end = leader.log.log_end
        await until(lambda: leader.log.durable_end >= end)
        await nodes.crash(old)
        await traffic.flow()
        await nodes.start(old)
        assert nodes.replica(old).raft.learners == (newcomer,), "in force, and not committed"
        await until(lambda: nodes.replica(old).raft.configuration == before)
        await traffic.flow()
        await nodes.change(AddLearner(newcomer))
        await traffic.stop()
        assert set(traffic.acknowledged) <= set(await drain(client, nodes.partition))

    run(tmp_path, scenario)


def test_change_asked_of_a_follower_or_refused_has_no_effect(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, client: StorageClient) -> None:
        leader = nodes.leader()
        assert leader is not None
        follower = nodes.replica(next(node for node in leader.voters if node != leader.host.node_id))
        end = leader.log.log_end
        assert follower.change_configuration(Remove(1)) is ConfigChangeError.NOT_LEADER
        assert leader.change_configuration(Promote(outsider(nodes))) is ConfigChangeError.NOT_A_LEARNER
        assert leader.change_configuration(Promote(leader.host.node_id)) is None, "it is a voter already"
        assert leader.log.log_end == end

    run(tmp_path, scenario)


def test_node_that_lost_its_directory_and_joins_again_trusts_nothing_that_it_is_told_to_hold(tmp_path: Path) -> None:
    """The cluster feeds it, as a learner, and it makes again the replicas whose votes and entries it has lost (R12)."""

    async def scenario(nodes: Nodes, client: StorageClient) -> None:
        traffic = Traffic(client, nodes.partition)
        await traffic.flow()
        await traffic.stop()
        lost = str(tmp_path / "lost")
        node = StorageNode(msgspec.structs.replace(nodes.nodes[4].config, node_dir=lost, node_join=True))
        node._begin_cluster_log()
        log = node.log.partitions[CLUSTER_PARTITION]
        meta = msgspec.json.decode(log.tag, type=PartitionMeta)
        assert meta.learner and log.suspect
        raft = node.replicas.open(log).raft
        assert raft.members.uninitialized(raft.epoch)
        node.assigned.catch_up()
        assert not raft.members.uninitialized(raft.epoch), "it may have been a voter, which its leader calls no learner"
        plan = nodes.nodes[1].cluster.machine.partitions[nodes.partition]
        node.assigned.changed(PartitionCreated(msgspec.structs.replace(plan, replicas=(1, 2, 4), move=None)))
        held = node.log.partitions[nodes.partition]
        assert held.suspect and node.replicas[nodes.partition].raft.suspect
        coming = msgspec.structs.replace(plan, partition=99, replicas=(1, 2, 3), move=Move(1, 3, 4))
        node.assigned.changed(MoveBegun(coming))
        raft = node.replicas[99].raft
        assert raft.configuration == Configuration((1, 2, 3), (4,)) and raft.suspect
        assert not raft.members.uninitialized(raft.epoch), "it may have been promoted before it lost its log"
        node.log._commit()
        node.log.close()

    run(tmp_path, scenario)


def test_snapshots_for_a_node_end_when_it_goes_down(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, _client: StorageClient) -> None:
        heard: list[int] = []
        nodes.nodes[1].snapshots.peer_down = heard.append  # type: ignore[method-assign]
        await nodes.crash(2)
        await until(lambda: heard == [2])

    run(tmp_path, scenario)
