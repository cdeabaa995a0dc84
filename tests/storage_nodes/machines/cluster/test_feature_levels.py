"""The cluster's feature level: raised once all nodes allow it, held by any of them, never lowered."""

from __future__ import annotations

from storage_nodes.machines.cluster.commands import (
    LevelsChanged,
    RegisterNode,
    SetFeatureLevel,
    SetNodeLevels,
    SetNodeState,
    encode_command,
)
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.model import NodeState
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.levels import Speaks


def cluster(*speaks: tuple[int, int, int] | None) -> ClusterMachine:
    machine = ClusterMachine()
    for node_id, levels in enumerate(speaks, 1):
        machine.apply(encode_command(RegisterNode(node_id, "h", node_id, f"z{node_id}")))
        if levels is not None:
            machine.apply(encode_command(SetNodeLevels(node_id, *levels)))
    return machine


def raise_to(machine: ClusterMachine, level: int) -> ErrorCode:
    return machine.apply(encode_command(SetFeatureLevel(level)))[0].code


def test_level_rises_once_every_node_allows_it() -> None:
    machine = cluster((1, 2, 2), (1, 2, 2), (1, 2, 2))
    assert machine.level == 1
    outcome, effects = machine.apply(encode_command(SetFeatureLevel(2)))
    assert outcome.code is ErrorCode.OK and machine.level == 2 and effects == [LevelsChanged()]


def test_node_that_never_said_so_or_is_held_keeps_the_level() -> None:
    for held in (None, (1, 2, 1), (1, 1, 1)):
        machine = cluster((1, 2, 2), (1, 2, 2), held)
        assert raise_to(machine, 2) is ErrorCode.INVALID_REQUEST and machine.level == 1


def test_node_that_is_gone_holds_nothing() -> None:
    machine = cluster((1, 2, 2), (1, 2, 2), (1, 1, 1))
    for state in (NodeState.LEAVING, NodeState.GONE):
        assert machine.apply(encode_command(SetNodeState(3, state)))[0].code is ErrorCode.OK
    assert raise_to(machine, 2) is ErrorCode.OK and 3 not in machine.levels


def test_level_is_never_lowered_and_the_same_again_changes_nothing() -> None:
    machine = cluster((1, 2, 2))
    assert raise_to(machine, 2) is ErrorCode.OK
    machine.apply(encode_command(SetNodeLevels(1, 1, 1, 1)))
    assert machine.apply(encode_command(SetFeatureLevel(1)))[1] == [] and machine.level == 2
    assert machine.apply(encode_command(SetNodeLevels(1, 1, 1, 1)))[1] == [], "it was said before"


def test_levels_are_in_the_checkpoint_and_an_older_one_is_read() -> None:
    machine = cluster((1, 2, 2), (1, 2, 1), None)
    again = ClusterMachine()
    again.restore(machine.checkpoint())
    assert again.levels == {1: Speaks(1, 2, 2), 2: Speaks(1, 2, 1)} and again.levels_of(3) == Speaks(1, 1, 1)
    machine = cluster((1, 2, 2))
    raise_to(machine, 2)
    again.restore(machine.checkpoint())
    assert again.level == 2 and again.checkpoint() == machine.checkpoint()


def test_levels_of_a_node_that_is_not_there_are_refused() -> None:
    machine = cluster((1, 2, 2))
    assert machine.apply(encode_command(SetNodeLevels(9, 1, 2, 2)))[0].code is ErrorCode.INVALID_REQUEST
