"""A node whose files were damaged while it was down comes back by itself and is repaired by the others (F15, F16)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.records import decode_body, encode_body
from tests.storage_nodes.node.test_cluster_of_nodes import run
from tests.storage_nodes.node.test_snapshots_between_nodes import all_hold


def cut_the_log(node: Path) -> None:
    path = max((node / "wal").glob("0*.wal"))
    used = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.truncate(used // 2)


def flip_in_the_log(node: Path) -> None:
    path = min((node / "wal").glob("0*.wal"))
    used = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.seek(used // 2)
        byte = file.read(1)
        file.seek(used // 2)
        file.write(bytes([byte[0] ^ 1]))


def spoil_the_manifests(node: Path) -> None:
    for path in node.glob("manifest-*"):
        path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [cut_the_log, flip_in_the_log, spoil_the_manifests], ids=lambda call: call.__name__)
def test_node_damaged_while_it_was_down_comes_back_by_itself_and_is_repaired(
    cluster: StorageCluster, damage: object
) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        values = [b"value-%d" % number for number in range(300)]
        for value in values[:200]:
            await client.send(partition, [encode_body(value)])
        await all_hold(client, partition)
        leader = (await client.describe([partition])).partitions[0].leader
        victim = leader % 3 + 1
        cluster.kill(victim)
        damage(cluster.directory / f"node-{victim}")  # type: ignore[operator]
        cluster.start(victim)
        for value in values[200:]:
            await client.send(partition, [encode_body(value)])
        await all_hold(client, partition)
        deadline = time.monotonic() + 20
        while "damage is repaired" not in cluster.log_of(victim):
            assert time.monotonic() < deadline, cluster.log_of(victim)[-2_000:]
            await asyncio.sleep(0.1)
        assert list((cluster.directory / f"node-{victim}" / "trash").glob("damaged-*"))
        # What it holds now is enough to go on without one of the others.
        cluster.kill(leader)
        received: set[bytes] = set()
        while not received >= set(values):
            assert time.monotonic() < deadline + 20, f"{len(received)} of {len(values)}"
            reply = await client.acquire(partition, 100, 30_000, 500)
            received |= {decode_body(message.body).value for message in reply.messages}
        await client.close()

    run(scenario())
