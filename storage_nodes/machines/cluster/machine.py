"""The cluster machine: which nodes and partitions exist, and where replicas are. A pure fold over `__cluster`.

Commands (`commands.py`), all decided when they are folded, so that two managers that overlap, or one command logged
twice, are harmless:

    RegisterNode     a node's address and zone; the same again changes nothing, a new address replaces the old
    CreatePartition  answers with the partition that has this (kind, tag) already, or makes one
    DeletePartition  id and tag must both match; one that is gone is fine
    BeginMove        one replica starts to move; one move of a partition at a time, a few of a node
    EndMove          the partition's group says that it runs with the target and without the source, or the other way
                     round if the move was undone; only now somebody's data may go (R23)
    TakeMove         the leader of a later epoch of the group carries the move out; only it can end it from then on
    ReadyMove        the target made its replica anew; one that it held before may have acknowledged what is dropped
    CancelMove       the group is to undo a move, if it still can
    SetNodeState     active <-> draining or leaving -> gone; gone only when nothing is held there
    SetNodeLevels    which feature levels a node speaks (protocol/levels.py); one that never said so speaks the first
    SetFeatureLevel  raises the level of the cluster, once all nodes that are not gone allow it; never lowers it

Placement is in `placement.py`; what the manager does of itself (drain, grow, let go) in `planner.py`; how a group
carries a move out in `mover.py`.

Invariants: partition ids and move numbers are never reused; a tag names at most one partition of a kind; the holders
of a partition are distinct nodes that were registered and not gone when they became that; `held`, `moving` and `short`
only index `partitions`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from storage_nodes.ids import (
    PARTITION_SEQUENCE_MAX,
    cluster_of_node,
    is_node_id,
    make_partition_id,
    node_name,
    place_of_partition,
)
from storage_nodes.machines.cluster.commands import (
    NOBODY,
    BeginMove,
    CancelMove,
    CreatePartition,
    DeletePartition,
    Effect,
    EndMove,
    LevelsChanged,
    Move,
    MoveBegun,
    MoveEnded,
    MoveTaken,
    NodeChanged,
    Outcome,
    PartitionCreated,
    PartitionDeleted,
    PartitionPlan,
    ReadyMove,
    RegisterNode,
    SetFeatureLevel,
    SetNodeLevels,
    SetNodeState,
    TakeMove,
    command_decoder,
    encode_command,
)
from storage_nodes.machines.cluster.placement import place
from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.unknown_entries import UnknownEntryError
from storage_nodes.model import NodeAddress, NodeId, NodeState
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.levels import LEVEL_FIRST, Speaks
from storage_nodes.protocol.messages import QueueConfig

CHECKPOINT_VERSION = 2
# Version 1 is version 2 without node states and moves.
CHECKPOINT_VERSIONS_READ = (1, 2)
MOVES_PER_NODE_MAX = LEVEL_1.moves_per_node_max
PARTITIONS_PER_NODE_MAX = LEVEL_1.partitions_per_node_max
# Values that plans share.
SHARED_MAX = 1_024


class _Checkpoint(msgspec.Struct, array_like=True, frozen=True):
    version: int
    next_sequence: int
    nodes: list[RegisterNode]
    partitions: list[PartitionPlan]
    states: list[tuple[int, int]] = []
    next_move: int = 1
    level: int = LEVEL_FIRST
    levels: list[tuple[int, int, int, int]] = []


_checkpoint_decoder = msgspec.msgpack.Decoder(_Checkpoint)
Result = tuple[Outcome, list[Effect]]
_DONE = Outcome(ErrorCode.OK)


@lru_cache(SHARED_MAX)
def _replicas(replicas: tuple[int, ...]) -> tuple[int, ...]:
    return replicas


@lru_cache(SHARED_MAX)
def _config(config: QueueConfig) -> QueueConfig:
    return config


def _shared(plan: PartitionPlan) -> PartitionPlan:
    """Thousands of plans share the few sets of replicas and configurations there are."""
    return msgspec.structs.replace(plan, replicas=_replicas(plan.replicas), config=_config(plan.config))


class ClusterMachine:
    """Folds the cluster log. The attributes are read by the driver and never written by it."""

    def __init__(self) -> None:
        self.nodes: dict[NodeId, NodeAddress] = {}
        # Only those that are not ACTIVE.
        self.states: dict[NodeId, NodeState] = {}
        # Of the cluster, and what each node speaks, of those that said so.
        self.level = LEVEL_FIRST
        self.levels: dict[NodeId, Speaks] = {}
        self.partitions: dict[int, PartitionPlan] = {}
        # Partitions with a pending move, and per node the partitions it holds or is about to hold.
        self.moving: dict[int, PartitionPlan] = {}
        self.held: dict[NodeId, dict[int, None]] = {}
        # Partitions that want more replicas than they have and are not moving, by the number they have.
        self.short: dict[int, dict[int, None]] = {}
        self._by_tag: dict[int, dict[str, int]] = {}  # by kind
        # Of its nodes: every id that it gives carries it. 0 before the first of them is registered.
        self.number = 0
        self._next_sequence = 1
        self._next_move = 1
        # Per node: partitions for which it is the preferred leader.
        self._leader_counts: dict[NodeId, int] = {}
        self._folds: dict[type, Callable[[Any], Result]] = {
            RegisterNode: self._register,
            CreatePartition: self._create,
            DeletePartition: self._delete,
            BeginMove: self._begin_move,
            TakeMove: self._take_move,
            ReadyMove: self._ready_move,
            EndMove: self._end_move,
            CancelMove: self._cancel_move,
            SetNodeState: self._set_state,
            SetNodeLevels: self._set_levels,
            SetFeatureLevel: self._set_feature_level,
        }

    def apply(self, command_bytes: bytes) -> Result:
        """Fold one command. Raises UnknownEntryError."""
        try:
            command = command_decoder.decode(command_bytes)
        except msgspec.ValidationError as error:
            raise UnknownEntryError(f"a command of the cluster ({error})") from error
        return self._folds[type(command)](command)

    def state_of(self, node_id: NodeId) -> NodeState:
        return self.states.get(node_id, NodeState.ACTIVE)

    def members(self) -> list[NodeId]:
        """All nodes that are not gone."""
        return [node_id for node_id in self.nodes if self.state_of(node_id) is not NodeState.GONE]

    def levels_of(self, node_id: NodeId) -> Speaks:
        return self.levels.get(node_id, Speaks())

    def active(self) -> list[NodeAddress]:
        return [address for node_id, address in self.nodes.items() if node_id not in self.states]

    def was_made(self, partition: int) -> bool:
        """Was this partition made at some time, deleted since or not?"""
        cluster, sequence = place_of_partition(partition)
        return cluster == self.number and 0 < sequence < self._next_sequence

    @property
    def last_move(self) -> int:
        """The highest number that a move was given."""
        return self._next_move - 1

    def moves_of(self, node_id: NodeId) -> int:
        """Pending moves that this node gives or takes."""
        moves = [plan.move for plan in self.moving.values()]
        return sum(move is not None and node_id in (move.source, move.target) for move in moves)

    def checkpoint(self) -> bytes:
        nodes = [RegisterNode(*address) for address in self.nodes.values()]
        states = [(node_id, int(state)) for node_id, state in self.states.items()]
        plans = list(self.partitions.values())
        levels = [(node_id, *speaks) for node_id, speaks in self.levels.items()]
        return encode_command(
            _Checkpoint(
                CHECKPOINT_VERSION, self._next_sequence, nodes, plans, states, self._next_move, self.level, levels
            )
        )

    def is_live(self, base_offset: int, last_offset: int) -> bool:
        """The checkpoint holds the whole state, so no folded entry needs to be kept."""
        return False

    def restore(self, blob: bytes) -> None:
        """Replace the state by a checkpoint. Raises ValueError on a version that is not ours."""
        checkpoint = _checkpoint_decoder.decode(blob)
        if checkpoint.version not in CHECKPOINT_VERSIONS_READ:
            raise ValueError(f"cluster checkpoint version {checkpoint.version}, {CHECKPOINT_VERSION} is read here")
        self.__init__()  # type: ignore[misc]
        for node in checkpoint.nodes:
            self.nodes[node.node_id] = NodeAddress(node.node_id, node.host, node.port, node.zone)
            self.number = cluster_of_node(node.node_id)
        self.states = {node_id: NodeState(state) for node_id, state in checkpoint.states}
        for plan in checkpoint.partitions:
            self._add(_shared(plan))
        self._next_sequence = checkpoint.next_sequence
        self._next_move = checkpoint.next_move
        self.level = checkpoint.level
        self.levels = {node_id: Speaks(*speaks) for node_id, *speaks in checkpoint.levels}

    # --- nodes ----------------------------------------------------------------------------------------------

    def _register(self, command: RegisterNode) -> Result:
        address = NodeAddress(command.node_id, command.host, command.port, command.zone)
        if self.state_of(command.node_id) is NodeState.GONE:
            return _refuse(
                f"node {node_name(command.node_id)} was decommissioned; its id is not used again, choose another"
            ), []
        if self.nodes.get(command.node_id) == address:
            return _DONE, []
        if not is_node_id(command.node_id):
            return _refuse(f"{command.node_id} is no node id"), []
        cluster = cluster_of_node(command.node_id)
        if cluster != self.number and self.nodes:
            return _refuse(f"node {node_name(command.node_id)} is of cluster {cluster}, not {self.number}"), []
        self.number = cluster
        self.nodes[command.node_id] = address
        return _DONE, [NodeChanged(command.node_id)]

    def _set_state(self, command: SetNodeState) -> Result:
        node_id, now = command.node_id, self.state_of(command.node_id)
        if node_id not in self.nodes:
            return _refuse(f"there is no node {node_name(node_id)}"), []
        wanted = NodeState(command.state) if command.state in NodeState.__members__.values() else None
        if wanted is now:
            return _DONE, []
        if wanted is None or now is NodeState.GONE:
            return _refuse(f"node {node_name(node_id)} is {now.name.lower()} and cannot become {command.state}"), []
        if wanted is NodeState.GONE:
            if now is not NodeState.LEAVING or self.held.get(node_id):
                count = len(self.held.get(node_id, ()))
                return _refuse(f"node {node_name(node_id)} is {now.name.lower()} and holds {count} replicas"), []
        elif wanted is not NodeState.ACTIVE:
            objection = self._why_needed(node_id)
            if objection:
                return _refuse(objection), []
        if wanted is NodeState.ACTIVE:
            del self.states[node_id]
        else:
            self.states[node_id] = wanted
        if wanted is NodeState.GONE:
            self.levels.pop(node_id, None)
        return _DONE, [NodeChanged(node_id)]

    def _set_levels(self, command: SetNodeLevels) -> Result:
        node_id, speaks = command.node_id, Speaks(command.lowest, command.highest, command.allowed)
        if node_id not in self.nodes or self.state_of(node_id) is NodeState.GONE:
            return _refuse(f"there is no node {node_name(node_id)}"), []
        if self.levels_of(node_id) == speaks:
            return _DONE, []
        self.levels[node_id] = speaks
        return _DONE, [LevelsChanged()]

    def _set_feature_level(self, command: SetFeatureLevel) -> Result:
        """Decided here: a manager that overlaps with another may not have folded yet that a node speaks less now."""
        level = command.level
        if level <= self.level:
            return _DONE, []
        holding = next((node_id for node_id in self.members() if self.levels_of(node_id).allowed < level), NOBODY)
        if holding:
            return _refuse(f"node {node_name(holding)} holds the cluster below feature level {level}"), []
        self.level = level
        return _DONE, [LevelsChanged()]

    def _why_needed(self, node_id: NodeId) -> str:
        """Why this node cannot be spared; "" when it can: the active others have room for all it holds, and for what
        nodes that are being emptied already hold, which may need just this one."""
        others = sum(address.node_id != node_id for address in self.active())
        if not others:
            return f"node {node_name(node_id)} is the last active one; add a node first"
        for partition in chain.from_iterable(self.held.get(emptied, ()) for emptied in (node_id, *self.states)):
            plan = self.partitions[partition]
            # A replica that comes counts, even if its move is to be undone: it may be too late for that.
            count = len(plan.replicas if plan.move is None else plan.after_move())
            if count > others:
                comes = plan.move is not None and len(plan.replicas) < count
                return (
                    f"without node {node_name(node_id)}, {others} active nodes are left, and partition {partition} "
                    f"{'is growing to' if comes else 'has'} {count} replicas; add a node first"
                )
        return ""

    # --- partitions -----------------------------------------------------------------------------------------

    def _create(self, command: CreatePartition) -> Result:
        existing = self._by_tag.get(command.kind, {}).get(command.tag)
        if existing is not None:
            return Outcome(ErrorCode.OK, self.partitions[existing]), []
        nodes = self.active()
        if len(nodes) < max(command.nodes_min, 1):
            text = f"{len(nodes)} active nodes are registered, {command.nodes_min} are needed"
            return Outcome(ErrorCode.NOT_ENOUGH_NODES, None, text), []
        if len(self.partitions) >= PARTITIONS_PER_NODE_MAX or self._next_sequence > PARTITION_SEQUENCE_MAX:
            return Outcome(ErrorCode.OVER_LIMIT, None, "the cluster holds as many partitions as it may"), []
        replicas = place(nodes, command.replication_factor, self.held, self._leader_counts)
        partition = make_partition_id(self.number, self._next_sequence)
        plan = _shared(
            PartitionPlan(partition, command.kind, command.tag, replicas, command.config, None, command.wanted)
        )
        self._next_sequence += 1
        self._add(plan)
        return Outcome(ErrorCode.OK, plan), [PartitionCreated(plan)]

    def _delete(self, command: DeletePartition) -> Result:
        plan = self.partitions.get(command.partition)
        if plan is None:
            return _DONE, []
        if plan.tag != command.tag:
            return _refuse("the tag names another partition"), []
        self._remove(plan)
        return Outcome(ErrorCode.OK, plan), [PartitionDeleted(plan)]

    # --- moves ----------------------------------------------------------------------------------------------

    def _begin_move(self, command: BeginMove) -> Result:
        plan = self.partitions.get(command.partition)
        if plan is None:
            return _refuse(f"there is no partition {command.partition}"), []
        source, target, move = command.source, command.target, plan.move
        if move is not None:
            if (move.source, move.target, move.undo) == (source, target, False):
                return Outcome(ErrorCode.OK, plan), []
            ends = f"from {node_name(move.source)} to {node_name(move.target)}"
            return _refuse(f"partition {plan.partition} is moving already, {ends}"), []
        if source == NOBODY and len(plan.replicas) >= plan.replicas_wanted():
            return _refuse(f"partition {plan.partition} has its {len(plan.replicas)} replicas already"), []
        if source == NOBODY and len(plan.replicas) >= len(self.active()):
            # So one of them is on a node that is being emptied, and the only room for it is where this one would go.
            text = f"partition {plan.partition} has {len(plan.replicas)} replicas, as many as there are active nodes"
            return _refuse(f"{text}; add a node first"), []
        if source != NOBODY and source not in plan.replicas:
            return _refuse(f"node {node_name(source)} holds no replica of partition {plan.partition}"), []
        if target in plan.replicas:
            return _refuse(f"node {node_name(target)} holds a replica of partition {plan.partition} already"), []
        if target not in self.nodes or target in self.states:
            return _refuse(f"node {node_name(target)} is not an active node of this cluster"), []
        busy = next((node for node in (source, target) if node and self.moves_of(node) >= MOVES_PER_NODE_MAX), NOBODY)
        if busy:
            text = f"node {node_name(busy)} has {MOVES_PER_NODE_MAX} moves under way, as many as it may"
            return Outcome(ErrorCode.OVERLOADED, None, text), []
        begun = msgspec.structs.replace(plan, move=Move(self._next_move, source, target))
        self._next_move += 1
        self._replace(plan, begun)
        return Outcome(ErrorCode.OK, begun), [MoveBegun(begun)]

    def _end_move(self, command: EndMove) -> Result:
        plan = self.partitions.get(command.partition)
        move = None if plan is None else plan.move
        if plan is None or move is None or (move.number, move.epoch) != (command.number, command.epoch):
            return _DONE, []  # said again, or by a leader that another one followed, or the partition is gone
        replicas = plan.after_move() if command.done else plan.replicas
        ended = msgspec.structs.replace(plan, move=None, replicas=replicas)
        self._replace(plan, ended)
        dropped = move.source if command.done else move.target
        return Outcome(ErrorCode.OK, ended), [MoveEnded(ended, dropped, move.number)]

    def _take_move(self, command: TakeMove) -> Result:
        plan = self.partitions.get(command.partition)
        move = None if plan is None else plan.move
        if plan is None or move is None or move.number != command.number or command.epoch <= move.epoch:
            return _DONE, []
        taken = msgspec.structs.replace(plan, move=msgspec.structs.replace(move, epoch=command.epoch))
        self._replace(plan, taken)
        return Outcome(ErrorCode.OK, taken), [MoveTaken(taken)]

    def _ready_move(self, command: ReadyMove) -> Result:
        plan = self.partitions.get(command.partition)
        move = None if plan is None else plan.move
        if plan is None or move is None or move.number != command.number or move.ready:
            return _DONE, []
        ready = msgspec.structs.replace(plan, move=msgspec.structs.replace(move, ready=True))
        self._replace(plan, ready)
        return Outcome(ErrorCode.OK, ready), [MoveTaken(ready)]

    def _cancel_move(self, command: CancelMove) -> Result:
        plan = self.partitions.get(command.partition)
        move = None if plan is None else plan.move
        if plan is None or move is None or move.number != command.number:
            return _refuse(f"partition {command.partition} has no move {command.number} under way"), []
        undone = msgspec.structs.replace(plan, move=msgspec.structs.replace(move, undo=True))
        self._replace(plan, undone)
        return Outcome(ErrorCode.OK, undone), []

    # --- the books ------------------------------------------------------------------------------------------

    def _add(self, plan: PartitionPlan) -> None:
        assert plan.partition not in self.partitions, "partition ids are never reused"
        holders = plan.holders()
        assert len(set(holders)) == len(holders), "replicas are distinct nodes"
        self.partitions[plan.partition] = plan
        self._by_tag.setdefault(plan.kind, {})[plan.tag] = plan.partition
        if plan.move is not None:
            self.moving[plan.partition] = plan
        elif len(plan.replicas) < plan.replicas_wanted():
            self.short.setdefault(len(plan.replicas), {})[plan.partition] = None
        for node_id in holders:
            self.held.setdefault(node_id, {})[plan.partition] = None
        leader = plan.replicas[0]
        self._leader_counts[leader] = self._leader_counts.get(leader, 0) + 1

    def _remove(self, plan: PartitionPlan) -> None:
        del self.partitions[plan.partition]
        del self._by_tag[plan.kind][plan.tag]
        self.moving.pop(plan.partition, None)
        self.short.get(len(plan.replicas), {}).pop(plan.partition, None)
        for node_id in plan.holders():
            del self.held[node_id][plan.partition]
        self._leader_counts[plan.replicas[0]] -= 1

    def _replace(self, old: PartitionPlan, new: PartitionPlan) -> None:
        self._remove(old)
        self._add(new)


def _refuse(text: str) -> Outcome:
    return Outcome(ErrorCode.INVALID_REQUEST, None, text)
