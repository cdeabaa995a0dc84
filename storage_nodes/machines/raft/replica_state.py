"""What a replica knows of its group and of itself, in each of its roles: the fields of the Raft machine.

The machine sets them, elections and the leader change them, and what words the reasons reads them.
"""

from __future__ import annotations

from collections.abc import Callable

from storage_nodes.machines.raft.effects import LogPositions, Loss, Role
from storage_nodes.machines.raft.membership import Grouped


class ReplicaState(Grouped):
    """The fields are explained where the machine sets them."""

    __slots__ = (
        "_attempts",
        "_installing",
        "_may_have_lost_vote",
        "_random_ms",
        "_suspect_votes",
        "_turns_passed",
        "_votes",
        "alive",
        "commit",
        "elected_by",
        "epoch",
        "leader",
        "leader_since_ms",
        "log",
        "loss",
        "lost_leader",
        "lost_ms",
        "members",
        "node_id",
        "partition",
        "promised_to",
        "promised_until_ms",
        "replicated",
        "role",
        "suspect",
        "timer_ms",
        "voted_for",
    )  # fmt: skip
    partition: int
    node_id: int
    log: LogPositions
    role: Role
    epoch: int
    voted_for: int
    commit: int
    replicated: int
    leader: int
    leader_since_ms: int
    loss: Loss
    lost_leader: int
    lost_ms: int
    elected_by: tuple[int, ...]
    promised_to: int
    promised_until_ms: int
    suspect: bool
    alive: tuple[int, ...]
    timer_ms: int
    _attempts: int
    _turns_passed: int
    _suspect_votes: tuple[int, ...]
    _may_have_lost_vote: bool
    _installing: bool
    _random_ms: Callable[[int], int]
    _votes: tuple[int, ...]

    def quorum_up(self) -> bool:
        return self.members.is_majority(self.alive)
