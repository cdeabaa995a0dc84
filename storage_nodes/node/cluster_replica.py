"""A replica of `__cluster`: folds nodes and partitions, makes and drops local replicas, and, while it leads, is the
in-cluster manager that answers create and delete.

**After a start** the fold begins again at the checkpoint, and comes by creations whose partitions were deleted further
on, and dropped here for good: making those anew would raise empty replicas, without their votes, from the dead. A drop
is durable only after the entry that asked for it, so it is known which these are: until the fold has come to where the
log ended at the start (or to where that end was cut away), nothing is made; then, everything that is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from storage_nodes.limits import CREATING_AT_ONCE_MAX, CREATING_MS_MAX, REPLICATION_FACTOR
from storage_nodes.log.node_log import FlushFacts, PartitionLog
from storage_nodes.log.record_batch import CONTROL_CLUSTER, BatchHeader, control_key, control_kind, iterate_bodies
from storage_nodes.machines.cluster.machine import (
    ClusterMachine,
    Command,
    CreatePartition,
    DeletePartition,
    Outcome,
    PartitionCreated,
    PartitionPlan,
    RegisterNode,
    encode_command,
)
from storage_nodes.model import NodeAddress, PartitionKind
from storage_nodes.node.connections import Token
from storage_nodes.node.replica import Host, PartitionMeta, Replica
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    CreatePartitionRequest,
    DeletePartitionRequest,
    Empty,
    PartitionInfo,
    encode_message,
)
from storage_nodes.protocol.records import decode_body, encode_body

TAG_BYTES_MAX = 256
# While new partitions wait for their leaders, commands that wait for them are looked at again after this time.
LOOK_AGAIN_S = 0.005
_CREATABLE_KINDS = (PartitionKind.QUEUE, PartitionKind.STREAM)

_create_request = msgspec.msgpack.Decoder(CreatePartitionRequest)
_delete_request = msgspec.msgpack.Decoder(DeletePartitionRequest)


class ClusterReplica(Replica):
    """The cluster's own metadata partition."""

    def __init__(
        self,
        host: Host,
        log: PartitionLog,
        meta: PartitionMeta,
        nodes: list[NodeAddress],
        on_created: Callable[[PartitionPlan], None],
        on_deleted: Callable[[PartitionPlan], None],
        is_led: Callable[[int], bool],
    ) -> None:
        self.machine = ClusterMachine()
        self._configured = nodes
        self._on_created = on_created
        self._on_deleted = on_deleted
        self._start_end = log.log_end
        self._makes = False
        self._staged: list[tuple[Token | None, Command]] = []
        # Commands of this leadership whose outcome comes with the fold: (offset of the record, token).
        self._proposed: deque[tuple[int, Token | None]] = deque()
        # New partitions that had no leader yet when looked at last -> when they were made (monotonic).
        self._creating: dict[int, int] = {}
        self._is_led = is_led
        super().__init__(host, log, meta)

    def create(self, token: Token, payload: bytes) -> None:
        request = _create_request.decode(payload)
        self.require_leader()
        if request.kind not in _CREATABLE_KINDS or not 1 <= len(request.tag.encode()) <= TAG_BYTES_MAX:
            raise StorageError(ErrorCode.INVALID_REQUEST, "kind must be queue or stream, tag 1 to 256 bytes")
        factor = min(request.replication_factor, len(self._configured))
        if not 1 <= request.replication_factor <= REPLICATION_FACTOR:
            raise StorageError(ErrorCode.INVALID_REQUEST, f"replication factor must be 1 to {REPLICATION_FACTOR}")
        self._stage(token, CreatePartition(request.kind, request.tag, request.config, factor, factor))

    def delete(self, token: Token, payload: bytes) -> None:
        request = _delete_request.decode(payload)
        self.require_leader()
        self._stage(token, DeletePartition(request.partition, request.tag))

    def make_missing(self) -> None:
        """Make what the state says and this node has not, if it is known what there is to be; else later."""
        if not self._makes and self.applied >= min(self._start_end, self.log.log_end):
            self._makes = True
            for plan in list(self.machine.partitions.values()):
                self._on_created(plan)

    # --- Replica ----------------------------------------------------------------------------------------------

    def restore(self, checkpoint: bytes) -> None:
        self.machine.restore(checkpoint)

    def installed(self, end_offset: int, checkpoint: bytes) -> None:
        """Make and drop what the state that was skipped over made and dropped. Ids are never reused, so a partition
        that was known and is not any more was deleted by a committed command (R23)."""
        before = self.machine.partitions
        super().installed(end_offset, checkpoint)
        after = self.machine.partitions
        for plan in [plan for partition, plan in before.items() if partition not in after]:
            self._on_deleted(plan)
        for plan in [plan for partition, plan in after.items() if partition not in before]:
            self._made(plan)
        self.make_missing()

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
        self.append_own(bodies, self.host.clock.wall_ms(), control=True)
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
                continue
            outcome, effects = self.machine.apply(record.value)
            for effect in effects:
                if isinstance(effect, PartitionCreated):
                    if self.serving:
                        self._creating[effect.plan.partition] = self.host.clock.mono_ms()
                    self._made(effect.plan)
                else:
                    self._on_deleted(effect.plan)
            if self._proposed and self._proposed[0][0] == offset:
                _, token = self._proposed.popleft()
                self._answer(token, outcome)
        self.make_missing()

    def _maybe_trust(self) -> None:
        """Not before everything is made: what is made while this replica is suspect is suspect too."""
        if self._makes:
            super()._maybe_trust()

    def on_lead(self) -> None:
        """Register every configured node whose entry is missing or has changed."""
        for address in self._configured:
            if self.machine.nodes.get(address.node_id) != address:
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

    def flush_facts(self) -> FlushFacts:
        return FlushFacts(
            self.raft.commit, self.machine.checkpoint(), self.applied, self.disposable_end(), _nothing_live
        )

    def _made(self, plan: PartitionPlan) -> None:
        if self._makes:
            self._on_created(plan)

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
            plan = outcome.plan
            info = PartitionInfo(plan.partition, plan.kind, list(plan.replicas), plan.tag)
            token.connection.answer(token, encode_message(info))


def _nothing_live(base_offset: int, last_offset: int) -> bool:
    """The checkpoint holds the whole state, so no folded entry needs to be kept."""
    return False
