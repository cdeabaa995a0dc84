"""What the cluster machine is told, what it holds, and what it says in return.

Commands are msgpack arrays in control records of type CONTROL_CLUSTER; tags and field order are on disk: fields are
only ever added at the end, with a default.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig

NOBODY = 0


# --- commands -----------------------------------------------------------------------------------------------


class RegisterNode(msgspec.Struct, array_like=True, frozen=True, tag=1):
    node_id: int
    host: str
    port: int
    zone: str


class CreatePartition(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """`nodes_min`: refuse while fewer active nodes than this are registered. `wanted`: how many replicas it is to
    have once there are nodes enough; 0 = not said."""

    kind: int
    tag: str
    config: QueueConfig
    replication_factor: int
    nodes_min: int = 1
    wanted: int = 0


class DeletePartition(msgspec.Struct, array_like=True, frozen=True, tag=3):
    partition: int
    tag: str


class BeginMove(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Put `target` in the place of `source`; without a source (NOBODY) the partition grows by one replica."""

    partition: int
    source: int
    target: int


class EndMove(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """The leader of `epoch` of the partition's group says how move `number` ended: done, or undone. It counts only from
    the leader that carries the move out (TakeMove)."""

    partition: int
    number: int
    done: bool
    epoch: int = 0


class CancelMove(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Asks for move `number` to be undone; too late once the group runs without the source."""

    partition: int
    number: int


class SetNodeState(msgspec.Struct, array_like=True, frozen=True, tag=7):
    node_id: int
    state: int


class TakeMove(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """The leader of `epoch` of the partition's group carries move `number` out from now on, and none before it."""

    partition: int
    number: int
    epoch: int


class ReadyMove(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """The target of move `number` holds the replica made for it, and none from before: it may be added now."""

    partition: int
    number: int


class SetNodeLevels(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """What a node speaks, and to which feature level its operator lets the cluster rise (protocol/levels.py)."""

    node_id: int
    lowest: int
    highest: int
    allowed: int


class SetFeatureLevel(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """The cluster is at this feature level from here on: refused while a node allows less."""

    level: int


Command = (
    RegisterNode
    | CreatePartition
    | DeletePartition
    | BeginMove
    | ReadyMove
    | TakeMove
    | EndMove
    | CancelMove
    | SetNodeState
    | SetNodeLevels
    | SetFeatureLevel
)

command_decoder = msgspec.msgpack.Decoder(Command)
encode_command = msgspec.msgpack.Encoder().encode


# --- what is held -------------------------------------------------------------------------------------------


class Move(msgspec.Struct, array_like=True, frozen=True):
    """A replica on its way. `number` names it for ever: word of an earlier move of the same nodes means nothing.

    `epoch` is that of the leader that carries it out: the fence. A leader acts once it has folded its own TakeMove, so
    it does not act on a move that has ended; and no leader before it can end the move any more.
    """

    number: int
    source: int
    target: int
    undo: bool = False
    epoch: int = 0
    ready: bool = False


class PartitionPlan(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A partition as the cluster log knows it. replicas[0] is the preferred leader.

    While a move is pending, `replicas` says what was before it, and holders() who may hold data.
    """

    partition: int
    kind: int
    tag: str
    replicas: tuple[int, ...]
    config: QueueConfig
    move: Move | None = None
    wanted: int = 0

    def holders(self) -> tuple[int, ...]:
        return self.replicas if self.move is None else (*self.replicas, self.move.target)

    def after_move(self) -> tuple[int, ...]:
        """The replicas once the pending move is done: the target takes the very place of the source."""
        assert self.move is not None
        if self.move.source == NOBODY:
            return (*self.replicas, self.move.target)
        return tuple(self.move.target if node == self.move.source else node for node in self.replicas)

    def replicas_wanted(self) -> int:
        return self.wanted or LEVEL_1.replication_factor


# --- effects ------------------------------------------------------------------------------------------------


class PartitionCreated(NamedTuple):
    plan: PartitionPlan


class PartitionDeleted(NamedTuple):
    plan: PartitionPlan


class NodeChanged(NamedTuple):
    """A node is new, has another address, or another state."""

    node_id: int


class MoveBegun(NamedTuple):
    """plan.move.target makes an empty replica, which is no voter, and waits to be fed."""

    plan: PartitionPlan


class MoveTaken(NamedTuple):
    """The leader of epoch plan.move.epoch may act, or the target is ready."""

    plan: PartitionPlan


class MoveEnded(NamedTuple):
    """`dropped` holds the partition no more: its replica goes (NOBODY where there is none). `number` is the move's."""

    plan: PartitionPlan
    dropped: int
    number: int


class Outcome(NamedTuple):
    """The answer to one command: a code, and the partition where there is one."""

    code: ErrorCode
    plan: PartitionPlan | None = None
    text: str = ""


class LevelsChanged(NamedTuple):
    """The cluster's feature level is another one, or what a node speaks."""


Effect = LevelsChanged | PartitionCreated | PartitionDeleted | NodeChanged | MoveBegun | MoveTaken | MoveEnded
