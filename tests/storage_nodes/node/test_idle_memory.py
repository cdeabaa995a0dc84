"""What a replica costs that nobody uses: 20,000 of them stand on a node. Three nodes of one process, real logs."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.config import NodeConfig
from storage_nodes.model import PartitionKind, format_node_list
from storage_nodes.node.node import StorageNode
from storage_nodes.protocol.errors import StorageError

PARTITIONS = 300
NODES = 3
WAIT_S_MAX = 120.0
REST_S = 0.5
# A third of them leads. Nothing was flushed yet; the entry of the cluster log that made it is among them.
BYTES_MAX = 2_200


class Nodes:
    def __init__(self, directory: Path) -> None:
        cluster = StorageCluster(NODES, str(directory))
        nodes = format_node_list(cluster.addresses)
        self.addresses = cluster.addresses
        self._configs = [
            NodeConfig("c", each.node_id, str(directory / str(each.node_id)), f"{each.host}:{each.port}", nodes)
            for each in cluster.addresses
        ]
        self.running: list[StorageNode] = []

    async def start(self, led: int) -> None:
        """Until so many partitions are led, and every replica knows who leads."""
        self.running = [StorageNode(config) for config in self._configs]
        for node in self.running:
            await node.start()
        await until(lambda: self.settled(led))

    async def stop(self) -> None:
        await asyncio.gather(*(node.close() for node in self.running))
        self.running = []

    def settled(self, led: int) -> bool:
        replicas = [replica for node in self.running for replica in node.replicas.values()]
        is_known = all(replica.raft.leader and not replica.raft.next_tick_ms() for replica in replicas)
        return is_known and sum(replica.serving for replica in replicas) >= led


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not is_so():
            await asyncio.sleep(0.05)


async def create(client: StorageClient, first: int, count: int) -> None:
    numbers = iter(range(first, first + count))

    async def work() -> None:
        for number in numbers:
            await client.create_partition(PartitionKind.QUEUE, f"queue:{number:032x}:0")

    await asyncio.gather(*(work() for _ in range(32)))


async def idle_bytes(nodes: Nodes) -> int:
    """Of all nodes, once nothing is under way any more: messages of the last elections count for nobody."""
    await asyncio.sleep(REST_S)
    return sum(map(weight_bytes, nodes.running))


def weight_bytes(node: StorageNode) -> int:
    """Of all that can be reached from the node, each object once; of what is code nothing."""
    code = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType, asyncio.AbstractEventLoop)
    known = {id(node)}
    waiting: list[object] = [node]
    weight = 0
    while waiting:
        part = waiting.pop()
        weight += (sys.getsizeof(part) + 15) // 16 * 16
        for held in gc.get_referents(part):
            if id(held) not in known and not isinstance(held, code):
                known.add(id(held))
                waiting.append(held)
    return weight


def test_idle_replica_stays_small_when_created_and_when_restarted(tmp_path: Path) -> None:
    async def scenario() -> tuple[float, float]:
        nodes = Nodes(tmp_path)
        await nodes.start(1)
        client = StorageClient("c", nodes.addresses, "test")
        await client.start()
        await first_creation(client)
        empty = await idle_bytes(nodes)
        await create(client, 1, PARTITIONS)
        await until(lambda: nodes.settled(PARTITIONS + 2))
        created = await idle_bytes(nodes) - empty
        await nodes.stop()
        await nodes.start(PARTITIONS + 2)
        restarted = await idle_bytes(nodes) - empty
        await client.close()
        await nodes.stop()
        return created / PARTITIONS / NODES, restarted / PARTITIONS / NODES

    created, restarted = asyncio.run(scenario())
    assert created < BYTES_MAX and restarted < BYTES_MAX, (created, restarted)


async def first_creation(client: StorageClient) -> None:
    """It waits until the nodes are registered."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            try:
                await create(client, 0, 1)
                return
            except StorageError:
                await asyncio.sleep(0.05)
