"""What the in-cluster manager does of itself: empties nodes that are to be emptied, grows partitions that are short of
replicas, lets go of nodes that are to leave. Pure: from the cluster's state to the next commands.

Nothing is remembered between calls: a new manager goes on where the last one stopped. Work is handed out a few moves
at a time (MOVES_PER_NODE_MAX of one node), so that it neither crowds out traffic nor is bound to old decisions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from itertools import chain, islice

from storage_nodes.limits import MOVES_PER_NODE_MAX, PLAN_PARTITIONS_MAX
from storage_nodes.machines.cluster.commands import (
    NOBODY,
    BeginMove,
    CancelMove,
    Command,
    PartitionPlan,
    SetNodeState,
)
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.machines.cluster.placement import place_one
from storage_nodes.model import NodeAddress, NodeId, NodeState


def plan_work(machine: ClusterMachine, in_group: Collection[NodeId], is_up: Callable[[NodeId], bool]) -> list[Command]:
    """The commands to propose now. `in_group`: the members of the cluster's own group, which a leaving node leaves
    last; `is_up`: is a node up, with room and a disk that is not slow."""
    commands: list[Command] = []
    for plan in machine.moving.values():
        move = plan.move
        assert move is not None
        if not move.undo and machine.state_of(move.target) is not NodeState.ACTIVE:
            commands.append(CancelMove(plan.partition, move.number))
    room = _Room(machine, is_up)
    for node_id, state in machine.states.items():
        if state in (NodeState.DRAINING, NodeState.LEAVING):
            commands += _empty(machine, node_id, room)
        if state is NodeState.LEAVING and not machine.held.get(node_id) and node_id not in in_group:
            commands.append(SetNodeState(node_id, NodeState.GONE))
    return commands + _grow(machine, room)


def is_idle(machine: ClusterMachine) -> bool:
    """No node is to be emptied or let go, no partition can grow, no move is under way: nothing to look after."""
    settled = all(state is NodeState.GONE for state in machine.states.values())
    return settled and not machine.moving and not any(_growing(machine))


class _Room:
    """Which nodes may take part in how many more moves, with those just planned counted."""

    def __init__(self, machine: ClusterMachine, is_up: Callable[[NodeId], bool]) -> None:
        self._machine = machine
        self._left: dict[NodeId, int] = {}
        self._coming: dict[NodeId, int] = {}
        self._takers = [node for node in machine.active() if is_up(node.node_id)]

    def of(self, node_id: NodeId) -> int:
        if node_id not in self._left:
            self._left[node_id] = MOVES_PER_NODE_MAX - self._machine.moves_of(node_id)
        return self._left[node_id]

    def take(self, source: NodeId, target: NodeId) -> None:
        for node_id in filter(None, (source, target)):
            self._left[node_id] = self.of(node_id) - 1
        self._coming[target] = self._coming.get(target, 0) + 1

    def load_of(self, node_id: NodeId) -> int:
        return len(self._machine.held.get(node_id, ())) + self._coming.get(node_id, 0)

    def target_for(self, plan: PartitionPlan, source: NodeId) -> NodeId | None:
        """The best node for one more replica; None while there is none, or all that would do are busy."""
        machine = self._machine
        zones = {machine.nodes[node].zone for node in plan.replicas if node != source}
        return place_one(self.free(plan.replicas), zones, self.load_of)

    def free(self, replicas: Collection[NodeId]) -> list[NodeAddress]:
        """The nodes that could take a replica of a partition that stands on these."""
        return [node for node in self._takers if node.node_id not in replicas and self.of(node.node_id) > 0]


def _empty(machine: ClusterMachine, node_id: NodeId, room: _Room) -> list[Command]:
    """Moves away from a node. Partitions it leads by preference come first: they have most to lose."""
    commands: list[Command] = []
    if room.of(node_id) <= 0:
        return commands
    resting = [plan for plan in map(machine.partitions.__getitem__, machine.held.get(node_id, ())) if plan.move is None]
    # Few sets of nodes hold many partitions: whether one has somewhere to go is asked once a set.
    movable = {replicas for replicas in {plan.replicas for plan in resting} if room.free(replicas)}
    first = heapq.nsmallest(
        MOVES_PER_NODE_MAX,
        [plan for plan in resting if plan.replicas in movable],
        key=lambda plan: (plan.replicas[0] != node_id, plan.partition),
    )
    for plan in first:
        target = room.target_for(plan, node_id)
        if target is not None:
            room.take(node_id, target)
            commands.append(BeginMove(plan.partition, node_id, target))
        if room.of(node_id) <= 0:
            break
    return commands


def _grow(machine: ClusterMachine, room: _Room) -> list[Command]:
    """One more replica for partitions made when there were too few nodes. A few a call; the next call goes on."""
    commands: list[Command] = []
    for partition in islice(_growing(machine), PLAN_PARTITIONS_MAX):
        target = room.target_for(machine.partitions[partition], NOBODY)
        if target is not None:
            room.take(NOBODY, target)
            commands.append(BeginMove(partition, NOBODY, target))
    return commands


def _growing(machine: ClusterMachine) -> Iterator[int]:
    """Partitions that want a replica more, and for which there is an active node more."""
    active = len(machine.active())
    return chain.from_iterable(partitions for count, partitions in machine.short.items() if count < active)
