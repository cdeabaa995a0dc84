"""Replicas that move between real nodes under traffic, and nodes that come and go: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.machines.cluster.commands import NodeState
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import ClusterInfo, PartitionInfo
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.test_cluster_of_nodes import drain, run

WAIT_S = 30.0
SENDERS = 4


class Traffic:
    """Sends all the time; knows what was acknowledged."""

    def __init__(self, client: StorageClient, partition: int) -> None:
        self.acknowledged: list[bytes] = []
        self._client = client
        self._partition = partition
        self._stopping = False

    async def send(self, sender: int) -> None:
        number = 0
        while not self._stopping:
            value = b"%d-%d" % (sender, number)
            await self._client.send(self._partition, [encode_body(value)])
            self.acknowledged.append(value)
            number += 1
            await asyncio.sleep(0.002)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Traffic]:
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
    return (await client.describe([partition])).partitions[0]


async def moved(client: StorageClient, partition: int) -> PartitionInfo:
    """Wait until nothing of it is on its way."""

    async def resting() -> bool:
        return (await info_of(client, partition)).move is None

    await until(resting, "the move does not end")
    return await info_of(client, partition)


async def joined(client: StorageClient, node_id: int) -> None:
    """Wait until a new node folds the cluster log itself."""

    async def knows_itself() -> bool:
        info: ClusterInfo = await client.describe_node(node_id)
        return any(node.node_id == node_id and node.alive for node in info.nodes) and info.manager != 0

    await client.describe()
    await until(knows_itself, "the new node is not fed")


async def cluster_of_four(cluster: StorageCluster) -> tuple[StorageClient, int]:
    """A client that was given three nodes, and the id of the fourth."""
    client = await cluster.client()
    await cluster.create_partition(client, PartitionKind.QUEUE, "first")
    node_id = cluster.add()

    async def registered() -> bool:
        return any(node.node_id == node_id for node in (await client.describe()).nodes)

    await until(registered, "the new node is not registered")
    await joined(client, node_id)
    return client, node_id


def test_replica_of_a_follower_moves_under_traffic_nothing_is_lost(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client, target = await cluster_of_four(cluster)
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        before = await info_of(client, partition)
        if target in before.replicas:
            target = next(node for node in (1, 2, 3) if node not in before.replicas)
        source = next(node for node in before.replicas if node != before.leader)
        async with Traffic(client, partition).running() as traffic:
            await traffic.some_more()
            await client.move_replica(partition, source, target)
            after = await moved(client, partition)
            await traffic.some_more()
        assert [target if node == source else node for node in before.replicas] == after.replicas
        await traffic.check()
        await client.close()

    run(scenario())
