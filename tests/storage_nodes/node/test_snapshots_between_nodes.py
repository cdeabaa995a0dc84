"""Replicas that cannot be fed from the log any more, on real nodes: a wiped one, and one that was away too long."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.limits import MIB
from storage_nodes.model import Acks, PartitionKind
from storage_nodes.protocol.records import decode_body, encode_body
from tests.storage_nodes.node.node_programs import SMALL_LAGGARD_BYTES_MAX as LAGGARD_BYTES_MAX
from tests.storage_nodes.node.node_programs import SMALL_WAL_FILE_BYTES as WAL_FILE_BYTES
from tests.storage_nodes.node.test_cluster_of_nodes import drain, run

BODY_BYTES = 512 * 1024


async def churn(client: StorageClient, partition: int, total_bytes: int) -> None:
    """Send and delete, so that dead entries fill whole WAL files."""
    filler = encode_body(os.urandom(BODY_BYTES))
    for _ in range(total_bytes // (4 * BODY_BYTES)):
        await asyncio.gather(*(client.send(partition, [filler]) for _ in range(4)))
        while (await client.stats(partition)).waiting > 0:
            reply = await client.acquire(partition, 10, 30_000, 100)
            dead = [(m.offset, m.delivery) for m in reply.messages if len(m.body) > BODY_BYTES]
            kept = [(m.offset, m.delivery) for m in reply.messages if len(m.body) <= BODY_BYTES]
            assert not kept, "what is to be kept was leased before"
            await client.delete(partition, dead)


async def lease_some(client: StorageClient, partition: int, values: list[bytes]) -> list[tuple[int, int]]:
    """Send messages that stay live, and take them out of the way of `churn`."""
    for start in range(0, len(values), 10):
        await client.send(partition, [encode_body(value) for value in values[start : start + 10]])
    leased: list[tuple[int, int]] = []
    while len(leased) < len(values):
        reply = await client.acquire(partition, 100, 600_000, 1_000)
        leased += [(message.offset, message.delivery) for message in reply.messages]
    return leased


async def all_hold(client: StorageClient, partition: int) -> None:
    """With acks of every voter a send is only answered once all hold everything before it too."""
    deadline = time.monotonic() + 30
    while True:
        try:
            await client.send(partition, [encode_body(b"everybody")], acks=Acks.ALL)
            return
        except Exception:
            if time.monotonic() > deadline:
                raise


@pytest.mark.parametrize("how", ["wiped", "away"])
def test_follower_that_cannot_be_fed_from_the_log_catches_up_by_snapshot(
    small_files_cluster: StorageCluster, how: str
) -> None:
    cluster = small_files_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        values = [b"keep-%d" % number for number in range(50)]
        leased = await lease_some(client, partition, values)
        leader = await leader_of(client, partition)
        follower = next(node for node in (1, 2, 3) if node != leader)
        if how == "wiped":
            await churn(client, partition, 2 * WAL_FILE_BYTES)
            cluster.kill(follower)
            shutil.rmtree(cluster.directory / f"node-{follower}")
        else:
            cluster.kill(follower)
            await churn(client, partition, LAGGARD_BYTES_MAX + 3 * WAL_FILE_BYTES)
        await client.send(partition, [encode_body(b"before")])
        cluster.start(follower)
        await all_hold(client, partition)
        assert "snapshot installed" in cluster.log_of(follower)
        # It must be able to carry the partition: with the leader gone, it is one of the two that are left.
        third = next(node for node in (1, 2, 3) if node not in (leader, follower))
        await asyncio.sleep(0.2)
        cluster.kill(leader)
        await client.change_visibility(partition, [(offset, delivery, 0) for offset, delivery in leased])
        cluster.kill(third)
        cluster.start(leader)
        received = await drain(client, partition)
        # A send that is retried because its answer was lost may be there twice.
        assert set(received) == {*values, b"before", b"everybody"}
        await client.close()

    run(scenario())


def test_disk_space_of_a_leader_with_a_follower_away_stays_bounded(small_files_cluster: StorageCluster) -> None:
    cluster = small_files_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        leader = await leader_of(client, partition)
        cluster.kill(next(node for node in (1, 2, 3) if node != leader))
        await churn(client, partition, LAGGARD_BYTES_MAX + 4 * WAL_FILE_BYTES)
        await asyncio.sleep(1)
        segments = cluster.directory / f"node-{leader}" / "segments"
        held = sum(path.stat().st_size for path in segments.iterdir())
        assert held < LAGGARD_BYTES_MAX + 2 * WAL_FILE_BYTES + MIB
        reply = await client.acquire(partition, 1, 1_000, 0)
        assert [decode_body(message.body) for message in reply.messages] == []
        await client.close()

    run(scenario())


def test_damaged_segment_costs_its_replica_only_and_no_message(small_files_cluster: StorageCluster) -> None:
    cluster = small_files_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        values = [b"keep-%d" % number for number in range(50)]
        leased = await lease_some(client, partition, values)
        leader = await leader_of(client, partition)
        first_wal = min((cluster.directory / f"node-{leader}" / "wal").glob("0*.wal"))
        await churn(client, partition, 2 * WAL_FILE_BYTES)
        while first_wal.exists():  # until then they may be read from memory
            await churn(client, partition, WAL_FILE_BYTES // 4)
        # The one with the lowest offsets: that of the messages which are leased. None is being written anew.
        segments, known = cluster.directory / f"node-{leader}" / "segments", set[Path]()
        while known != (known := set(segments.glob(f"{partition:016x}-*.seg"))):
            await asyncio.sleep(1)
        segment = min(known)
        with open(segment, "r+b") as file:
            file.seek(90)
            spoiled = bytes(byte ^ 0xFF for byte in file.read(8))
            file.seek(90)
            file.write(spoiled)
        await client.change_visibility(partition, [(offset, delivery, 0) for offset, delivery in leased])
        received: set[bytes] = set()
        deadline = time.monotonic() + 30
        while received != set(values):
            assert time.monotonic() < deadline, "messages are missing"
            reply = await client.acquire(partition, 100, 1_000, 500)
            received |= {decode_body(message.body).value for message in reply.messages}
            if reply.messages:
                await client.delete(partition, [(m.offset, m.delivery) for m in reply.messages])
        assert cluster.processes[leader].poll() is None, "the node goes on"
        assert "stored data is damaged" in cluster.log_of(leader)
        await all_hold(client, partition)
        assert "replica is trusted again" in cluster.log_of(leader)
        await client.close()

    run(scenario())
