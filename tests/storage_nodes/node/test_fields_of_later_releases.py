"""Entries with a field that this release does not know, in a node and in a cluster of two releases (docs/upgrades.md).

A field more of a configuration means something that the fold would miss, so its replica stops; with the level in front
of it the reason names both levels. What a partition is made with is read without the field.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.storage_cluster import STOP_TIMEOUT_S, StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.log.record_batch import CONTROL_CLUSTER, control_key
from storage_nodes.machines.cluster.commands import CreatePartition
from storage_nodes.machines.queue.commands import (
    CONTROL_QUEUE_KEY,
    ConfiguredCommand,
    LeveledCommand,
    encode_command,
)
from storage_nodes.machines.queue.state.configs import config_fields
from storage_nodes.model import Acks, PartitionKind
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.levels import FEATURE_LEVEL
from storage_nodes.protocol.messages import ClusterInfo, QueueConfig, StoppedReplica
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.node_programs import HASTY_NODE
from tests.storage_nodes.node.test_cluster_of_nodes import run
from tests.storage_nodes.node.test_many_partitions import Asker, ask_for, lone_node, until
from tests.storage_nodes.node.test_stopped_replicas_of_nodes import Sender, send
from tests.storage_nodes.node.warm_nodes import Incubator, WarmCluster

CONFIG = QueueConfig(retention_ms=120_000)
BOTH_LEVELS = f"is at feature level {FEATURE_LEVEL + 1}, this release speaks {FEATURE_LEVEL} at most"
WITHIN_S = 30.0

pack = msgspec.msgpack.encode


# --- in a node ------------------------------------------------------------------------------------------------


def append(node: StorageNode, replica: Replica, *bodies: bytes) -> None:
    """As another leader's, which reached this node."""
    replica.append_own(list(bodies), replica.now_ms(), control=True)
    replica.perform(replica.raft.proposed(replica.log.log_end, node.clock.mono_ms()))
    node.committer.wake()


async def in_a_node(directory: Path, scenario: Callable[[StorageNode], Awaitable[None]]) -> None:
    node = await lone_node(directory)
    try:
        await scenario(node)
    finally:
        await node.close()


def configured(now_ms: int, *more: object) -> bytes:
    kind = ConfiguredCommand.__struct_config__.tag
    return encode_body(pack([kind, 1, 2, now_ms, *config_fields(CONFIG), *more]), CONTROL_QUEUE_KEY)


@pytest.mark.parametrize(
    ("level_in", "kind", "reason"),
    [
        ("an entry before", "unknown-entry", BOTH_LEVELS),
        pytest.param(
            "the same entry",
            "unknown-entry",
            BOTH_LEVELS,
            marks=pytest.mark.xfail(
                strict=True,
                reason="the level is compared once the whole entry is folded; the field is not known before that",
            ),
        ),
        ("", "entry", "ValidationError: "),
    ],
)
def test_configuration_with_a_field_more_stops_its_replica_and_nothing_else(
    tmp_path: Path, level_in: str, kind: str, reason: str
) -> None:
    async def scenario(node: StorageNode) -> None:
        ask_for(node, 3, Asker())
        await until(lambda: len(node.cluster.machine.partitions) == 3)
        known, later, other = node.cluster.machine.partitions
        await until(lambda: all(node.replicas[partition].serving for partition in (known, later, other)))
        for partition, more in ((known, ()), (later, ("later",))):
            replica: Any = node.replicas[partition]
            replica.machine.follow()
            now_ms = replica.now_ms()
            bodies = [configured(now_ms, *more)]
            if level_in and more:
                bodies.insert(0, encode_command(LeveledCommand(1, 1, now_ms, FEATURE_LEVEL + 1)))
            for entry in ([body] for body in bodies) if level_in == "an entry before" else (bodies,):
                append(node, replica, *entry)
        await until(lambda: later in node.stopped)
        folded: Any = node.replicas[known]
        await until(lambda: folded.machine.state.config == CONFIG)
        sender = Sender()
        send(node, sender, other, b"fine")
        await until(lambda: isinstance(sender.answers.get(other), bytes))
        assert node.cluster.serving and not node.cluster.closed
        (told,) = node.stopped.told(9)
        assert told.partition == later
        assert (told.kind, reason in told.reason) == (kind, True), told

    asyncio.run(in_a_node(tmp_path, scenario))


def test_partition_that_is_made_with_fields_more_is_made_without_them(tmp_path: Path) -> None:
    async def scenario(node: StorageNode) -> None:
        command = CreatePartition(PartitionKind.QUEUE, "queue:later", CONFIG, 1, 1, 1)
        fields: list[Any] = msgspec.msgpack.decode(pack(command))
        assert fields[3] == [*config_fields(CONFIG)[:-2], [], ""], "the configuration stands there"
        fields[3].append("later")
        append(node, node.cluster, encode_body(pack([*fields, "later"]), control_key(CONTROL_CLUSTER)))
        await until(lambda: bool(node.cluster.machine.partitions))
        (plan,) = node.cluster.machine.partitions.values()
        assert (plan.tag, plan.config, plan.wanted) == ("queue:later", CONFIG, 1)
        await until(lambda: node.replicas[plan.partition].serving)
        replica = node.replicas[plan.partition]
        assert isinstance(replica, QueueReplica) and replica.machine.state.config == CONFIG
        assert not list(node.stopped) and node.cluster.serving

    asyncio.run(in_a_node(tmp_path, scenario))


# --- in a cluster of two releases -----------------------------------------------------------------------------


@pytest.fixture
def hasty_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    """Nodes 1 and 2 are of a later release, node 3 is of this one."""
    cluster = WarmCluster(3, incubator)
    this_release, cluster.command = cluster.command, [sys.executable, "-c", HASTY_NODE]
    for node_id in (1, 2):
        cluster.start(node_id)
    cluster.command = this_release
    cluster.start(3)
    yield cluster
    cluster.stop()
    cluster.remove()


async def told_by(client: StorageClient, node_id: int, partition: int) -> tuple[ClusterInfo, list[StoppedReplica]]:
    """What the node says once it is up and knows of the partition, and which replicas stopped there."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                info = await client.describe_node(node_id, [partition])
                if info.partitions:
                    return info, next(node.stopped for node in info.nodes if node.node_id == node_id)
            except StorageError:
                pass
            await asyncio.sleep(0.05)


def test_fields_that_a_later_release_writes_too_early_stop_a_replica_of_the_older_one_until_it_is_upgraded(
    hasty_cluster: StorageCluster,
) -> None:
    cluster = hasty_cluster

    async def scenario() -> None:
        client = await cluster.client()
        await cluster.create_partition(client, PartitionKind.QUEUE, "queue:first")  # a new cluster needs all its nodes
        cluster.kill(3)  # the manager and the leaders are of the later release
        partition, other = [
            await cluster.create_partition(client, PartitionKind.QUEUE, f"queue:{name}") for name in ("a", "b")
        ]
        cluster.start(3)
        info, stopped = await told_by(client, 3, partition)
        assert not stopped and info.level <= FEATURE_LEVEL, "what it was made with is read without the field"
        for named in (partition, other):
            await client.send(named, [encode_body(b"to all")], acks=Acks.ALL)
        await client.configure(partition, CONFIG)
        async with asyncio.timeout(WITHIN_S):
            while not stopped:
                await client.send(partition, [encode_body(b"x")])
                await asyncio.sleep(0.05)
                _, stopped = await told_by(client, 3, partition)
        assert [(one.partition, one.kind) for one in stopped] == [(partition, "entry")]
        assert stopped[0].reason.startswith("ValidationError")
        await client.send(other, [encode_body(b"to all")], acks=Acks.ALL)
        for node_id in (1, 2):
            assert (await told_by(client, node_id, partition))[1] == []
        cluster.processes[3].send_signal(signal.SIGTERM)
        assert cluster.processes.pop(3).wait(STOP_TIMEOUT_S) == 0
        cluster.command = [sys.executable, "-c", HASTY_NODE]
        cluster.start(3)
        for _ in range(2):  # the second one tells of the commit of the first
            await client.send(partition, [encode_body(b"to all")], acks=Acks.ALL)
        assert (await told_by(client, 3, partition))[1] == []
        await client.close()

    run(scenario())
