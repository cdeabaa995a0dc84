"""Replicas that move between real nodes under traffic, and nodes that come and go: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import CLUSTER_PARTITION, NodeState, PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import ClusterInfo, PartitionInfo
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.test_cluster_of_nodes import drain, run

WAIT_S = 30.0
# A hand-over and a configuration change cost a few round trips, and no election timeout.
GAP_S_MAX = 0.5
SENDERS = 4


class Traffic:
    """Sends all the time; knows what was acknowledged."""

    def __init__(self, client: StorageClient, partition: int) -> None:
        self.acknowledged: list[bytes] = []
        self._client = client
        self._partition = partition
        self._stopping = False
        self.longest_gap_s = 0.0
        self._last = time.perf_counter()

    async def send(self, sender: int) -> None:
        number = 0
        while not self._stopping:
            value = b"%d-%d" % (sender, number)
            await self._client.send(self._partition, [encode_body(value)])
            self.acknowledged.append(value)
            number += 1
            now = time.perf_counter()
            self.longest_gap_s, self._last = max(self.longest_gap_s, now - self._last), now
            await asyncio.sleep(0.002)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Traffic]:
        self._last = time.perf_counter()
        senders = [asyncio.create_task(self.send(sender)) for sender in range(SENDERS)]
        try:
            yield self
        finally:
            self._stopping = True
            await asyncio.gather(*senders)

    async def some_more(self, count: int = 100) -> None:
        wanted = len(self.acknowledged) + count
        await until(lambda: _true(len(self.acknowledged) >= wanted), "traffic stands still")

    async def check(self) -> None:
        """Everything acknowledged is there, in the order of each sender; what was sent twice may be there twice."""
        received = await drain(self._client, self._partition)
        assert set(self.acknowledged) <= set(received)
        for sender in range(SENDERS):
            own = [value for value in dict.fromkeys(received) if value.startswith(b"%d-" % sender)]
            assert own == sorted(own, key=lambda value: int(value.split(b"-")[1]))


async def _true(value: bool) -> bool:
    return value


async def until(condition: Callable[[], Awaitable[bool]], complaint: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if await condition():
                return
        except StorageError:
            pass
        assert time.monotonic() < deadline, complaint
        await asyncio.sleep(0.05)


async def info_of(client: StorageClient, partition: int) -> PartitionInfo:
    """Asked of any node, which may be a little behind: until it has folded that there is such a partition."""
    async with asyncio.timeout(WAIT_S):
        while not (told := (await client.describe([partition])).partitions):
            await asyncio.sleep(0.05)
    return told[0]


async def moved(client: StorageClient, before: PartitionInfo, source: int, target: int) -> None:
    """Wait until the target has taken the very place of the source; the answering node may be a little behind."""
    expected = [target if node == source else node for node in before.replicas]

    async def resting() -> bool:
        now = await info_of(client, before.partition)
        return now.move is None and now.replicas == expected

    await until(resting, "the move does not end")


async def replicas_as(client: StorageClient, before: PartitionInfo) -> None:
    """Wait until they are: the node that answers knows no partition while it folds its log again."""

    async def as_before() -> bool:
        known = (await client.describe([before.partition])).partitions
        return [info.replicas for info in known] == [before.replicas]

    await until(as_before, "the replicas are not where they were")


async def in_the_group(client: StorageClient, node_id: int) -> None:
    """Wait until a new node folds the cluster log itself."""

    async def knows_itself() -> bool:
        await client.describe()  # this is where the client learns of the node
        info = await client.describe_node(node_id)
        return info.manager != 0 and any(node.node_id == node_id for node in info.nodes)

    await until(knows_itself, "the new node is not fed")


async def is_gone(client: StorageClient, node_id: int) -> bool:
    return all(node.node_id != node_id for node in (await client.describe([])).nodes)


async def has_voters(client: StorageClient, count: int) -> bool:
    return len((await info_of(client, CLUSTER_PARTITION)).replicas) == count


async def eventually_down(client: StorageClient, node_id: int) -> None:
    async def down() -> bool:
        manager = (await client.describe([])).manager
        nodes = (await client.describe_node(manager, [])).nodes
        return not next(node for node in nodes if node.node_id == node_id).alive

    await until(down, "the manager does not notice the death")


async def cluster_of_four(cluster: StorageCluster) -> StorageClient:
    """A client that was given three nodes, of a cluster that has four."""
    client = await cluster.client()
    await cluster.create_partition(client, PartitionKind.QUEUE, "first")
    await in_the_group(client, cluster.add())
    return client


async def partition_to_move(cluster: StorageCluster, client: StorageClient) -> tuple[PartitionInfo, int]:
    """A partition with a leader, and the node that holds none of it."""
    partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")

    async def led() -> bool:
        return bool((await info_of(client, partition)).leader)

    await until(led, "nobody leads")
    info = await info_of(client, partition)
    return info, next(node for node in (1, 2, 3, 4) if node not in info.replicas)


async def held_by(client: StorageClient, node_id: int) -> int:
    return next(node.replicas for node in (await client.describe([])).nodes if node.node_id == node_id)


def move_under_traffic(cluster: StorageCluster, by_leader: bool) -> None:
    async def scenario() -> None:
        client = await cluster_of_four(cluster)
        before, target = await partition_to_move(cluster, client)
        source = next(node for node in before.replicas if (node == before.leader) == by_leader)
        async with Traffic(client, before.partition).running() as traffic:
            await traffic.some_more()
            await client.move_replica(before.partition, source, target)
            await moved(client, before, source, target)
            await traffic.some_more()
        assert traffic.longest_gap_s < GAP_S_MAX
        assert (await info_of(client, before.partition)).leader != source
        await traffic.check()
        await client.close()

    run(scenario())


def test_replica_of_a_follower_moves_under_traffic_nothing_is_lost(cluster: StorageCluster) -> None:
    move_under_traffic(cluster, by_leader=False)


def test_replica_of_the_leader_moves_under_traffic_nothing_is_lost(cluster: StorageCluster) -> None:
    move_under_traffic(cluster, by_leader=True)


def move_with_a_death(cluster: StorageCluster, victim: Callable[[ClusterInfo, PartitionInfo, int], int]) -> None:
    """Kill a node in the middle of a move, start it again, and look whether the move ends and all is there."""

    async def scenario() -> None:
        client = await cluster_of_four(cluster)
        before, target = await partition_to_move(cluster, client)
        source = next(node for node in before.replicas if node != before.leader)
        async with Traffic(client, before.partition).running() as traffic:
            await traffic.some_more()
            dies = victim(await client.describe([before.partition]), before, target)
            await client.move_replica(before.partition, source, target)
            cluster.kill(dies)
            await asyncio.sleep(0.3)
            await traffic.some_more()
            cluster.start(dies)
            await moved(client, before, source, target)
            await traffic.some_more()
        await traffic.check()
        await client.close()

    run(scenario())


def test_target_killed_in_mid_move_is_fed_when_it_is_back(cluster: StorageCluster) -> None:
    move_with_a_death(cluster, lambda info, before, target: target)


def test_leader_killed_in_mid_move_the_next_one_goes_on(cluster: StorageCluster) -> None:
    move_with_a_death(cluster, lambda info, before, target: before.leader)


def test_manager_killed_in_mid_move_the_move_ends(cluster: StorageCluster) -> None:
    move_with_a_death(cluster, lambda info, before, target: info.manager)


def test_replica_moved_away_and_back_is_the_same_after_a_restart_of_all(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster_of_four(cluster)
        before, target = await partition_to_move(cluster, client)
        source = before.replicas[1]
        async with Traffic(client, before.partition).running() as traffic:
            for here, there in ((source, target), (target, source), (source, target), (target, source)):
                at = await info_of(client, before.partition)
                await client.move_replica(before.partition, here, there)
                await moved(client, at, here, there)
                await traffic.some_more(20)
        for node_id in (1, 2, 3, 4):
            cluster.kill(node_id)
        cluster.start_all()
        await traffic.check()
        await replicas_as(client, before)
        await client.close()

    run(scenario())


def test_cancelled_move_leaves_the_group_as_it_was(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster_of_four(cluster)
        before, target = await partition_to_move(cluster, client)
        cluster.kill(target)
        begun = await client.move_replica(before.partition, before.replicas[2], target)
        assert begun.move is not None and begun.move.target == target
        await client.cancel_move(before.partition, begun.move.number)

        async def resting() -> bool:
            info = await info_of(client, before.partition)
            return info.move is None and await held_by(client, target) == held

        held = await held_by(client, target) - 1
        await until(resting, "the move is not undone")
        await replicas_as(client, before)
        await client.close()

    run(scenario())


def test_node_drained_and_decommissioned_then_another_killed_all_is_served(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partitions = [await cluster.create_partition(client, PartitionKind.QUEUE, f"q{number}") for number in range(20)]
        node_id = cluster.add()
        await in_the_group(client, node_id)
        async with Traffic(client, partitions[0]).running() as traffic:
            for partition in partitions[1:]:
                await client.send(partition, [encode_body(b"kept")])
            await client.set_node_state(2, NodeState.LEAVING)
            await until(lambda: is_gone(client, 2), "node 2 does not become free")
            # Nobody lets it in any more, whatever it does.
            cluster.kill(2)
            cluster.start(2)
            await until(lambda: _true("was decommissioned" in cluster.log_of(2)), "node 2 is not told")
            cluster.kill(2)
            await traffic.some_more()
            cluster.kill(3)
            await traffic.some_more()
        cluster.start(3)
        infos = (await client.describe(partitions)).partitions
        assert all(sorted(info.replicas) == [1, 3, node_id] for info in infos)
        for node in (1, 3, node_id):
            cluster.kill(node)
        for node in (1, 3, node_id):
            cluster.start(node)
        for partition in partitions[1:]:
            assert await drain(client, partition) == [b"kept"]
        await traffic.check()
        await client.close()

    run(scenario())


def test_node_that_died_for_good_is_replaced(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster_of_four(cluster)
        partitions = [await cluster.create_partition(client, PartitionKind.QUEUE, f"q{number}") for number in range(5)]
        for partition in partitions:
            await client.send(partition, [encode_body(b"kept")])
        with pytest.raises(StorageError, match="is up, so it is not dead"):
            await client.set_node_state(1, NodeState.LEAVING, dead=True)
        cluster.kill(1)
        with pytest.raises(StorageError, match="say so with --dead"):
            await eventually_down(client, 1)
            await client.set_node_state(1, NodeState.LEAVING)
        await client.set_node_state(1, NodeState.LEAVING, dead=True)
        await until(lambda: is_gone(client, 1), "node 1 does not become free")
        infos = (await client.describe(partitions)).partitions
        assert all(sorted(info.replicas) == [2, 3, 4] for info in infos)
        for partition in partitions:
            assert await drain(client, partition) == [b"kept"]
        await client.close()

    run(scenario())


def test_node_that_cannot_be_spared_stays(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        with pytest.raises(StorageError, match=r"2 active nodes are left.*has 3 replicas; add a node first"):
            await client.set_node_state(3, NodeState.DRAINING)
        await client.close()

    run(scenario())


def test_partition_of_a_small_cluster_grows_with_it(small_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        cluster = small_cluster
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        assert (await info_of(client, partition)).replicas == [1]
        async with Traffic(client, partition).running() as traffic:
            await traffic.some_more()
            cluster.add()
            cluster.add()

            async def grown() -> bool:
                return sorted((await info_of(client, partition)).replicas) == [1, 2, 3]

            await until(grown, "the partition does not grow")
            await until(lambda: has_voters(client, 3), "the cluster's own group does not grow")
            cluster.kill(1)
            await traffic.some_more()
        await traffic.check()
        await client.close()

    run(scenario())
