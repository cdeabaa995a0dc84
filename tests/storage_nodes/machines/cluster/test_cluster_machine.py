"""The cluster machine: nodes, partitions, placement; every decision is made by the fold."""

from __future__ import annotations

from collections import Counter

import pytest

from storage_nodes.ids import CLUSTER_NUMBER_MAX, make_node_id, make_partition_id
from storage_nodes.machines.cluster import machine as cluster_machine
from storage_nodes.machines.cluster.commands import (
    Command,
    CreatePartition,
    DeletePartition,
    Outcome,
    PartitionCreated,
    PartitionDeleted,
    PartitionPlan,
    RegisterNode,
    encode_command,
)
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig


def apply(machine: ClusterMachine, command: Command) -> Outcome:
    return machine.apply(encode_command(command))[0]


def create(tag: str, factor: int = 3, nodes_min: int = 3) -> CreatePartition:
    return CreatePartition(PartitionKind.QUEUE, tag, QueueConfig(), factor, nodes_min)


def plan_of(outcome: Outcome) -> PartitionPlan:
    assert outcome.code is ErrorCode.OK and outcome.plan is not None
    return outcome.plan


def machine_with(zones: list[str]) -> ClusterMachine:
    machine = ClusterMachine()
    for index, zone in enumerate(zones, start=1):
        apply(machine, RegisterNode(index, "127.0.0.1", 7000 + index, zone))
    return machine


def test_create_names_replicas_in_distinct_zones() -> None:
    machine = machine_with(["a", "a", "b", "b", "c", "c"])
    for number in range(20):
        plan = plan_of(apply(machine, create(f"q{number}")))
        assert {machine.nodes[node].zone for node in plan.replicas} == {"a", "b", "c"}


def test_fewer_zones_than_replicas_still_takes_distinct_nodes() -> None:
    plan = plan_of(apply(machine_with(["a", "a", "b"]), create("q")))
    assert sorted(plan.replicas) == [1, 2, 3]


def test_leaders_and_replicas_are_spread_evenly() -> None:
    machine = machine_with(["a", "b", "c", "d"])
    plans = [plan_of(apply(machine, create(f"q{number}"))) for number in range(40)]
    leaders = Counter(plan.replicas[0] for plan in plans)
    replicas = Counter(node for plan in plans for node in plan.replicas)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    assert set(replicas.values()) == {30}


def test_same_kind_and_tag_answers_with_the_partition_that_exists() -> None:
    machine = machine_with(["a", "b", "c"])
    first = plan_of(apply(machine, create("q")))
    outcome, effects = machine.apply(encode_command(create("q")))
    assert plan_of(outcome) == first and effects == []
    other_kind = CreatePartition(PartitionKind.STREAM, "q", QueueConfig(), 3, 3)
    assert plan_of(apply(machine, other_kind)).partition != first.partition


def test_too_few_nodes_is_refused_and_changes_nothing() -> None:
    machine = machine_with(["a", "b"])
    assert apply(machine, create("q")).code is ErrorCode.NOT_ENOUGH_NODES
    assert machine.partitions == {}


def test_delete_needs_the_tag_and_may_be_repeated() -> None:
    machine = machine_with(["a", "b", "c"])
    plan = plan_of(apply(machine, create("q")))
    assert apply(machine, DeletePartition(plan.partition, "another")).code is ErrorCode.INVALID_REQUEST
    assert plan.partition in machine.partitions
    outcome, effects = machine.apply(encode_command(DeletePartition(plan.partition, "q")))
    assert outcome.code is ErrorCode.OK and effects == [PartitionDeleted(plan)]
    assert apply(machine, DeletePartition(plan.partition, "q")).code is ErrorCode.OK


def test_partition_ids_are_never_used_again() -> None:
    machine = machine_with(["a", "b", "c"])
    first = plan_of(apply(machine, create("q")))
    apply(machine, DeletePartition(first.partition, "q"))
    second, effects = machine.apply(encode_command(create("q")))
    assert plan_of(second).partition > first.partition
    assert effects == [PartitionCreated(plan_of(second))]


def test_ids_carry_the_number_of_the_cluster_across_checkpoints() -> None:
    machine = ClusterMachine()
    for number in (1, 2, 3):
        apply(machine, RegisterNode(make_node_id(CLUSTER_NUMBER_MAX, number), "127.0.0.1", number, "z"))
    first = plan_of(apply(machine, create("q"))).partition
    assert first == make_partition_id(CLUSTER_NUMBER_MAX, 1)
    restored = ClusterMachine()
    restored.restore(machine.checkpoint())
    second = plan_of(apply(restored, create("r"))).partition
    assert second == first + 1
    asked = (first, second, second + 1, 0, 1, make_partition_id(CLUSTER_NUMBER_MAX, 1) - 1)
    assert [restored.was_made(partition) for partition in asked] == [True, True, False, False, False, False]
    assert not ClusterMachine().was_made(1)


def test_node_of_another_cluster_is_refused() -> None:
    machine = machine_with(["a", "b", "c"])
    refused = apply(machine, RegisterNode(make_node_id(2, 4), "127.0.0.1", 4, "a"))
    assert refused.code is ErrorCode.INVALID_REQUEST and refused.text == "node 2.4 is of cluster 2, not 1"
    assert len(machine.nodes) == 3 and plan_of(apply(machine, create("q"))).partition == 1


@pytest.mark.parametrize("node_id", [0, -1, 1 << 16, 2**53])
def test_what_is_no_node_id_is_not_registered(node_id: int) -> None:
    machine = ClusterMachine()
    assert apply(machine, RegisterNode(node_id, "127.0.0.1", 4, "a")).code is ErrorCode.INVALID_REQUEST
    assert machine.nodes == {} and machine.number == 0


def test_sequence_that_ran_out_makes_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_machine, "PARTITION_SEQUENCE_MAX", 1)
    machine = machine_with(["a", "b", "c"])
    plan_of(apply(machine, create("q")))
    assert apply(machine, create("r")).code is ErrorCode.OVER_LIMIT and len(machine.partitions) == 1


def test_node_with_a_new_address_replaces_the_old() -> None:
    machine = machine_with(["a", "b", "c"])
    apply(machine, RegisterNode(2, "10.0.0.2", 9, "z"))
    assert machine.nodes[2].host == "10.0.0.2" and len(machine.nodes) == 3


def test_checkpoint_restored_folds_on_identically() -> None:
    machine = machine_with(["a", "b", "c", "c"])
    for number in range(7):
        apply(machine, create(f"q{number}"))
    apply(machine, DeletePartition(3, "q2"))
    restored = ClusterMachine()
    restored.restore(machine.checkpoint())
    for number in range(7, 12):
        assert apply(restored, create(f"q{number}")) == apply(machine, create(f"q{number}"))
    assert restored.checkpoint() == machine.checkpoint()


def test_checkpoint_of_another_version_is_refused() -> None:
    blob = bytearray(ClusterMachine().checkpoint())
    blob[1] = 99
    with pytest.raises(ValueError, match="version 99"):
        ClusterMachine().restore(bytes(blob))
