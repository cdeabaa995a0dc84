"""How a partition's own group carries out a pending move, one change of its configuration at a time.

    AddLearner(target) -> target is level -> Promote(target) -> Remove(source) -> Finish(done)
    undo:                                     Remove(target)                   -> Finish(undone)

Pure, and without memory: the next step follows from the move, as the cluster log has it, and the group's committed
configuration. So any new leader goes on where the last one stopped, and a step taken twice does nothing.

At no time has the group fewer voters than before the move, and none is removed unless the others that are up are a
majority without it. A leader that is to be removed hands over first. Once the group runs without the source, an undo
comes too late: the move is done.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from storage_nodes.machines.cluster.commands import NOBODY, Move
from storage_nodes.machines.raft.membership import AddLearner, Promote, Remove
from storage_nodes.model import NodeId


class HandOver(NamedTuple):
    """Let somebody else lead: this node, if it may, otherwise any other voter but `leaving`."""

    preferred: NodeId
    leaving: NodeId


class Finish(NamedTuple):
    """Tell the manager: EndMove."""

    done: bool


Step = AddLearner | Promote | Remove | HandOver | Finish


class RaftGroup(NamedTuple):
    """A group as its leader sees it.

    `settled`: the configuration is committed, and none is under way. `up`: other members whose nodes are up; `level`:
    those of them that are known to hold the log but for its last PROMOTION_LAG_RECORDS_MAX records.
    """

    leader: NodeId
    voters: Collection[NodeId]
    learners: Collection[NodeId]
    settled: bool
    up: Collection[NodeId]
    level: Collection[NodeId]

    def majority_up_without(self, node: NodeId) -> bool:
        rest = [voter for voter in self.voters if voter != node]
        up = sum(voter == self.leader or voter in self.up for voter in rest)
        return up > len(rest) // 2


def next_step(move: Move, group: RaftGroup) -> Step | None:
    """What to do now; None = wait."""
    if not group.settled:
        return None
    too_late = move.source != NOBODY and move.source not in group.voters and move.target in group.voters
    if move.undo and not too_late:
        return _undo(move, group)
    if move.target not in group.voters:
        return bring_in(move.target, group)
    if move.source in group.voters:
        return let_go(move.source, move.target, group)
    if move.source in group.learners:
        return Remove(move.source)
    return Finish(True)


def _undo(move: Move, group: RaftGroup) -> Step | None:
    if move.target in group.learners:
        return Remove(move.target)
    if move.target in group.voters:
        return let_go(move.target, move.source, group)
    return Finish(False)


def bring_in(node: NodeId, group: RaftGroup) -> Step | None:
    """Make `node` a voter: first a learner, that is fed and has no say, until it is level."""
    if node not in group.learners:
        return AddLearner(node)
    return Promote(node) if node in group.level else None


def let_go(node: NodeId, successor: NodeId, group: RaftGroup) -> Step | None:
    """Take `node` out of the voters."""
    if not group.majority_up_without(node):
        return None
    if group.leader == node:
        return HandOver(successor, node)
    return Remove(node)


def next_cluster_step(
    group: RaftGroup, wanted: Collection[NodeId], unwanted: Collection[NodeId], voters_max: int
) -> Step | None:
    """The same for the cluster's own group: every wanted node is a member, unwanted ones are none.

    As many are voters as make an odd number, at most `voters_max`: a further voter that makes it even tolerates no
    further failure, it only makes every commit wait for one more.
    """
    if not group.settled:
        return None
    members = {*group.voters, *group.learners}
    for node in wanted:
        if node not in members:
            return AddLearner(node)
    staying = [voter for voter in group.voters if voter not in unwanted]
    count = min(voters_max, len(wanted))
    count -= count % 2 == 0
    if len(staying) < count:
        for node in wanted:
            if node in group.learners and node in group.level:
                return Promote(node)
        return None
    for node in unwanted:
        if node in group.learners:
            return Remove(node)
        if node in group.voters:
            return let_go(node, NOBODY, group)
    return None
