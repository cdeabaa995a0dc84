"""Carries out, on this node, what the cluster log says about moves and nodes.

    every leader of a moving partition   takes the next step of its move (machines/cluster/mover.py)
    a node that is being emptied         lets others lead what it leads, before its replicas move
    the manager                          plans moves (machines/cluster/planner.py) and keeps the cluster's own group

Decides nothing and remembers nothing: each turn looks at the folded cluster log and at the groups' configurations, so
a restart or a new leader goes on where things stand. A turn is taken when a commit may have changed something, every
MOVE_INTERVAL_MS while work is under way, and rarely otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog
from prometheus_client import Counter

from storage_nodes.limits import (
    BALANCE_INTERVAL_MS,
    CLUSTER_VOTERS_MAX,
    MOVE_INTERVAL_MS,
    PROMOTION_LAG_RECORDS_MAX,
)
from storage_nodes.machines.cluster.commands import (
    Command,
    EndMove,
    PartitionPlan,
    ReadyMove,
    RegisterNode,
    TakeMove,
    encode_command,
)
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.machines.cluster.mover import (
    Finish,
    HandOver,
    RaftGroup,
    Step,
    next_cluster_step,
    next_step,
)
from storage_nodes.machines.cluster.planner import is_idle, plan_work
from storage_nodes.model import NodeState
from storage_nodes.node.replicas.cluster_replica import ClusterReplica
from storage_nodes.node.replicas.hand_over import hand_over_some, hand_over_to_any
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.transport.peers import PeerLinks
from storage_nodes.protocol.messages import Opcode, encode_message
from storage_nodes.protocol.peer_messages import Manage

STEPS = Counter("penstock_node_move_steps", "Steps of replica moves taken by leaders on this node")

_log = structlog.get_logger()


class Moves:
    """One per node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: int,
        links: PeerLinks,
        replicas: dict[int, Replica],
        cluster: Callable[[], ClusterReplica],
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self._links = links
        self._replicas = replicas
        self._cluster = cluster
        self._timer: asyncio.TimerHandle | None = None
        self._poked = False
        self._running = False
        # What the manager logs of feature levels (feature_levels.py).
        self.level_commands: Callable[[ClusterMachine], list[Command]] = lambda machine: []

    def start(self) -> None:
        self._running = True
        self.wake()

    def close(self) -> None:
        self._running = False
        if self._timer is not None:
            self._timer.cancel()

    def wake(self) -> None:
        """Something was committed that may be what a move waits for. The turn is taken after the present one."""
        if self._running and not self._poked:
            self._poked = True
            self._loop.call_soon(self._turn)

    def may_lead(self, node_id: int) -> bool:
        """Is it up, not about to stop, and not being emptied?"""
        return self._links.may_lead(node_id) and self._cluster().machine.state_of(node_id) is NodeState.ACTIVE

    def group(self, replica: Replica) -> RaftGroup:
        """A group as this node, which leads it, sees it."""
        raft = replica.raft
        peers = [peer for peer in raft.status().peers if peer.up]
        level = [peer.node_id for peer in peers if peer.match and peer.behind <= PROMOTION_LAG_RECORDS_MAX]
        return RaftGroup(
            self._node_id,
            raft.voters,
            raft.learners,
            not raft.configuration_pending,
            [peer.node_id for peer in peers],
            level,
        )

    # --- one turn -------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._poked = False
        if not self._running:
            return
        if self._timer is not None:
            self._timer.cancel()
        cluster = self._cluster()
        cluster.look_at_progress()
        machine = cluster.machine
        for plan in list(machine.moving.values()):
            self._move(plan)
        if machine.state_of(self._node_id) is not NodeState.ACTIVE:
            # The cluster's own group has a way of its own to let a node go: `_manage`.
            own = self._cluster()
            hand_over_some((replica for replica in self._replicas.values() if replica is not own), self.may_lead)
        busy = not is_idle(machine)
        if cluster.serving and not cluster.handing_over:
            busy |= self._manage(cluster)
        delay_ms = MOVE_INTERVAL_MS if busy else BALANCE_INTERVAL_MS
        self._timer = self._loop.call_later(delay_ms / 1000, self._turn)

    def _move(self, plan: PartitionPlan) -> None:
        replica = self._replicas.get(plan.partition)
        assert plan.move is not None
        if plan.move.target == self._node_id and not plan.move.ready and replica is not None:
            if replica.meta.move == plan.move.number:
                self._tell_manager(ReadyMove(plan.partition, plan.move.number))
            return
        if replica is None or not replica.serving or replica.handing_over:
            return
        epoch = replica.raft.epoch
        if plan.move.epoch != epoch:
            # What we have folded may be old: the move may have ended, and its nodes may have dropped their replicas.
            if plan.move.epoch < epoch:
                self._tell_manager(TakeMove(plan.partition, plan.move.number, epoch))
            return
        if not plan.move.ready and not plan.move.undo:
            return
        step = next_step(plan.move, self.group(replica))
        if isinstance(step, Finish):
            self._tell_manager(EndMove(plan.partition, plan.move.number, step.done, epoch))
        elif step is not None:
            self._take(step, replica)

    def _take(self, step: Step, replica: Replica) -> None:
        STEPS.inc()
        if isinstance(step, HandOver):
            self._hand_over(replica, step.preferred, step.leaving)
            return
        assert not isinstance(step, Finish)
        refusal = replica.change_configuration(step)
        if refusal is not None:
            _log.info("a step waits", partition=replica.partition, step=str(step), reason=refusal.value)

    def _hand_over(self, replica: Replica, preferred: int, leaving: int) -> None:
        voters = replica.raft.voters
        if preferred in voters and self.may_lead(preferred):
            replica.hand_over(preferred)
        else:
            # Rather one whose clock is off, which hands over in its turn, than a replica that cannot leave.
            choices = (self.may_lead, self._links.may_lead, self._links.may_follow)
            hand_over_to_any(replica, *(partial(_is_other, leaving, may_lead) for may_lead in choices))

    def _tell_manager(self, command: Command) -> None:
        commands = [encode_command(command)]
        cluster = self._cluster()
        if cluster.serving:
            cluster.manage(commands)
        else:
            self._links.tell(cluster.raft.leader, Opcode.MANAGE, encode_message(Manage(commands)))

    # --- the manager ----------------------------------------------------------------------------------------

    def _manage(self, cluster: ClusterReplica) -> bool:
        """True: look again soon."""
        machine = cluster.machine
        group = self.group(cluster)
        cluster.carry_out(self._addresses(cluster))
        cluster.carry_out(self.level_commands(machine))
        in_group = {*group.voters, *group.learners}
        cluster.carry_out(plan_work(machine, in_group, self._may_take))
        unwanted = [node for node in in_group if not self._belongs(cluster, node)]
        wanted = [node for node in machine.nodes if self._belongs(cluster, node)]
        step = next_cluster_step(group, wanted, unwanted, CLUSTER_VOTERS_MAX)
        if step is not None:
            self._take(step, cluster)
        return step is not None or bool(unwanted) or any(node not in in_group for node in wanted)

    def _addresses(self, cluster: ClusterReplica) -> list[Command]:
        """Nodes that say that they listen elsewhere than the log has it."""
        known = cluster.machine.nodes
        claims = [claim for claim in self._links.claims() if known.get(claim.node_id, claim) != claim]
        return [RegisterNode(*claim) for claim in claims]

    def _belongs(self, cluster: ClusterReplica, node_id: int) -> bool:
        """A leaving node stays in the cluster's group until it holds nothing: it learns from it what to let go. One of
        the first nodes is in the group before it is registered: that it is unknown is no reason to remove it."""
        machine = cluster.machine
        state = machine.state_of(node_id)
        if state is NodeState.LEAVING:
            return bool(machine.held.get(node_id))
        return state is not NodeState.GONE

    def _may_take(self, node_id: int) -> bool:
        """Could it take a replica at present: is it up, and its disk neither full nor slow?"""
        if node_id == self._node_id:
            return not (self._links.read_only or self._links.slow)
        return self._links.may_follow(node_id)


def _is_other(leaving: int, may_lead: Callable[[int], bool], node_id: int) -> bool:
    return node_id != leaving and may_lead(node_id)
