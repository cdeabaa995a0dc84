"""Leadership on real nodes: a clean stop hands it over first, and it goes home when its owner is back."""

from __future__ import annotations

import asyncio
import signal
import time

from benchmarks.storage_cluster import StorageCluster, described, leader_of
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.node_programs import HOMING_MS
from tests.storage_nodes.node.test_cluster_of_nodes import drain, run

GAP_S_MAX = 0.3


async def terminate(cluster: StorageCluster, node_id: int) -> int:
    """SIGTERM; how the process ended."""
    process = cluster.processes.pop(node_id)
    process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(process.wait, 10)


def test_leader_stopped_cleanly_sends_go_on_without_an_election_timeout(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        acknowledged: list[bytes] = []
        longest_gap_s = 0.0
        stopping = True

        async def produce() -> None:
            nonlocal longest_gap_s
            last = time.perf_counter()
            while stopping:
                value = b"%d" % len(acknowledged)
                await client.send(partition, [encode_body(value)])
                acknowledged.append(value)
                now = time.perf_counter()
                longest_gap_s, last = max(longest_gap_s, now - last), now

        sender = asyncio.create_task(produce())
        await asyncio.sleep(0.3)
        info = await described(client, partition)
        assert await terminate(cluster, info.leader) == 0
        await asyncio.sleep(0.3)
        stopping = False
        await sender
        after = await described(client, partition)
        assert after.leader not in (0, info.leader) and after.epoch == info.epoch + 1
        assert longest_gap_s < GAP_S_MAX
        assert set(acknowledged) <= set(await drain(client, partition))
        await client.close()

    run(scenario())


def test_all_nodes_stopped_at_once_none_waits_for_another(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        for number in range(6):
            await cluster.create_partition(client, PartitionKind.QUEUE, f"t{number}")
        await client.close()
        started = time.perf_counter()
        ends = await asyncio.gather(*(terminate(cluster, node_id) for node_id in (1, 2, 3)))
        assert ends == [0, 0, 0]
        assert time.perf_counter() - started < 2.5

    run(scenario())


def test_preferred_leader_that_is_back_and_level_leads_again(homing_cluster: StorageCluster) -> None:
    cluster = homing_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        info = await described(client, partition)
        assert info.leader == info.replicas[0]
        await terminate(cluster, info.leader)
        await client.send(partition, [encode_body(b"while away")])
        assert await leader_of(client, partition) != info.replicas[0]
        cluster.start(info.leader)
        deadline = time.monotonic() + HOMING_MS / 1000 + 10
        while await leader_of(client, partition) != info.replicas[0]:
            assert time.monotonic() < deadline, "leadership did not go home"
            await asyncio.sleep(0.2)
        assert await drain(client, partition) == [b"while away"]
        await client.close()

    run(scenario())
