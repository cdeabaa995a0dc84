"""A leader that alone cannot fold an entry: another node leads soon, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.conftest import cluster_of
from tests.storage_nodes.node.node_programs import FALTERING_NODE, POISON, faltering_marker
from tests.storage_nodes.node.test_cluster_of_nodes import drain, run
from tests.storage_nodes.node.warm_nodes import Incubator

SENDERS = 10
# About a second is what is promised; a busy machine may take longer.
LEADS_WITHIN_S = 3.0
WITHIN_S = 20.0


@pytest.fixture
def faltering_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    yield from cluster_of(3, incubator, FALTERING_NODE)


class Senders:
    """Each sends one message after the other, and notes what was acknowledged, and when the last time."""

    def __init__(self, client: StorageClient, partition: int) -> None:
        self._client = client
        self._partition = partition
        self._stopped = False
        self.acknowledged: list[bytes] = []
        self.longest_gap_s = 0.0
        self._last_s = time.monotonic()

    async def run(self) -> None:
        await asyncio.gather(*map(self._send, range(SENDERS)))

    async def _send(self, sender: int) -> None:
        number = 0
        while not self._stopped:
            number += 1
            value = b"%d-%d" % (sender, number)
            await self._client.send(self._partition, [encode_body(value)])
            self.acknowledged.append(value)
            now_s = time.monotonic()
            self.longest_gap_s, self._last_s = max(self.longest_gap_s, now_s - self._last_s), now_s
            await asyncio.sleep(0.002)

    def stop(self) -> None:
        self._stopped = True


def test_leader_whose_replica_stops_alone_is_replaced_within_a_second_and_sends_go_on(
    faltering_cluster: StorageCluster,
) -> None:
    cluster = faltering_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        leader = await leader_of(client, partition)
        (cluster.directory / faltering_marker(leader)).touch()
        senders = Senders(client, partition)
        sending = asyncio.create_task(senders.run())
        async with asyncio.timeout(WITHIN_S):
            while len(senders.acknowledged) < 200:
                await asyncio.sleep(0.005)
        began_s = time.monotonic()
        poison = asyncio.create_task(client.send(partition, [encode_body(POISON)]))
        other = next(node for node in (1, 2, 3) if node != leader)
        async with asyncio.timeout(WITHIN_S):
            while (await client.describe_node(other, [partition])).partitions[0].leader in (0, leader):
                await asyncio.sleep(0.01)
        led_s = time.monotonic() - began_s
        assert led_s < LEADS_WITHIN_S, f"another node leads after {led_s:.2f} s"
        before = len(senders.acknowledged)
        async with asyncio.timeout(WITHIN_S):
            while len(senders.acknowledged) < before + 200:
                await asyncio.sleep(0.005)
        senders.stop()
        await sending
        assert senders.longest_gap_s < LEADS_WITHIN_S, f"no send was acknowledged for {senders.longest_gap_s:.2f} s"
        with suppress(StorageError):
            await poison  # it was committed; its sender may hear of that or not
        told = {}
        for node_id in (1, 2, 3):
            nodes = (await client.describe_node(node_id)).nodes
            own = next(node for node in nodes if node.node_id == node_id)
            told[node_id] = [(stopped.partition, stopped.kind, stopped.reason) for stopped in own.stopped]
        assert told == {n: [(partition, "entry", "ValueError: no such color")] if n == leader else [] for n in told}
        assert all(process.poll() is None for process in cluster.processes.values())
        received = await drain(client, partition)
        assert len(received) == len(set(received)), "what was sent again was appended once"
        assert set(senders.acknowledged) <= set(received) and POISON in received
        await client.close()

    run(scenario())
