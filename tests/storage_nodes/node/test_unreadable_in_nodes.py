"""Sectors that a device cannot read any more (EIO), beneath real node processes: at a start and on a read of what went
to disk. The process stays up, and the other nodes give it again what it lost (F15)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.records import decode_body, encode_body
from tests.storage_nodes.node.conftest import cluster_of
from tests.storage_nodes.node.node_programs import SMALL_WAL_FILE_BYTES, UNREADABLE_NODE, unreadable_marker
from tests.storage_nodes.node.test_cluster_of_nodes import run
from tests.storage_nodes.node.test_snapshots_between_nodes import all_hold, churn, lease_some
from tests.storage_nodes.node.warm_nodes import Incubator

SECTOR_BYTES = 4_096
WITHIN_S = 30.0
EIO = os.strerror(5)


@pytest.fixture
def unreadable_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    yield from cluster_of(3, incubator, UNREADABLE_NODE)


def make_unreadable(cluster: StorageCluster, node_id: int, path: Path, first: int, end: int) -> None:
    marker = cluster.directory / unreadable_marker(node_id)
    ready = marker.with_suffix(".new")
    ready.write_text(f"{path.resolve()} {first} {end}")
    ready.rename(marker)


async def until_log_says(cluster: StorageCluster, node_id: int, *words: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not all(word in cluster.log_of(node_id) for word in words):
        assert time.monotonic() < deadline, cluster.log_of(node_id)[-2_000:]
        assert cluster.processes[node_id].poll() is None, "its process ended"
        await asyncio.sleep(0.1)


async def receive_all(client: StorageClient, partition: int, values: set[bytes]) -> None:
    """Those that are acknowledged, by the present leader."""
    received: set[bytes] = set()
    deadline = time.monotonic() + WITHIN_S
    while not received >= values:
        assert time.monotonic() < deadline, f"{len(values - received)} of {len(values)} are missing"
        with suppress(StorageError):  # while another leader is elected
            reply = await client.acquire(partition, 100, 60_000, 500)
            received |= {decode_body(message.body).value for message in reply.messages}


def test_node_that_cannot_read_a_sector_of_its_log_at_its_start_stays_up_and_is_repaired(
    unreadable_cluster: StorageCluster,
) -> None:
    cluster = unreadable_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        values = [b"value-%d" % number for number in range(300)]
        for value in values[:200]:
            await client.send(partition, [encode_body(value)])
        await all_hold(client, partition)
        leader = await leader_of(client, partition)
        victim = leader % 3 + 1
        cluster.kill(victim)
        path = min((cluster.directory / f"node-{victim}" / "wal").glob("0*.wal"))
        middle = len(path.read_bytes().rstrip(b"\0")) // 2 // SECTOR_BYTES * SECTOR_BYTES
        make_unreadable(cluster, victim, path, middle, middle + SECTOR_BYTES)
        cluster.start(victim)
        pid = cluster.processes[victim].pid
        for value in values[200:]:
            await client.send(partition, [encode_body(value)])
        await all_hold(client, partition)
        await until_log_says(cluster, victim, "stored data is damaged", "damage is repaired")
        assert cluster.processes[victim].pid == pid and cluster.processes[victim].poll() is None
        # What it holds now is enough to go on without one of the others.
        cluster.kill(leader)
        await receive_all(client, partition, set(values))
        await client.close()

    run(scenario())


def test_leader_that_cannot_read_a_segment_stays_up_and_its_replica_is_fed_again(
    unreadable_cluster: StorageCluster,
) -> None:
    cluster = unreadable_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        other = await cluster.create_partition(client, PartitionKind.QUEUE, "other")
        values = [b"keep-%d" % number for number in range(50)]
        leased = await lease_some(client, partition, values)
        leader = await leader_of(client, partition)
        directory = cluster.directory / f"node-{leader}"
        first_wal = min((directory / "wal").glob("0*.wal"))
        await churn(client, partition, 2 * SMALL_WAL_FILE_BYTES)
        while first_wal.exists():  # until then they may be read from memory
            await churn(client, partition, SMALL_WAL_FILE_BYTES // 4)
        # The one with the lowest offsets: that of the messages which are leased. None is being written anew.
        known = set[Path]()
        while known != (known := set((directory / "segments").glob(f"{partition:016x}-*.seg"))):
            await asyncio.sleep(1)
        segment = min(known)
        make_unreadable(cluster, leader, segment, 0, segment.stat().st_size)
        await client.change_visibility(partition, [(offset, delivery, 0) for offset, delivery in leased])
        await receive_all(client, partition, set(values))
        await until_log_says(cluster, leader, "stored data is damaged", EIO, "damage is repaired")
        await all_hold(client, partition)
        assert "replica is trusted again" in cluster.log_of(leader)
        await client.send(other, [encode_body(b"fine")])
        await client.close()

    before = {node_id: process.pid for node_id, process in cluster.processes.items()}
    run(scenario())
    assert all(process.poll() is None and process.pid == before[n] for n, process in cluster.processes.items())
