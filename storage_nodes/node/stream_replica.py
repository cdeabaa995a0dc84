"""A replica of a stream partition: appends, reads by offset. Drives the stream machine."""

from __future__ import annotations

import msgspec

from storage_nodes.limits import ACQUIRE_WAIT_MS_MAX, READ_BYTES_MAX
from storage_nodes.log.node_log import FlushFacts, PartitionLog
from storage_nodes.log.record_batch import BatchHeader, iterate_bodies, read_header
from storage_nodes.machines.stream.machine import Answer, Effect, Propose, ReadNow, StreamMachine
from storage_nodes.node.appends import Appends
from storage_nodes.node.connections import Token
from storage_nodes.node.replica import Host, PartitionMeta, Replica
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    ConfigureRequest,
    Empty,
    StreamReadReply,
    StreamReadRequest,
    encode_message,
)

_read_request = msgspec.msgpack.Decoder(StreamReadRequest)
_configure_request = msgspec.msgpack.Decoder(ConfigureRequest)


class StreamReplica(Replica):
    """Stream semantics on one partition."""

    def __init__(self, host: Host, log: PartitionLog, meta: PartitionMeta) -> None:
        self.machine = StreamMachine(meta.config.retention_ms)
        self._appends = Appends()
        # How much each waiting reader wants: token -> bytes.
        self._wanted_bytes: dict[Token, int] = {}
        super().__init__(host, log, meta)

    # --- requests ---------------------------------------------------------------------------------------------

    def append(self, token: Token, payload: bytes) -> None:
        self.require_leader()
        self._appends.take(token, payload)
        self.propose_soon()

    def read(self, token: Token, payload: bytes) -> None:
        request = _read_request.decode(payload)
        self.require_leader()
        if not 0 <= request.wait_ms <= ACQUIRE_WAIT_MS_MAX or request.bytes_max < 1:
            raise StorageError(ErrorCode.INVALID_REQUEST, f"wait_ms must be 0 to {ACQUIRE_WAIT_MS_MAX}, bytes_max 1 up")
        now_ms = self.host.clock.wall_ms()
        self._wanted_bytes[token] = min(request.bytes_max, READ_BYTES_MAX)
        token.connection.parked[token.request_id] = (self.partition, token.opcode)
        self._do(self.machine.read(token, request.offset, now_ms + request.wait_ms, now_ms))
        self.schedule()

    def configure(self, token: Token, payload: bytes) -> None:
        request = _configure_request.decode(payload)
        self.require_leader()
        self._do(self.machine.configure(token, request.config.retention_ms))

    def cancel(self, token: Token) -> None:
        """The caller gave up a parked read, or its connection is gone."""
        self._do(self.machine.cancel(token))

    # --- Replica ----------------------------------------------------------------------------------------------

    def restore(self, checkpoint: bytes) -> None:
        self.machine.restore(checkpoint)

    def propose(self) -> None:
        now_ms = self.host.clock.wall_ms()
        self._appends.propose(self, now_ms)
        commands = self.machine.take_commands(now_ms)
        if commands:
            self.append_own(commands, now_ms, control=True)

    def fold(self, header: BatchHeader, batch: bytes) -> None:
        self._do(self.machine.apply(header, lambda: iterate_bodies(batch), self.host.clock.wall_ms()))

    def progressed(self) -> None:
        self._appends.progressed(self.log.durable_end, min(self.raft.commit, self.applied), self.raft.replicated)

    def on_lead(self) -> None:
        self._do(self.machine.lead(self.host.clock.wall_ms()))

    def on_follow(self) -> None:
        self._appends.fail(self.raft.leader)
        self._do(self.machine.follow())

    def on_tick(self) -> None:
        self._do(self.machine.tick(self.host.clock.wall_ms()))

    def machine_tick_mono_ms(self) -> int:
        due_ms = self.machine.next_tick_ms()
        return self.host.clock.wall_to_mono(due_ms) if due_ms else 0

    def flush_facts(self) -> FlushFacts:
        return FlushFacts(
            self.raft.commit, self.machine.checkpoint(), self.applied, self.disposable_end(), self.machine.is_live
        )

    # --- the machine's effects --------------------------------------------------------------------------------

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Propose):
                self.propose_soon()
                continue
            token: Token = effect.token  # type: ignore[assignment]
            if isinstance(effect, ReadNow):
                self._read_now(token, effect.offset)
            elif isinstance(effect, Answer):
                token.connection.answer(token, encode_message(Empty()))
            else:
                self._wanted_bytes.pop(token, None)
                token.connection.refuse(token, StorageError(effect.code, effect.text))

    def _read_now(self, token: Token, offset: int) -> None:
        bytes_max = self._wanted_bytes.pop(token)
        batches = self.log.read_hot(offset, bytes_max)
        if batches is not None:
            self._hand_over(token, offset, batches)
            return
        self.host.run_cold(
            lambda: self.log.read_cold(offset, bytes_max), lambda cold: self._hand_over(token, offset, cold)
        )

    def _hand_over(self, token: Token, offset: int, batches: list[bytes]) -> None:
        """Only data batches, only below what is folded (R9)."""
        if not self.serving:
            token.connection.refuse(token, StorageError(ErrorCode.NOT_LEADER, "leadership was lost", self.raft.leader))
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
