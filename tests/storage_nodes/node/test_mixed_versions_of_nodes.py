"""Three node processes, of two releases: upgraded one at a time, and one rolled back, while messages pass."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator

import pytest

from benchmarks.storage_cluster import STOP_TIMEOUT_S, StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.levels import FEATURE_LEVEL
from storage_nodes.protocol.messages import ClusterInfo, QueueConfig
from storage_nodes.protocol.records import decode_body, encode_body
from tests.storage_nodes.node.conftest import cluster_of
from tests.storage_nodes.node.node_programs import OLDER_NODE
from tests.storage_nodes.node.test_cluster_of_nodes import drain
from tests.storage_nodes.node.warm_nodes import Incubator

OLDER = FEATURE_LEVEL - 1
QUEUES = 4
WITHIN_S = 30.0
MIXED_S = 1.5
RECEIVES_EVERY, RECEIVED_MAX = 5, 4
CONFIGURES_EVERY = 40
VISIBILITY_MS = 2_000  # what is not gone comes back while the test runs


@pytest.fixture
def older_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    yield from cluster_of(3, incubator, OLDER_NODE)


class Traffic:
    """Of each queue one client that sends, receives, deletes most of that, gives the rest back, and configures the
    queue, one call after the other, until it is told to stop. A client tries again what a node that stops refuses; a
    call that fails all the same is a failure, and so is a message that comes back after its delete was answered."""

    def __init__(self, client: StorageClient, partitions: list[int]) -> None:
        self._client = client
        self._partitions = partitions
        self.sent: dict[int, list[bytes]] = {partition: [] for partition in partitions}
        self.deleted: dict[int, set[bytes]] = {partition: set() for partition in partitions}
        self.failed: list[str] = []
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(*map(self._work, self._partitions))

    async def _work(self, partition: int) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            body = b"%d-%d" % (partition, number)
            try:
                await self._client.send(partition, [encode_body(body)])
                self.sent[partition].append(body)
                # Commands too: they are what a higher level would show in.
                if number % RECEIVES_EVERY == 0:
                    await self._receive(partition)
                if number % CONFIGURES_EVERY == 0:
                    await self._client.configure(partition, QueueConfig(in_flight_max=100_000 + number))
            except StorageError as error:
                self.failed.append(f"{partition}: {error}")
            await asyncio.sleep(0.005)

    async def _receive(self, partition: int) -> None:
        messages = (await self._client.acquire(partition, RECEIVED_MAX, VISIBILITY_MS)).messages
        if not messages:
            return
        values = [decode_body(message.body).value for message in messages]
        deleted = self.deleted[partition]
        self.failed += [f"{partition}: {value!r} was deleted" for value in values if value in deleted]
        receipts = [(message.offset, message.delivery) for message in messages]
        codes = await self._client.delete(partition, receipts[1:])
        self.failed += [f"{partition}: a delete was answered {code.name}" for code in codes if code is not ErrorCode.OK]
        deleted.update(value for value, code in zip(values[1:], codes, strict=True) if code is ErrorCode.OK)
        await self._client.change_visibility(partition, [(*receipts[0], 0)])  # where the lease was lost, it waits

    def stop(self) -> None:
        self._stopped.set()


def restart(cluster: StorageCluster, node_id: int, *, is_older: bool, held: bool = False) -> None:
    """As an upgrade does: an orderly stop, and the other release over the same directory."""
    process = cluster.processes.pop(node_id)
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_TIMEOUT_S) == 0
    module = [sys.executable, "-m", "storage_nodes"]
    cluster.command = [sys.executable, "-c", OLDER_NODE] if is_older else module
    cluster.settings = {"PENSTOCK_FEATURE_LEVEL_MAX": str(OLDER)} if held else {}
    cluster.start(node_id)


async def described(client: StorageClient, node_id: int) -> ClusterInfo:
    return await client.describe_node(node_id)


async def until_level(client: StorageClient, level: int, *spoken: tuple[int, int]) -> None:
    """All nodes are up, say that the cluster is at this level, and know what each node speaks: (highest, allowed)."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                infos = [await described(client, node_id) for node_id in (1, 2, 3)]
            except StorageError:
                infos = []
            told = [[node.levels[1:] for node in info.nodes] for info in infos]
            up = all(node.alive for info in infos for node in info.nodes)
            if infos and up and all(info.level == level for info in infos) and told == [list(spoken)] * 3:
                return
            await asyncio.sleep(0.05)


def test_nodes_are_upgraded_one_at_a_time_and_one_is_rolled_back_without_a_failed_send(
    older_cluster: StorageCluster,
) -> None:
    cluster = older_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partitions = [await cluster.create_partition(client, PartitionKind.QUEUE, f"q{n}") for n in range(QUEUES)]
        traffic = Traffic(client, partitions)
        running = asyncio.create_task(traffic.run())
        old, held, new = (OLDER, OLDER), (FEATURE_LEVEL, OLDER), (FEATURE_LEVEL, FEATURE_LEVEL)
        await until_level(client, OLDER, old, old, old)
        for node_id, *told in ((1, held, old, old), (2, held, held, old)):
            restart(cluster, node_id, is_older=False, held=True)
            await until_level(client, OLDER, *told)
            await asyncio.sleep(MIXED_S)
        restart(cluster, 2, is_older=True)  # back again: the level did not rise
        await until_level(client, OLDER, held, old, old)
        await asyncio.sleep(MIXED_S)
        for node_id, *told in ((2, held, new, old), (3, held, new, new)):
            restart(cluster, node_id, is_older=False)
            await until_level(client, OLDER, *told)
        await asyncio.sleep(MIXED_S)  # node 1 is held: nothing rises
        await until_level(client, OLDER, held, new, new)
        restart(cluster, 1, is_older=False)
        await until_level(client, FEATURE_LEVEL, new, new, new)
        await asyncio.sleep(MIXED_S)
        traffic.stop()
        await running
        assert traffic.failed == []
        for partition, sent in traffic.sent.items():
            deleted = traffic.deleted[partition]
            assert len(sent) > 100 and len(deleted) > 20
            assert sorted(await drain(client, partition)) == sorted(set(sent) - deleted), "what was not deleted, once"
        for node_id in (1, 2, 3):
            info = await described(client, node_id)
            assert not next(node for node in info.nodes if node.node_id == node_id).stopped
        await client.close()

    asyncio.run(asyncio.wait_for(scenario(), 240))


def test_release_before_the_level_of_the_cluster_serves_nobody_and_the_others_go_on(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "q")
        new = (FEATURE_LEVEL, FEATURE_LEVEL)
        await until_level(client, FEATURE_LEVEL, new, new, new)
        restart(cluster, 3, is_older=True)
        async with asyncio.timeout(WITHIN_S):
            while (await described(client, 1)).nodes[2].levels[1:] != (OLDER, OLDER):
                await client.send(partition, [encode_body(b"x")])
                await asyncio.sleep(0.05)
        log_file = cluster.directory / "node-3.log"
        async with asyncio.timeout(WITHIN_S):
            while "this node serves nobody" not in log_file.read_text():
                await asyncio.sleep(0.05)
        with pytest.raises(StorageError, match="start a release there that speaks level"):
            await described(client, 3)
        log = log_file.read_text()
        assert f"start a release there that speaks level {FEATURE_LEVEL}" in log
        assert "Traceback" not in log.partition("this node serves nobody")[0]
        assert cluster.processes[3].poll() is None
        restart(cluster, 3, is_older=False)
        await until_level(client, FEATURE_LEVEL, new, new, new)
        await client.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))
