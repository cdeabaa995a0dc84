"""The cluster machine: which nodes and partitions exist, and where replicas are. A pure fold over `__cluster`.

Commands (msgpack arrays in control records of type CONTROL_CLUSTER), all decided when they are folded, so that two
managers that overlap, or one command logged twice, are harmless:

    RegisterNode     a node's address and zone; the same again changes nothing, a new address replaces the old
    CreatePartition  answers with the partition that has this (kind, tag) already, or makes one
    DeletePartition  id and tag must both match; one that is gone is fine

Placement: the nodes with the fewest replicas first, one per zone while zones last; the first replica is the preferred
leader, chosen so that preferred leaders are spread evenly too.

Invariants: partition ids are never reused; a tag names at most one partition of a kind; replicas of a partition are
distinct nodes that were registered when it was made.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from storage_nodes.limits import PARTITIONS_PER_NODE_MAX
from storage_nodes.model import CLUSTER_PARTITION, NodeAddress, NodeId
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig

CHECKPOINT_VERSION = 1
# Values that plans share.
SHARED_MAX = 1_024


class RegisterNode(msgspec.Struct, array_like=True, frozen=True, tag=1):
    node_id: int
    host: str
    port: int
    zone: str


class CreatePartition(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """`nodes_min`: refuse while fewer nodes than this are registered."""

    kind: int
    tag: str
    config: QueueConfig
    replication_factor: int
    nodes_min: int = 1


class DeletePartition(msgspec.Struct, array_like=True, frozen=True, tag=3):
    partition: int
    tag: str


Command = RegisterNode | CreatePartition | DeletePartition


class PartitionPlan(msgspec.Struct, array_like=True, frozen=True):
    """A partition as the cluster log knows it. replicas[0] is the preferred leader."""

    partition: int
    kind: int
    tag: str
    replicas: tuple[int, ...]
    config: QueueConfig


# --- effects ------------------------------------------------------------------------------------------------


class PartitionCreated(NamedTuple):
    plan: PartitionPlan


class PartitionDeleted(NamedTuple):
    plan: PartitionPlan


class Outcome(NamedTuple):
    """The answer to one command: a code, and the partition where there is one."""

    code: ErrorCode
    plan: PartitionPlan | None = None
    text: str = ""


Effect = PartitionCreated | PartitionDeleted


class _Checkpoint(msgspec.Struct, array_like=True, frozen=True):
    version: int
    next_partition: int
    nodes: list[RegisterNode]
    partitions: list[PartitionPlan]


_command_decoder = msgspec.msgpack.Decoder(Command)
_checkpoint_decoder = msgspec.msgpack.Decoder(_Checkpoint)
encode_command = msgspec.msgpack.Encoder().encode


@lru_cache(SHARED_MAX)
def _replicas(replicas: tuple[int, ...]) -> tuple[int, ...]:
    return replicas


@lru_cache(SHARED_MAX)
def _config(config: QueueConfig) -> QueueConfig:
    return config


class ClusterMachine:
    """Folds the cluster log. `partitions` and `nodes` are read by the driver and never written by it."""

    def __init__(self) -> None:
        self.nodes: dict[NodeId, NodeAddress] = {}
        self.partitions: dict[int, PartitionPlan] = {}
        self._by_tag: dict[tuple[int, str], int] = {}
        self._next_partition = CLUSTER_PARTITION + 1
        # Per node: replicas held, and partitions for which it is the preferred leader.
        self._replica_counts: dict[NodeId, int] = {}
        self._leader_counts: dict[NodeId, int] = {}

    def apply(self, command_bytes: bytes) -> tuple[Outcome, list[Effect]]:
        """Fold one command."""
        command = _command_decoder.decode(command_bytes)
        if isinstance(command, RegisterNode):
            self.nodes[command.node_id] = NodeAddress(command.node_id, command.host, command.port, command.zone)
            return Outcome(ErrorCode.OK), []
        if isinstance(command, CreatePartition):
            return self._create(command)
        return self._delete(command)

    def checkpoint(self) -> bytes:
        nodes = [RegisterNode(*address) for address in self.nodes.values()]
        return encode_command(
            _Checkpoint(CHECKPOINT_VERSION, self._next_partition, nodes, list(self.partitions.values()))
        )

    def restore(self, blob: bytes) -> None:
        """Replace the state by a checkpoint. Raises ValueError on a version that is not ours."""
        checkpoint = _checkpoint_decoder.decode(blob)
        if checkpoint.version != CHECKPOINT_VERSION:
            raise ValueError(f"cluster checkpoint version {checkpoint.version}, {CHECKPOINT_VERSION} is read here")
        self.__init__()  # type: ignore[misc]
        for node in checkpoint.nodes:
            self.nodes[node.node_id] = NodeAddress(node.node_id, node.host, node.port, node.zone)
        for plan in checkpoint.partitions:
            self._add(plan)
        self._next_partition = checkpoint.next_partition

    def _create(self, command: CreatePartition) -> tuple[Outcome, list[Effect]]:
        existing = self._by_tag.get((command.kind, command.tag))
        if existing is not None:
            return Outcome(ErrorCode.OK, self.partitions[existing]), []
        if len(self.nodes) < max(command.nodes_min, 1):
            text = f"{len(self.nodes)} nodes are registered, {command.nodes_min} are needed"
            return Outcome(ErrorCode.NOT_ENOUGH_NODES, None, text), []
        if len(self.partitions) >= PARTITIONS_PER_NODE_MAX:
            return Outcome(ErrorCode.OVER_LIMIT, None, "the cluster holds as many partitions as it may"), []
        replicas = self._place(command.replication_factor)
        plan = self._add(PartitionPlan(self._next_partition, command.kind, command.tag, replicas, command.config))
        self._next_partition += 1
        return Outcome(ErrorCode.OK, plan), [PartitionCreated(plan)]

    def _delete(self, command: DeletePartition) -> tuple[Outcome, list[Effect]]:
        plan = self.partitions.get(command.partition)
        if plan is None:
            return Outcome(ErrorCode.OK), []
        if plan.tag != command.tag:
            return Outcome(ErrorCode.INVALID_REQUEST, None, "the tag names another partition"), []
        del self.partitions[plan.partition]
        del self._by_tag[(plan.kind, plan.tag)]
        self._count(plan, -1)
        return Outcome(ErrorCode.OK, plan), [PartitionDeleted(plan)]

    def _add(self, plan: PartitionPlan) -> PartitionPlan:
        """Thousands of plans share the few sets of replicas and configurations there are."""
        assert plan.partition not in self.partitions, "partition ids are never reused"
        assert len(set(plan.replicas)) == len(plan.replicas), "replicas are distinct nodes"
        plan = PartitionPlan(plan.partition, plan.kind, plan.tag, _replicas(plan.replicas), _config(plan.config))
        self.partitions[plan.partition] = plan
        self._by_tag[(plan.kind, plan.tag)] = plan.partition
        self._count(plan, 1)
        return plan

    def _count(self, plan: PartitionPlan, change: int) -> None:
        for node_id in plan.replicas:
            self._replica_counts[node_id] = self._replica_counts.get(node_id, 0) + change
        leader = plan.replicas[0]
        self._leader_counts[leader] = self._leader_counts.get(leader, 0) + change

    def _place(self, replication_factor: int) -> tuple[int, ...]:
        by_load = sorted(
            self.nodes.values(), key=lambda node: (self._replica_counts.get(node.node_id, 0), node.node_id)
        )
        chosen: list[NodeAddress] = []
        zones: set[str] = set()
        for node in by_load:
            if len(chosen) < replication_factor and node.zone not in zones:
                chosen.append(node)
                zones.add(node.zone)
        for node in by_load:
            if len(chosen) < replication_factor and node not in chosen:
                chosen.append(node)
        chosen.sort(key=lambda node: (self._leader_counts.get(node.node_id, 0), node.node_id))
        return tuple(node.node_id for node in chosen)
