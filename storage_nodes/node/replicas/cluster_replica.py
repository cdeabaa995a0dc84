"""A replica of `__cluster`: folds nodes, partitions and moves, tells the node what changed, and, while it leads, is the
in-cluster manager that answers create, delete, move, register and drain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from storage_nodes.ids import is_node_id, node_name
from storage_nodes.limits import CREATING_AT_ONCE_MAX, CREATING_MS_MAX, REPLICATION_FACTOR
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import CONTROL_CLUSTER, BatchHeader, control_key, control_kind, iterate_bodies
from storage_nodes.machines.cluster.commands import (
    BeginMove,
    CancelMove,
    Command,
    CreatePartition,
    DeletePartition,
    Effect,
    EndMove,
    Outcome,
    PartitionCreated,
    PartitionPlan,
    ReadyMove,
    RegisterNode,
    SetNodeState,
    TakeMove,
    command_decoder,
    encode_command,
)
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.machines.unknown_entries import require_known
from storage_nodes.model import NodeAddress, NodeState, PartitionKind
from storage_nodes.node.replicas.host import Host
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    UNREADABLE,
    CancelMoveRequest,
    CreatePartitionRequest,
    DeletePartitionRequest,
    Empty,
    MoveInfo,
    MoveReplicaRequest,
    PartitionInfo,
    RegisterNodeRequest,
    SetNodeStateRequest,
    encode_message,
)
from storage_nodes.protocol.records import decode_body, encode_body

TAG_BYTES_MAX = 256
# While new partitions wait for their leaders, commands that wait for them are looked at again after this time.
LOOK_AGAIN_S = 0.005
HOST_BYTES_MAX = 256
_CREATABLE_KINDS = (PartitionKind.QUEUE, PartitionKind.STREAM)
# What nodes may ask of the manager by themselves.
_MANAGEABLE = (TakeMove, ReadyMove, EndMove)

_create_request = msgspec.msgpack.Decoder(CreatePartitionRequest)
_delete_request = msgspec.msgpack.Decoder(DeletePartitionRequest)
_move_request = msgspec.msgpack.Decoder(MoveReplicaRequest)
_cancel_request = msgspec.msgpack.Decoder(CancelMoveRequest)
_register_request = msgspec.msgpack.Decoder(RegisterNodeRequest)
_state_request = msgspec.msgpack.Decoder(SetNodeStateRequest)


class ClusterReplica(Replica):
    """The cluster's own metadata partition."""

    machine: ClusterMachine

    def __init__(
        self,
        host: Host,
        log: PartitionLog,
        meta: PartitionMeta,
        nodes: list[NodeAddress],
        on_change: Callable[[Effect], None],
        on_replaced: Callable[[], None],
        is_led: Callable[[int], bool],
    ) -> None:
        """`on_change` is told what was folded; `on_replaced` is called after a snapshot, and when a restart has folded
        again what there was."""
        self._configured = nodes
        self._on_change = on_change
        self._on_replaced = on_replaced
        self._staged: list[tuple[Token | None, Command]] = []
        # Commands of this leadership whose outcome comes with the fold: (offset of the record, token).
        self._proposed: deque[tuple[int, Token | None]] = deque()
        # New partitions that had no leader yet when looked at last -> when they were made (monotonic).
        self._creating: dict[int, int] = {}
        self._is_led = is_led
        super().__init__(host, log, meta, ClusterMachine())
        # What the log holds at the start was folded before, if it was committed. Entries that were not may be cut off.
        self._known_end = log.log_end
        self.refolding = self.applied < self._known_end

    def create(self, token: Token, payload: bytes) -> None:
        request = _create_request.decode(payload)
        self.require_leader()
        if request.kind not in _CREATABLE_KINDS or not 1 <= len(request.tag.encode()) <= TAG_BYTES_MAX:
            raise StorageError(ErrorCode.INVALID_REQUEST, "kind must be queue or stream, tag 1 to 256 bytes")
        wanted = request.replication_factor
        if not 1 <= wanted <= REPLICATION_FACTOR:
            raise StorageError(ErrorCode.INVALID_REQUEST, f"replication factor must be 1 to {REPLICATION_FACTOR}")
        factor = min(wanted, self._usable_nodes())
        self._stage(token, CreatePartition(request.kind, request.tag, request.config, factor, factor, wanted))

    def delete(self, token: Token, payload: bytes) -> None:
        request = _delete_request.decode(payload)
        self.require_leader()
        self._stage(token, DeletePartition(request.partition, request.tag))

    def move(self, token: Token, payload: bytes) -> None:
        request = _move_request.decode(payload)
        self.require_leader()
        self._stage(token, BeginMove(request.partition, request.source, request.target))

    def cancel_move(self, token: Token, payload: bytes) -> None:
        request = _cancel_request.decode(payload)
        self.require_leader()
        self._stage(token, CancelMove(request.partition, request.number))

    def register(self, token: Token, payload: bytes) -> None:
        request = _register_request.decode(payload)
        self.require_leader()
        if not (
            is_node_id(request.node_id)
            and 1 <= request.port <= 65_535
            and 1 <= len(request.host.encode()) <= HOST_BYTES_MAX
            and 1 <= len(request.zone.encode()) <= HOST_BYTES_MAX
        ):
            raise StorageError(ErrorCode.INVALID_REQUEST, "a node needs a node id, host, port and zone")
        self._stage(token, RegisterNode(request.node_id, request.host, request.port, request.zone))

    def set_state(self, token: Token, payload: bytes) -> None:
        request = _state_request.decode(payload)
        self.require_leader()
        node_id = request.node_id
        if request.state == NodeState.GONE:
            raise StorageError(ErrorCode.INVALID_REQUEST, "a node is gone once it was made to leave and holds nothing")
        is_up = node_id == self.host.node_id or self.host.is_up(node_id)
        if node_id in self.machine.nodes and request.state == NodeState.LEAVING and request.dead == is_up:
            text = (
                f"node {node_name(node_id)} is up, so it is not dead: stop it first, or decommission it without --dead"
                if is_up
                else f"node {node_name(node_id)} is down: start it, or, if it died for good, say so with --dead"
            )
            raise StorageError(ErrorCode.INVALID_REQUEST, text)
        self._stage(token, SetNodeState(node_id, request.state))

    def manage(self, commands: list[bytes]) -> None:
        """What a node, ours or another, asks of the manager. Not answered: who asks sees it folded, or asks again.

        Raises msgspec.DecodeError."""
        if self.serving and not self.handing_over:
            for command in _read(commands):
                if isinstance(command, _MANAGEABLE):
                    self._stage(None, command)

    def carry_out(self, commands: list[Command]) -> None:
        """Log what the manager decided by itself."""
        if self.serving and not self.handing_over:
            for command in commands:
                self._stage(None, command)

    def _usable_nodes(self) -> int:
        """Active nodes, and those of the node list that are about to be registered."""
        machine = self.machine
        coming = [node for node in self._configured if node.node_id not in machine.nodes]
        return len(machine.active()) + len(coming)

    # --- Replica ----------------------------------------------------------------------------------------------

    def installed(self, end_offset: int, restore: Callable[[], None]) -> None:
        super().installed(end_offset, restore)
        if self.closed:
            return
        self.refolding = self.applied < self._known_end
        self._on_replaced()

    def propose(self) -> None:
        room = self._room()
        staged, self._staged = self._staged[:room], self._staged[room:]
        if self._staged:
            self.host.loop.call_later(LOOK_AGAIN_S, self.propose_soon)
        if not staged:
            return
        base = self.log.log_end
        key = control_key(CONTROL_CLUSTER)
        bodies = [encode_body(encode_command(command), key) for _, command in staged]
        self.append_own(bodies, self.now_ms(), control=True)
        self._proposed.extend((base + index, token) for index, (token, _) in enumerate(staged))

    def _room(self) -> int:
        """How many commands may go to the log now. Each may be a new group, and those must not come faster than the
        nodes can elect: an overloaded node goes silent, which costs the old groups their leaders too."""
        since_ms = self.host.clock.mono_ms() - CREATING_MS_MAX
        creating = self._creating.items()
        self._creating = {new: made_ms for new, made_ms in creating if made_ms > since_ms and not self._is_led(new)}
        return max(CREATING_AT_ONCE_MAX - len(self._creating) - len(self._proposed), 0)

    def fold(self, header: BatchHeader, batch: bytes) -> None:
        for offset, body in iterate_bodies(batch):
            record = decode_body(body)
            if control_kind(record.key) != CONTROL_CLUSTER:
                require_known(record.key)
                continue
            outcome, effects = self.machine.apply(record.value)
            for effect in effects:
                if isinstance(effect, PartitionCreated) and self.serving:
                    self._creating[effect.plan.partition] = self.host.clock.mono_ms()
                self._on_change(effect)
            if self._proposed and self._proposed[0][0] == offset:
                _, token = self._proposed.popleft()
                self._answer(token, outcome)
        if self.refolding:
            self.look_at_progress()

    def look_at_progress(self) -> None:
        """Has everything been folded that may have been folded before the start?"""
        if self.refolding and (self.applied >= self._known_end or self.applied == self.log.log_end):
            self.refolding = False
            self._on_replaced()

    def maybe_trust(self) -> None:
        """Not before everything is made: what is made while this replica is suspect is suspect too."""
        if not self.refolding:
            super().maybe_trust()

    def on_lead(self) -> None:
        """Register every configured node whose entry is missing. Where others listen they say themselves: our list may
        be older than the log."""
        for address in self._configured:
            known = self.machine.nodes.get(address.node_id)
            if known is None or (known != address and address.node_id == self.host.node_id):
                self._stage(None, RegisterNode(*address))

    def on_follow(self) -> None:
        self._creating = {}
        staged, self._staged = self._staged, []
        for token, _ in staged:
            if token is not None:
                token.connection.refuse(token, StorageError(ErrorCode.NOT_LEADER, "leadership was lost"))
        while self._proposed:
            _, token = self._proposed.popleft()
            if token is not None:
                token.connection.refuse(token, StorageError(ErrorCode.OUTCOME_UNKNOWN, "the manager changed"))

    def _stage(self, token: Token | None, command: Command) -> None:
        self._staged.append((token, command))
        self.propose_soon()

    def _answer(self, token: Token | None, outcome: Outcome) -> None:
        if token is None:
            return
        if outcome.code is not ErrorCode.OK:
            token.connection.refuse(token, StorageError(outcome.code, outcome.text))
        elif outcome.plan is None:
            token.connection.answer(token, encode_message(Empty()))
        else:
            token.connection.answer(token, encode_message(partition_info(outcome.plan)))


def partition_info(plan: PartitionPlan) -> PartitionInfo:
    """A plan as callers see it; who leads is not in it."""
    way = plan.move
    move = None if way is None else MoveInfo(way.number, way.source, way.target, way.undo)
    return PartitionInfo(plan.partition, plan.kind, list(plan.replicas), plan.tag, move=move)


def _read(commands: list[bytes]) -> list[Command]:
    """Raises msgspec.DecodeError, and nothing else: another node sent them."""
    try:
        return list(map(command_decoder.decode, commands))
    except UNREADABLE as error:
        raise msgspec.DecodeError(str(error)) from None
