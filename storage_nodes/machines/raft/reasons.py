"""Why a leader changed, in words: how the one before was lost, and how the present one came.

Only what the machine itself can know; `node/replicas/failover.py` adds what the node knows: in what way another node
went down, and what the time was.
"""

from __future__ import annotations

from storage_nodes.ids import node_name
from storage_nodes.machines.raft.effects import Loss, Role
from storage_nodes.machines.raft.replica_state import ReplicaState

_LOST = {
    Loss.STARTED: "no leader was known at the start",
    Loss.NODE_DOWN: "{node} went down",
    Loss.HANDED_OVER: "{node} handed over",
    Loss.GAVE_UP: "{node} gave up leading",
    Loss.OUTVOTED: "{node} was outvoted in a newer epoch",
    Loss.NO_QUORUM: "{node} lost contact with a majority of the voters",
    Loss.NOT_HEARD: "{node} was not heard of",
    Loss.REMOVED: "{node} was removed from the group",
}


def listed(nodes: tuple[int, ...] | list[int]) -> str:
    """`node 2`, `nodes 2, 3`."""
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(node_name, nodes))}"


def reason_lost(loss: Loss, leader: int) -> str:
    return _LOST[loss].format(node=f"node {node_name(leader)}" if leader else "the leader")


def reason_elected(machine: ReplicaState) -> str:
    """How the present leader came; empty while there is none."""
    if not machine.leader:
        return ""
    if machine.role is not Role.LEADER:
        return f"node {node_name(machine.leader)} leads epoch {machine.epoch}"
    return f"elected by {listed(machine.elected_by)} in epoch {machine.epoch}"


def reason_of(machine: ReplicaState) -> str:
    return "; ".join(filter(None, (reason_lost(machine.loss, machine.lost_leader), reason_elected(machine))))
