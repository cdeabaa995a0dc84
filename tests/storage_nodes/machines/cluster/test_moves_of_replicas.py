"""Moves and node states as the cluster machine folds them, and what the manager plans from that."""

from __future__ import annotations

import msgspec
import pytest

from storage_nodes.limits import MOVES_PER_NODE_MAX
from storage_nodes.machines.cluster.commands import (
    NOBODY,
    BeginMove,
    CancelMove,
    Command,
    DeletePartition,
    EndMove,
    MoveBegun,
    MoveEnded,
    MoveTaken,
    NodeChanged,
    ReadyMove,
    RegisterNode,
    SetNodeState,
    TakeMove,
    encode_command,
)
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.machines.cluster.planner import is_idle, plan_work
from storage_nodes.model import NodeState
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.cluster.test_cluster_machine import apply, create, machine_with, plan_of

EVERYBODY = frozenset(range(1, 10))


def machine_of_four(partitions: int = 1) -> ClusterMachine:
    """Partition 1 stands on nodes 1, 2, 3; node 4 came later."""
    machine = machine_with(["a", "b", "c"])
    for number in range(partitions):
        apply(machine, create(f"q{number}"))
    apply(machine, RegisterNode(4, "127.0.0.1", 7004, "d"))
    return machine


def begin(machine: ClusterMachine, partition: int, source: int, target: int) -> int:
    """The number of the move."""
    move = plan_of(apply(machine, BeginMove(partition, source, target))).move
    assert move is not None
    return move.number


def plan(machine: ClusterMachine, in_group: frozenset[int] = EVERYBODY) -> list[Command]:
    return plan_work(machine, in_group, lambda node: True)


def settle(machine: ClusterMachine) -> int:
    """Let the manager plan and every group carry out, until nothing is left to do; how many moves that took."""
    count = 0
    for _ in range(1_000):
        commands = plan(machine)
        for command in commands:
            assert apply(machine, command).code is ErrorCode.OK
        moves = [plan.move for plan in machine.moving.values()]
        for partition, move in zip(list(machine.moving), moves, strict=True):
            assert move is not None
            apply(machine, EndMove(partition, move.number, not move.undo))
            count += 1
        if not commands and not moves:
            return count
    raise AssertionError("the manager never comes to rest")


def test_move_ended_puts_the_target_in_the_place_of_the_source() -> None:
    machine = machine_of_four()
    assert machine.partitions[1].replicas == (1, 2, 3)
    outcome, effects = machine.apply(encode_command(BeginMove(1, 2, 4)))
    begun = plan_of(outcome)
    assert effects == [MoveBegun(begun)] and begun.replicas == (1, 2, 3) and begun.holders() == (1, 2, 3, 4)
    assert begun.move is not None
    outcome, effects = machine.apply(encode_command(EndMove(1, begun.move.number, True)))
    assert plan_of(outcome).replicas == (1, 4, 3)
    assert effects == [MoveEnded(machine.partitions[1], 2, 1)]
    assert machine.moving == {} and not machine.held[2] and 1 in machine.held[4]


def test_move_undone_leaves_the_replicas_and_the_target_drops() -> None:
    machine = machine_of_four()
    number = begin(machine, 1, 2, 4)
    assert plan_of(apply(machine, CancelMove(1, number))).move.undo  # type: ignore[union-attr]
    _, effects = machine.apply(encode_command(EndMove(1, number, False)))
    assert machine.partitions[1].replicas == (1, 2, 3) and effects == [MoveEnded(machine.partitions[1], 4, 1)]
    assert apply(machine, CancelMove(1, number)).code is ErrorCode.INVALID_REQUEST


def test_word_of_an_earlier_move_of_the_same_nodes_ends_nothing() -> None:
    machine = machine_of_four()
    first = begin(machine, 1, 2, 4)
    apply(machine, EndMove(1, first, True))
    apply(machine, EndMove(1, begin(machine, 1, 4, 2), True))
    third = begin(machine, 1, 2, 4)
    outcome, effects = machine.apply(encode_command(EndMove(1, first, True)))
    assert outcome.code is ErrorCode.OK and effects == []
    assert machine.partitions[1].move is not None and machine.partitions[1].move.number == third > first


def test_leader_of_a_later_epoch_takes_the_move_and_no_earlier_one_can_end_it() -> None:
    machine = machine_of_four()
    number = begin(machine, 1, 2, 4)
    outcome, effects = machine.apply(encode_command(TakeMove(1, number, 7)))
    assert effects == [MoveTaken(plan_of(outcome))] and machine.partitions[1].move.epoch == 7  # type: ignore[union-attr]
    for late in (
        TakeMove(1, number, 6),
        TakeMove(1, number, 7),
        TakeMove(1, number + 1, 9),
        EndMove(1, number, True, 6),
    ):
        assert machine.apply(encode_command(late))[1] == []
    assert machine.partitions[1].move is not None
    assert machine.apply(encode_command(EndMove(1, number, True, 7)))[1] == [
        MoveEnded(machine.partitions[1], 2, number)
    ]


def test_target_is_ready_for_its_own_move_only() -> None:
    machine = machine_of_four()
    number = begin(machine, 1, 2, 4)
    assert machine.apply(encode_command(ReadyMove(1, number + 1)))[1] == []
    assert plan_of(apply(machine, ReadyMove(1, number))).move.ready  # type: ignore[union-attr]
    apply(machine, EndMove(1, number, True))
    assert machine.partitions[begin(machine, 1, 4, 2) and 1].move.ready is False  # type: ignore[union-attr]


def test_move_that_has_ended_is_taken_by_nobody() -> None:
    machine = machine_of_four()
    number = begin(machine, 1, 2, 4)
    apply(machine, EndMove(1, number, True))
    assert machine.apply(encode_command(TakeMove(1, number, 7)))[1] == []
    assert machine.partitions[1].move is None


def test_same_move_asked_for_again_is_the_one_under_way() -> None:
    machine = machine_of_four()
    assert begin(machine, 1, 2, 4) == begin(machine, 1, 2, 4)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (BeginMove(9, 1, 4), "no partition 9"),
        (BeginMove(1, 4, 2), "holds no replica"),
        (BeginMove(1, 1, 2), "holds a replica of partition 1 already"),
        (BeginMove(1, 1, 9), "not an active node"),
        (BeginMove(1, NOBODY, 4), "has its 3 replicas already"),
        (SetNodeState(9, NodeState.DRAINING), "no node 9"),
        (SetNodeState(1, 77), "cannot become 77"),
        (SetNodeState(1, NodeState.GONE), "is active and holds 1 replicas"),
    ],
)
def test_command_that_makes_no_sense_is_refused_and_changes_nothing(command: Command, text: str) -> None:
    machine = machine_of_four()
    before = machine.checkpoint()
    outcome = apply(machine, command)
    assert outcome.code is ErrorCode.INVALID_REQUEST and text in outcome.text
    assert machine.checkpoint() == before


def test_another_move_of_a_moving_partition_is_refused() -> None:
    machine = machine_of_four()
    begin(machine, 1, 2, 4)
    assert "moving already, from 2 to 4" in apply(machine, BeginMove(1, 3, 4)).text


def test_moves_of_one_node_are_bounded() -> None:
    machine = machine_of_four(MOVES_PER_NODE_MAX + 1)
    for partition in range(1, MOVES_PER_NODE_MAX + 1):
        begin(machine, partition, 2, 4)
    assert apply(machine, BeginMove(MOVES_PER_NODE_MAX + 1, 2, 4)).code is ErrorCode.OVERLOADED


def test_partition_deleted_in_mid_move_is_gone_for_everybody() -> None:
    machine = machine_of_four()
    number = begin(machine, 1, 2, 4)
    apply(machine, DeletePartition(1, "q0"))
    assert machine.moving == {} and not any(machine.held.values())
    assert apply(machine, EndMove(1, number, True)).code is ErrorCode.OK


def test_node_is_drained_and_leaves_when_it_is_empty_and_out_of_the_group() -> None:
    machine = machine_of_four(50)
    assert is_idle(machine)
    outcome, effects = machine.apply(encode_command(SetNodeState(2, NodeState.LEAVING)))
    assert outcome.code is ErrorCode.OK and effects == [NodeChanged(2)] and not is_idle(machine)
    assert settle(machine) == 50
    assert not machine.held[2] and all(plan.replicas[1:2] != (2,) for plan in machine.partitions.values())
    assert plan(machine, frozenset({1, 3, 4})) == [SetNodeState(2, NodeState.GONE)]
    assert apply(machine, SetNodeState(2, NodeState.GONE)).code is ErrorCode.OK
    assert is_idle(machine) and [node.node_id for node in machine.active()] == [1, 3, 4]
    assert "was decommissioned" in apply(machine, RegisterNode(2, "127.0.0.1", 7002, "b")).text
    assert "cannot become" in apply(machine, SetNodeState(2, NodeState.ACTIVE)).text


def test_drained_node_stays_and_can_be_taken_back() -> None:
    machine = machine_of_four(5)
    apply(machine, SetNodeState(2, NodeState.DRAINING))
    settle(machine)
    assert plan(machine, frozenset({1, 3, 4})) == [] and 2 not in plan_of(apply(machine, create("more"))).replicas
    assert apply(machine, SetNodeState(2, NodeState.ACTIVE)).code is ErrorCode.OK
    assert is_idle(machine) and 2 in plan_of(apply(machine, create("still more"))).replicas


def test_drain_takes_what_the_node_should_lead_first_and_no_more_than_the_bound() -> None:
    machine = machine_of_four(60)
    apply(machine, SetNodeState(2, NodeState.DRAINING))
    commands = plan(machine)
    assert len(commands) == MOVES_PER_NODE_MAX
    assert all(isinstance(command, BeginMove) and command.source == 2 for command in commands)
    led = [machine.partitions[command.partition].replicas[0] == 2 for command in commands]  # type: ignore[union-attr]
    assert all(led)


def test_drain_respects_zones_and_fills_the_emptiest() -> None:
    machine = machine_with(["a", "b", "c"])
    for number in range(8):
        apply(machine, create(f"q{number}"))
    for node_id, zone in ((4, "a"), (5, "b"), (6, "b")):
        apply(machine, RegisterNode(node_id, "127.0.0.1", 7000 + node_id, zone))
    apply(machine, SetNodeState(2, NodeState.DRAINING))
    settle(machine)
    assert len(machine.held[5]) == len(machine.held[6]) == 4 and 4 not in machine.held


def test_target_that_is_drained_meanwhile_gets_its_move_cancelled() -> None:
    machine = machine_of_four()
    number = begin(machine, 1, 2, 4)
    apply(machine, SetNodeState(4, NodeState.DRAINING))
    assert plan(machine) == [CancelMove(1, number)]
    apply(machine, CancelMove(1, number))
    assert plan(machine) == []


def test_node_without_which_there_is_no_room_stays() -> None:
    machine = machine_with(["a", "b", "c"])
    apply(machine, create("q"))
    assert "2 active nodes are left" in apply(machine, SetNodeState(3, NodeState.DRAINING)).text
    assert "last active one" in apply(machine_with(["a"]), SetNodeState(1, NodeState.DRAINING)).text


def test_node_that_holds_nothing_stays_while_another_is_emptied_onto_it() -> None:
    machine = machine_of_four()
    assert apply(machine, SetNodeState(3, NodeState.DRAINING)).code is ErrorCode.OK
    refused = apply(machine, SetNodeState(4, NodeState.DRAINING))
    assert "without node 4, 2 active nodes are left, and partition 1 has 3 replicas" in refused.text
    assert settle(machine) == 1 and machine.partitions[1].replicas == (1, 2, 4)
    # Now for itself, and still so when the emptied node is to leave.
    assert "2 active nodes are left" in apply(machine, SetNodeState(4, NodeState.DRAINING)).text
    assert apply(machine, SetNodeState(3, NodeState.LEAVING)).code is ErrorCode.OK
    # Once it is taken back there is room for another.
    assert apply(machine, SetNodeState(3, NodeState.ACTIVE)).code is ErrorCode.OK
    assert apply(machine, SetNodeState(4, NodeState.DRAINING)).code is ErrorCode.OK
    assert settle(machine) == 1 and not machine.held[4]


def machine_with_a_pair() -> ClusterMachine:
    """Three nodes, and a partition on two of them that wants three."""
    machine = machine_with(["a", "b"])
    apply(machine, msgspec.structs.replace(create("q", factor=2, nodes_min=2), wanted=3))
    apply(machine, RegisterNode(3, "127.0.0.1", 7003, "c"))
    return machine


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_node_stays_while_a_partition_grows_that_would_then_find_no_room_without_it(node_id: int) -> None:
    machine = machine_with_a_pair()
    number = begin(machine, 1, NOBODY, 3)
    assert apply(machine, CancelMove(1, number)).code is ErrorCode.OK
    refused = apply(machine, SetNodeState(node_id, NodeState.DRAINING))
    assert "partition 1 is growing to 3 replicas; add a node first" in refused.text
    apply(machine, EndMove(1, number, False))
    assert apply(machine, SetNodeState(node_id, NodeState.DRAINING)).code is ErrorCode.OK
    settle(machine)
    assert not machine.held.get(node_id) and len(machine.partitions[1].replicas) == 2


def test_partition_does_not_grow_onto_the_only_room_for_what_is_moved_away() -> None:
    machine = machine_with_a_pair()
    apply(machine, SetNodeState(2, NodeState.DRAINING))
    refused = apply(machine, BeginMove(1, NOBODY, 3))
    assert "has 2 replicas, as many as there are active nodes; add a node first" in refused.text
    assert settle(machine) == 1 and machine.partitions[1].replicas == (1, 3)


def test_nodes_that_are_down_get_nothing() -> None:
    machine = machine_of_four(3)
    apply(machine, SetNodeState(2, NodeState.DRAINING))
    assert plan_work(machine, EVERYBODY, lambda node: node != 4) == []


def test_partitions_that_have_nowhere_to_go_do_not_hide_those_behind_them() -> None:
    machine = machine_of_four(MOVES_PER_NODE_MAX + 4)
    for partition in list(machine.partitions):
        number = begin(machine, partition, 1, 4)
        apply(machine, TakeMove(partition, number, 1))
        apply(machine, EndMove(partition, number, True, 1))
    for tag in ("x", "y", "z"):
        apply(machine, create(tag))
    apply(machine, SetNodeState(2, NodeState.DRAINING))
    able = [made.partition for made in machine.partitions.values() if 2 in made.replicas and 4 not in made.replicas]
    moves = plan_work(machine, EVERYBODY, lambda node: node == 4)
    assert able and set(moves) == {BeginMove(partition, 2, 4) for partition in able}


def test_partitions_made_in_a_small_cluster_grow_with_it() -> None:
    machine = machine_with(["a"])
    for number in range(3):
        apply(machine, msgspec.structs.replace(create(f"q{number}", factor=1, nodes_min=1), wanted=3))
    single = plan_of(apply(machine, msgspec.structs.replace(create("one", factor=1, nodes_min=1), wanted=1)))
    assert is_idle(machine)
    for node_id in (2, 3):
        apply(machine, RegisterNode(node_id, "127.0.0.1", 7000 + node_id, f"zone-{node_id}"))
    assert not is_idle(machine) and settle(machine) == 6
    assert all(sorted(machine.partitions[number].replicas) == [1, 2, 3] for number in (1, 2, 3))
    assert machine.partitions[single.partition].replicas == (1,) and is_idle(machine)


def test_checkpoint_in_mid_move_folds_on_identically() -> None:
    machine = machine_of_four(3)
    number = begin(machine, 1, 2, 4)
    apply(machine, CancelMove(1, number))
    begin(machine, 2, 1, 4)
    apply(machine, SetNodeState(3, NodeState.LEAVING))
    restored = ClusterMachine()
    restored.restore(machine.checkpoint())
    assert plan(restored) == plan(machine)
    for command in (EndMove(1, number, False), BeginMove(1, 3, 4), SetNodeState(3, NodeState.ACTIVE), create("x")):
        assert apply(restored, command) == apply(machine, command)
    assert restored.checkpoint() == machine.checkpoint()
    assert (restored.moving, restored.held, restored.states) == (machine.moving, machine.held, machine.states)


def test_checkpoint_of_version_1_is_read() -> None:
    plan_v1 = [1, 1, "q", [1, 2, 3], msgspec.to_builtins(QueueConfig())]
    nodes_v1 = [[1, node_id, "127.0.0.1", 7000 + node_id, "z"] for node_id in (1, 2, 3, 4)]
    machine = ClusterMachine()
    machine.restore(msgspec.msgpack.encode([1, 2, nodes_v1, [plan_v1]]))
    assert machine.partitions[1].replicas == (1, 2, 3) and machine.state_of(1) is NodeState.ACTIVE
    assert begin(machine, 1, 3, 4) == 1
