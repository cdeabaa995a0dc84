"""What keeps a node well that holds very many partitions: creation no faster than elections, and shared values."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from storage_nodes.config import NodeConfig
from storage_nodes.limits import CREATING_AT_ONCE_MAX, STALL_SLICE_PARTITIONS, TURN_SLICE_MS_MAX
from storage_nodes.machines.cluster.machine import ClusterMachine, CreatePartition, RegisterNode, encode_command
from storage_nodes.machines.raft.effects import Role
from storage_nodes.model import PartitionKind
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas import cluster_replica
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.replicas.partition_meta import shared_meta
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.messages import CreatePartitionRequest, QueueConfig, encode_message

WAIT_S_MAX = 10.0


class Asker:
    """Stands for a token and its connection: counts what is answered."""

    def __init__(self) -> None:
        self.connection = self
        self.answers = 0

    def answer(self, token: Token, payload: bytes) -> None:
        self.answers += 1


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not is_so():
            await asyncio.sleep(0.002)


async def lone_node(directory: Path) -> StorageNode:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    node = StorageNode(NodeConfig("c", 1, str(directory), f"127.0.0.1:{port}", f"1=127.0.0.1:{port}@a"))
    await node.start()
    await until(lambda: node.cluster.serving and bool(node.cluster.machine.nodes))
    return node


def ask_for(node: StorageNode, count: int, asker: Asker) -> None:
    for number in range(count):
        request = CreatePartitionRequest(PartitionKind.QUEUE, f"queue:{number}", QueueConfig(), 1)
        node.cluster.create(cast(Any, asker), encode_message(request))


def test_creation_waits_while_too_many_new_partitions_have_no_leader(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await lone_node(tmp_path)
        asker = Asker()
        node.cluster._is_led = lambda partition: False
        ask_for(node, CREATING_AT_ONCE_MAX + 10, asker)
        await until(lambda: asker.answers >= CREATING_AT_ONCE_MAX)
        for _ in range(10):
            await asyncio.sleep(cluster_replica.LOOK_AGAIN_S)
        assert asker.answers == CREATING_AT_ONCE_MAX
        node.cluster._is_led = lambda partition: True
        await until(lambda: asker.answers == CREATING_AT_ONCE_MAX + 10)
        await node.close()

    asyncio.run(scenario())


def test_creation_does_not_wait_for_ever_for_partitions_whose_nodes_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_replica, "CREATING_MS_MAX", 50)

    async def scenario() -> None:
        node = await lone_node(tmp_path)
        asker = Asker()
        node.cluster._is_led = lambda partition: False
        ask_for(node, 2 * CREATING_AT_ONCE_MAX + 10, asker)
        await until(lambda: asker.answers == 2 * CREATING_AT_ONCE_MAX + 10)
        await node.close()

    asyncio.run(scenario())


def test_partitions_that_are_alike_share_their_values() -> None:
    machine = ClusterMachine()
    machine.apply(encode_command(RegisterNode(1, "h", 1, "a")))
    for number in range(2):
        machine.apply(encode_command(CreatePartition(PartitionKind.QUEUE, f"q{number}", QueueConfig(60_000, 7), 1)))
    restored = ClusterMachine()
    restored.restore(machine.checkpoint())
    for plans in (machine.partitions, restored.partitions):
        one, other = plans.values()
        assert one.config is other.config and one.replicas is other.replicas
    one_meta, other_meta = (shared_meta(f'{{"tag":"q{number}","replicas":[1,2,3]}}') for number in range(2))
    assert one_meta.replicas is other_meta.replicas and one_meta.config is other_meta.config
    assert one_meta.replicas == (1, 2, 3) and one_meta.tag == "q0"


class Led:
    """Stands for a replica."""

    def __init__(self, role: Role, steps_down: Callable[[], None]) -> None:
        self.raft = SimpleNamespace(role=role, epoch=3)
        self.on_stall = steps_down


@pytest.mark.parametrize("step_ms", [0, TURN_SLICE_MS_MAX // 2])
def test_leaders_step_down_in_slices_after_their_node_stood_still(step_ms: int) -> None:
    """All at once they would make it stand still again."""
    booked: list[Callable[[], None]] = []
    clock = SimpleNamespace(now_ms=1_000)
    clock.mono_ms = lambda: clock.now_ms
    loop = SimpleNamespace(call_soon=lambda call, *args: booked.append(lambda: call(*args)))
    replicas = LocalReplicas(cast(Any, SimpleNamespace(node_id=1, clock=clock, loop=loop)), cast(Any, None))
    stepped_down: list[int] = []

    def step_down(partition: int) -> None:
        clock.now_ms += step_ms
        stepped_down.append(partition)

    count, a_slice = 2 * STALL_SLICE_PARTITIONS + 9, 2 if step_ms else STALL_SLICE_PARTITIONS
    for partition in range(count):
        role = Role.FOLLOWER if partition == 5 else Role.LEADER
        replicas[partition] = cast(Any, Led(role, partial(step_down, partition)))
    replicas.on_stall()
    assert len(stepped_down) == a_slice and stepped_down[0] == 0, "the cluster's own group is first"
    replicas[count - 1].raft.epoch = 4  # elected again
    while booked:
        booked.pop()()
    assert stepped_down == [partition for partition in range(count - 1) if partition != 5]


def test_replica_that_was_closed_while_others_heard_of_a_peer_hears_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await lone_node(tmp_path)
        replica = node.cluster
        alive = replica.raft.alive
        replica.close()
        replica.peer_changed(2, True)
        replica.peer_changed(2, False)
        assert replica.raft.alive is alive
        await node.close()

    asyncio.run(scenario())
