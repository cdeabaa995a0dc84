"""A node whose directory is an older copy hears of it from its peers, votes like one that lost it, and is fed again
(R12)."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from pathlib import Path

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.records import decode_body, encode_body
from tests.storage_nodes.node.test_acks_between_nodes import run

OLDER = "the directory of this node is an older one"
TRUSTED = "replica is trusted again"
WAIT_S = 30.0
# Longer than elections take, and what nodes say of each other is known by then.
SETTLE_S = 3.0


def directory_of(cluster: StorageCluster, node: int) -> Path:
    return Path(cluster.directory) / f"node-{node}"


async def send(client: StorageClient, partition: int, name: str, count: int) -> list[bytes]:
    values = [b"%s-%d" % (name.encode(), number) for number in range(count)]
    await asyncio.gather(*(client.send(partition, [encode_body(value)]) for value in values))
    return values


async def received(client: StorageClient, partition: int, wanted: int) -> set[bytes]:
    found: set[bytes] = set()
    deadline = time.monotonic() + WAIT_S
    while len(found) < wanted and time.monotonic() < deadline:
        reply = await client.acquire(partition, 100, 60_000, 500)
        found |= {decode_body(message.body).value for message in reply.messages}
    return found


async def logged(cluster: StorageCluster, node: int, text: str, after: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while text not in cluster.log_of(node)[after:]:
        assert time.monotonic() < deadline, f"node {node} never said: {text}"
        await asyncio.sleep(0.05)


def test_node_with_an_older_directory_elects_nobody_that_lacks_what_it_forgot(cluster: StorageCluster) -> None:
    """What nodes 1 and 2 committed without node 3, node 2 forgets, and node 1 is away: 2 and 3 are a majority that
    lacks it, and must wait for node 1."""

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        values = await send(client, partition, "before the copy", 20)
        cluster.processes[2].send_signal(signal.SIGTERM)
        cluster.processes.pop(2).wait()
        copy = directory_of(cluster, 2).with_name("copy")
        shutil.copytree(directory_of(cluster, 2), copy)
        cluster.start(2)
        values += await send(client, partition, "after the copy", 200)
        await asyncio.sleep(SETTLE_S)  # node 3 hears how far node 2 has come
        cluster.processes[3].send_signal(signal.SIGSTOP)
        values += await send(client, partition, "without node 3", 20)
        cluster.kill(2)
        cluster.kill(1)
        shutil.rmtree(directory_of(cluster, 2))
        copy.rename(directory_of(cluster, 2))
        said = len(cluster.log_of(2))
        cluster.processes[3].send_signal(signal.SIGCONT)
        cluster.start(2)
        await logged(cluster, 2, OLDER, said)
        await asyncio.sleep(SETTLE_S)
        leaders = [info.leader for info in (await client.describe([partition])).partitions]
        assert leaders == [0], "nobody leads without node 1"
        cluster.start(1)
        assert await received(client, partition, len(values)) == set(values)
        await logged(cluster, 2, TRUSTED, said)
        await client.close()

    run(scenario())


def test_node_that_is_restarted_with_its_own_directory_is_not_taken_for_an_older_one(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        values = await send(client, partition, "m", 50)
        for how in ("kill", "stop"):
            if how == "kill":
                cluster.kill(2)
            else:
                cluster.processes[2].send_signal(signal.SIGTERM)
                cluster.processes.pop(2).wait()
            cluster.start(2)
            values += await send(client, partition, how, 20)
            await asyncio.sleep(SETTLE_S)
        assert await received(client, partition, len(values)) == set(values)
        assert OLDER not in cluster.log_of(2)
        await client.close()

    run(scenario())
