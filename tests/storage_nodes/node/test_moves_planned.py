"""What the manager plans on a node: it spares every disk that is full or slow, its own too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.machines.cluster.commands import (
    BeginMove,
    Command,
    CreatePartition,
    RegisterNode,
    SetNodeState,
    encode_command,
)
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.model import NodeState
from storage_nodes.node.membership.replica_moves import Moves
from storage_nodes.protocol.messages import QueueConfig


def planned(**own_disk: bool) -> list[Command]:
    """Node 4 manages; node 1, of partition 1 on nodes 1, 2, 3, is being emptied."""
    machine = ClusterMachine()
    nodes = [RegisterNode(node, "h", node, f"z{node}") for node in (1, 2, 3, 4)]
    made = CreatePartition(1, "q", QueueConfig(), 3, 3)
    for command in (*nodes, made, SetNodeState(1, NodeState.DRAINING)):
        machine.apply(encode_command(command))
    links: Any = SimpleNamespace(read_only=False, slow=False, claims=list, may_follow=lambda node: node != 4)
    links.__dict__.update(own_disk)
    raft = SimpleNamespace(
        status=lambda: SimpleNamespace(peers=[]), voters=(1, 2, 3), learners=(4,), configuration_pending=True
    )
    commands: list[Command] = []
    cluster: Any = SimpleNamespace(machine=machine, raft=raft, carry_out=commands.extend)
    Moves(None, 4, links, {}, lambda: cluster)._manage(cluster)  # type: ignore[arg-type]
    return commands


def test_manager_takes_a_replica_itself() -> None:
    assert planned() == [BeginMove(1, 1, 4)]


@pytest.mark.parametrize("fault", ["read_only", "slow"])
def test_manager_whose_own_disk_is_full_or_slow_takes_none(fault: str) -> None:
    assert planned(**{fault: True}) == []


def test_first_node_that_is_not_registered_yet_stays_in_the_group_of_the_cluster() -> None:
    machine = ClusterMachine()
    for node in (1, 2):
        machine.apply(encode_command(RegisterNode(node, "h", node, f"z{node}")))
    links: Any = SimpleNamespace(read_only=False, slow=False, claims=list, may_follow=lambda _: True)
    peers = [SimpleNamespace(node_id=node, up=True, match=1, behind=0) for node in (2, 3)]
    raft = SimpleNamespace(
        status=lambda: SimpleNamespace(peers=peers), voters=(1, 2, 3), learners=(), configuration_pending=False
    )
    changes: list[Any] = []
    cluster: Any = SimpleNamespace(machine=machine, raft=raft, carry_out=list, change_configuration=changes.append)
    Moves(None, 1, links, {}, lambda: cluster)._manage(cluster)  # type: ignore[arg-type]
    assert changes == []
