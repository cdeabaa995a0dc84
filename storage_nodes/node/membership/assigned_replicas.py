"""What the cluster log says that a node holds, and with whom it talks, carried out as it is folded.

A replica is made when a partition is created here or begins to move here, and dropped when the partition is deleted or
the end of its move away is committed, and for no other reason (R23). One that comes by a move is a learner: it is fed,
and has no say until its group gives it one. It is suspect as well, until it holds what its group has committed: an
earlier replica of this node may have been what kept a stale candidate from winning (`machines/raft/membership.py`).
Once its move is done it was made a voter; should its log be lost after that, it is told so, since its group would not
take it for a learner again.

**A restart folds again what was folded before**: all of the cluster log since the last checkpoint. Then no replica may
be made that was dropped since, empty and without memory of its votes, nor one be dropped that came back by a later
move. So while old entries are folded (`ClusterReplica.refolding`) nothing is made: what is still to be held at their
end is there, or is made then. And every replica knows the number of the move it came by: the end of an earlier one does
not concern it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from storage_nodes.log.node_log import NodeLog
from storage_nodes.machines.cluster.commands import (
    Effect,
    MoveBegun,
    MoveEnded,
    NodeChanged,
    PartitionCreated,
    PartitionDeleted,
    PartitionPlan,
)
from storage_nodes.model import CLUSTER_PARTITION, NodeAddress, NodeState
from storage_nodes.node.disk.blocking_work import BlockingWork
from storage_nodes.node.disk.committer import Committer
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.replicas.partition_meta import PartitionMeta, meta_text
from storage_nodes.node.transport.pending_raft_messages import PendingRaftMessages

FORGET_RETRY_S = 0.01


class OtherNodes(Protocol):
    def admit(self, address: NodeAddress) -> None:
        """Talk with this node from now on, at this address."""

    def expel(self, node_id: int) -> None:
        """Never again."""


class AssignedReplicas:
    """Of one node. On the event loop."""

    def __init__(
        self,
        log: NodeLog,
        replicas: LocalReplicas,
        work: BlockingWork,
        committer: Committer,
        others: OtherNodes,
        early: PendingRaftMessages,
    ) -> None:
        self._log = log
        self._replicas = replicas
        self._work = work
        self._committer = committer
        self._others = others
        self._early = early
        # Called when something was folded.
        self.on_change: Callable[[], None] = lambda: None
        # Partitions to be made here again, whose earlier logs must leave the manifest first.
        self.forgetting: set[int] = set()

    def changed(self, effect: Effect) -> None:
        """The cluster log says something, committed."""
        if isinstance(effect, PartitionCreated | MoveBegun):
            self._create(effect.plan)
        elif isinstance(effect, PartitionDeleted):
            self._drop(effect.plan.partition)
        elif isinstance(effect, MoveEnded):
            if effect.dropped == self._replicas.node_id and self._came_by(effect.plan.partition) <= effect.number:
                self._drop(effect.plan.partition)
            self._tell_voter(effect.plan)
        elif isinstance(effect, NodeChanged):
            self._adopt_node(effect.node_id)
        self.on_change()

    def replaced(self) -> None:
        """A snapshot took the place of the cluster log, or a restart has folded again what there was. A replica that
        was to go and come back meanwhile stays: an old log and its votes are no worse than none."""
        self.catch_up()
        self.on_change()

    def catch_up(self) -> None:
        """Make what the folded cluster log says is here, drop what it says is here no more, and let in who it says
        belongs to the cluster."""
        machine = self._replicas.cluster.machine
        for node_id in machine.nodes:
            self._adopt_node(node_id)
        for partition in list(self._log.partitions):
            if self._is_given_up(partition):
                self._drop(partition)
        for plan in list(machine.partitions.values()):
            self._create(plan)
            self._tell_voter(plan)
        # A node has one cluster log for life: what an earlier one promised was lost with its disk (R12).
        self._replicas.cluster.was_made_voter()

    def _is_given_up(self, partition: int) -> bool:
        """Does the state prove that a committed command took this replica away (R23)? Its drop may not have become
        durable, or a snapshot passed over it. That the state does not name it proves nothing: it may be older than the
        replica. But the numbers of partitions and moves are given out in order and once: a state that has given out
        this one's number, and that of the move it came by, and has it not here, has folded its end. A state that never
        heard of this node proves nothing of it either: node or directory go by another's name."""
        machine = self._replicas.cluster.machine
        if partition == CLUSTER_PARTITION or not machine.was_made(partition):
            return False
        if self._replicas.node_id not in machine.nodes:
            return False
        plan = machine.partitions.get(partition)
        if plan is None:
            return True
        return self._replicas.node_id not in plan.holders() and self._came_by(partition) <= machine.last_move

    def _tell_voter(self, plan: PartitionPlan) -> None:
        """Is the move done that brought the replica here? Numbers of moves are given out once and in order: a state
        that has given out this one's, and counts this node among the replicas, has folded its end."""
        replica = self._replicas.get(plan.partition)
        if replica is None or not replica.meta.learner or self._replicas.node_id not in plan.replicas:
            return
        if replica.meta.move <= self._replicas.cluster.machine.last_move:
            replica.was_made_voter()

    def _adopt_node(self, node_id: int) -> None:
        """Let it in, or, once it is gone, not any more."""
        machine = self._replicas.cluster.machine
        if machine.state_of(node_id) is not NodeState.GONE:
            self._others.admit(machine.nodes[node_id])
        elif node_id != self._replicas.node_id:
            self._others.expel(node_id)

    def _create(self, plan: PartitionPlan) -> None:
        """The cluster log says that this partition exists, or that a replica of it is to come here."""
        if self._replicas.node_id not in plan.holders() or self._replicas.cluster.refolding:
            return
        if plan.partition in self._log.partitions:
            move = plan.move
            if move is None or move.target != self._replicas.node_id or self._came_by(plan.partition) >= move.number:
                return
            self._drop(plan.partition)  # from before it was moved away: the end of that was skipped over
        if self._log.is_dropping(plan.partition):
            if plan.partition not in self.forgetting:
                self.forgetting.add(plan.partition)
                self._forget(plan.partition)
            return
        suspect = self._replicas.cluster.log.suspect
        # Made while this node still learns what it once knew: it may have held this replica before, as a voter.
        is_learner = self._replicas.node_id not in plan.replicas and not suspect
        # Who votes until the group's log says otherwise, which it need never do: the same as everywhere else, so never
        # the target of a pending move. That it is a voter by now only the group's log can say.
        meta = PartitionMeta(plan.tag, plan.replicas, plan.config, is_learner, self._came_with(plan))
        log = self._log.create(plan.partition, plan.kind, meta_text(meta))
        if suspect or is_learner:
            # An earlier replica of this node may have acknowledged and voted, and its log may be what kept a candidate
            # from winning that has missed several changes of the group: no vote counts before all that is committed
            # is here (R12).
            self._log.set_suspect(plan.partition, True)
        self._committer.wake()
        replica = self._replicas.open(log, meta)
        if replica is None:
            return  # it is stopped
        replica.start(campaign=plan.replicas[0] == self._replicas.node_id)
        for sender, message in self._early.take(plan.partition):
            replica.receive(sender, message)

    def _came_with(self, plan: PartitionPlan) -> int:
        """The last move that may have brought a replica that is made now: only ends of later ones concern it."""
        move = plan.move
        if move is None:
            return self._replicas.cluster.machine.last_move
        return move.number if move.target == self._replicas.node_id else move.number - 1

    def _came_by(self, partition: int) -> int:
        log = self._log.partitions.get(partition)
        return 0 if log is None else msgspec.json.decode(log.tag, type=PartitionMeta).move

    def _forget(self, partition: int) -> None:
        """It was held here before and is to be held again: first its earlier log leaves the manifest."""
        plan = self._log.plan_forget(partition) if self._log.is_dropping(partition) else None
        if plan is not None:
            forget = plan
            self._work.run_maintenance(lambda: self._log.run_forget(forget), lambda _: self._forgotten(partition, True))
        elif self._log.is_dropping(partition):
            self._work.loop.call_later(FORGET_RETRY_S, self._forget, partition)
        else:
            self._forgotten(partition, False)  # a flush came first

    def _forgotten(self, partition: int, here: bool) -> None:
        if here:
            self._log.forget_done()
        self.forgetting.discard(partition)
        now_planned = self._replicas.cluster.machine.partitions.get(partition)
        if now_planned is not None and not self._replicas.closing:
            self._create(now_planned)

    def _drop(self, partition: int) -> None:
        """The cluster log says, committed, that this partition is not, or no longer, held here (R23)."""
        replica = self._replicas.pop(partition, None)
        if replica is not None:
            replica.close()
        if partition in self._log.partitions:
            self._log.drop(partition)
            self._committer.wake()
