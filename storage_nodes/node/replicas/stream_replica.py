"""A replica of a stream partition: appends, reads by offset, consumer groups. Drives the stream machine."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import msgspec
import structlog
from prometheus_client import Counter

from storage_nodes.limits import ACQUIRE_WAIT_MS_MAX, READ_BYTES_MAX
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import BatchHeader, iterate_bodies, read_header
from storage_nodes.machines.driver_contract import Propose, Refuse
from storage_nodes.machines.stream.checkpoint import StreamState, read_checkpoint
from storage_nodes.machines.stream.effects import Evict, Fence, ReadNow, StreamAnswer
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.node.replicas.appends import Appends
from storage_nodes.node.replicas.host import Host
from storage_nodes.node.replicas.leased import no_lease
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.partition_replica import PartitionReplica
from storage_nodes.node.replicas.replica import Performers
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    ConfigureRequest,
    GroupCommitRequest,
    GroupCommittedRequest,
    GroupDeleteRequest,
    GroupFenceRequest,
    GroupHeartbeatRequest,
    GroupJoinRequest,
    GroupLeaveRequest,
    GroupReadRequest,
    Opcode,
    StreamReadReply,
    StreamReadRequest,
    encode_message,
)

GROUP_REQUESTS_FENCED = Counter(
    "penstock_node_group_requests_fenced", "Requests of consumer group members whose session or grant holds no more"
)

_read_request = msgspec.msgpack.Decoder(StreamReadRequest)
_configure_request = msgspec.msgpack.Decoder(ConfigureRequest)
_group_read_request = msgspec.msgpack.Decoder(GroupReadRequest)
_GROUP_REQUESTS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    Opcode.GROUP_JOIN: msgspec.msgpack.Decoder(GroupJoinRequest),
    Opcode.GROUP_HEARTBEAT: msgspec.msgpack.Decoder(GroupHeartbeatRequest),
    Opcode.GROUP_LEAVE: msgspec.msgpack.Decoder(GroupLeaveRequest),
    Opcode.GROUP_FENCE: msgspec.msgpack.Decoder(GroupFenceRequest),
    Opcode.GROUP_COMMIT: msgspec.msgpack.Decoder(GroupCommitRequest),
    Opcode.GROUP_COMMITTED: msgspec.msgpack.Decoder(GroupCommittedRequest),
    Opcode.GROUP_DELETE: msgspec.msgpack.Decoder(GroupDeleteRequest),
}
Grant = tuple[bytes, int, int]  # group, generation, epoch

_log = structlog.get_logger()


class StreamReplica(PartitionReplica):
    """Stream semantics on one partition."""

    __slots__ = ("_grants", "_wanted_bytes")
    machine: StreamMachine

    def __init__(self, host: Host, log: PartitionLog, meta: PartitionMeta) -> None:
        # How much each waiting reader wants: token -> bytes.
        self._wanted_bytes: dict[Token, int] = {}
        # By what grant a reader of a consumer group reads; made with the first one.
        self._grants: dict[Token, Grant] | None = None
        super().__init__(host, log, meta, StreamMachine(meta.config.retention_ms))

    # --- requests ---------------------------------------------------------------------------------------------

    def append(self, token: Token, payload: bytes) -> None:
        self.require_leader()
        if self._appends is None:
            self._appends = Appends(self.host.room, self.used_since_ms)
        if self._appends.take(token, payload, self.machine.producers):
            self.progressed()
        self.propose_soon()

    def read(self, token: Token, payload: bytes) -> None:
        self.require_lease()
        self._read(token, _read_request.decode(payload))

    def group_read(self, token: Token, payload: bytes) -> None:
        """A read that is answered only while its grant holds."""
        self.require_lease()
        request = _group_read_request.decode(payload)
        grant = (request.group, request.generation, request.epoch)
        self._require_grant(grant)
        if self._grants is None:
            self._grants = {}
        self._grants[token] = grant
        try:
            self._read(token, request)
        except StorageError:
            del self._grants[token]
            raise

    def group_request(self, token: Token, payload: bytes) -> None:
        self.require_lease()
        request = _GROUP_REQUESTS[token.opcode].decode(payload)
        self._do(self.machine.group_request(token, request, self.now_ms()))
        self.schedule()

    def _require_grant(self, grant: Grant) -> None:
        """Raises FENCED or GRANT_UNKNOWN."""
        code = self.machine.group_right(*grant)
        if code is not ErrorCode.OK:
            GROUP_REQUESTS_FENCED.inc(code is ErrorCode.FENCED)
            raise StorageError(code, "the partition is not, or no more, given out so")

    def _read(self, token: Token, request: StreamReadRequest | GroupReadRequest) -> None:
        if not 0 <= request.wait_ms <= ACQUIRE_WAIT_MS_MAX or request.bytes_max < 1:
            raise StorageError(ErrorCode.INVALID_REQUEST, f"wait_ms must be 0 to {ACQUIRE_WAIT_MS_MAX}, bytes_max 1 up")
        now_ms = self.now_ms()
        self._wanted_bytes[token] = min(request.bytes_max, READ_BYTES_MAX)
        token.connection.parked[token.request_id] = (self.partition, token.opcode)
        self._do(self.machine.read(token, request.offset, now_ms + request.wait_ms, now_ms))
        self.schedule()

    def configure(self, token: Token, payload: bytes) -> None:
        request = _configure_request.decode(payload)
        self.require_lease()
        self._do(self.machine.configure(token, request.config.retention_ms))

    # --- Replica ----------------------------------------------------------------------------------------------

    def fold(self, header: BatchHeader, batch: bytes) -> None:
        self._do(self.machine.apply(header, lambda: iterate_bodies(batch), self.now_ms()))

    @staticmethod
    def read_state(checkpoint: bytes) -> StreamState:
        return read_checkpoint(checkpoint)

    # --- the machine's effects --------------------------------------------------------------------------------

    def _proposal_wanted(self, _effect: Propose) -> None:
        self.propose_soon()

    def _answer(self, effect: StreamAnswer) -> None:
        token: Token = effect.token
        token.connection.answer(token, encode_message(effect.reply))

    def _refuse(self, effect: Refuse) -> None:
        token: Token = effect.token
        self._wanted_bytes.pop(token, None)
        if self._grants:
            self._grants.pop(token, None)
        GROUP_REQUESTS_FENCED.inc(effect.code is ErrorCode.FENCED)
        token.connection.refuse(token, StorageError(effect.code, effect.text))

    def _fence(self, asked: Fence) -> None:
        """Tell the partition's leader who may read and commit there from now on."""

        def done(error: StorageError | None) -> None:
            code = error.code if error is not None else ErrorCode.OK
            if error is not None:
                _log.info("a partition is not fenced yet", partition=asked.partition, error=str(error))
            fenced(code)

        def end(code: ErrorCode) -> None:
            self._do(self.machine.fenced(asked, code, self.now_ms()))
            self.schedule()

        fenced = self.leader_context().then(end)
        self.host.other_partitions.fence(asked.partition, asked.group, asked.generation, asked.epoch, done)

    def _evict(self, effect: Evict) -> None:
        """Refuse reads that wait with a grant that holds no more."""
        grants = self._grants
        if not grants:
            return
        mine = [(token, grant) for token, grant in grants.items() if grant[0] == effect.group]
        late = [token for token, grant in mine if self.machine.group_right(*grant) is not ErrorCode.OK]
        for token in late:
            if self.machine.cancel(token):
                del self._wanted_bytes[token]
                del grants[token]
                GROUP_REQUESTS_FENCED.inc()
                token.connection.refuse(token, StorageError(ErrorCode.FENCED, "the partition has another owner"))

    def _read_now(self, effect: ReadNow) -> None:
        token: Token = effect.token
        offset = effect.offset
        bytes_max = self._wanted_bytes.pop(token)
        batches = self.log.read_hot(offset, bytes_max)
        if batches is not None:
            self._hand_over(token, offset, batches)
            return
        context = self.leader_context()

        def lost() -> None:
            if self._grants:
                self._grants.pop(token, None)
            context.refuse(token)

        found = partial(self._hand_over, token, offset)
        context.run_cold(lambda: self.log.read_cold(offset, bytes_max), found, lost)

    def _hand_over(self, token: Token, offset: int, batches: list[bytes]) -> None:
        """Only data batches, only below what is folded (R9)."""
        if self._grants and (grant := self._grants.pop(token, None)) is not None:
            try:
                self._require_grant(grant)
            except StorageError as fenced:
                token.connection.refuse(token, fenced)
                return
        if not self.holds_lease():
            token.connection.refuse(token, no_lease())
            return
        if token.connection.is_full:
            token.connection.refuse(token, self.host.room.refusal("too many answers wait to be read"))
            return
        readable = []
        next_offset = offset
        for batch in batches:
            header = read_header(batch)
            if header.end_offset > self.applied:
                break
            if not header.is_control:
                readable.append(batch)
            next_offset = header.end_offset
        reply = StreamReadReply(self.applied, self.machine.log_start, readable, next_offset)
        token.connection.answer(token, encode_message(reply))

    performers: ClassVar[Performers] = {
        ReadNow: _read_now,
        Propose: _proposal_wanted,
        StreamAnswer: _answer,
        Refuse: _refuse,
        Fence: _fence,
        Evict: _evict,
    }
