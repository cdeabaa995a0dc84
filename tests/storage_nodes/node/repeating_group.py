"""A partition of three replicas: real machines that fold a log, and the appends of its leader.

The tests decide which attempts arrive when, what of a leader's log is kept when another takes over, and which replica
starts over from a checkpoint.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import msgspec

from storage_nodes.limits import BATCH_BYTES_MAX, WAL_GROUP_BYTES_MAX
from storage_nodes.log.record_batch import (
    CONTROL_EPOCH_START,
    NO_PRODUCER,
    BatchHeader,
    Producer,
    build_batch,
    control_key,
    iterate_bodies,
    read_header,
    records_to_fold,
)
from storage_nodes.machines.queue.effects import Duplicated
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.model import Acks
from storage_nodes.node.memory.memory_budget import MemoryBudget
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.replicas.appends import Appends
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import Opcode, QueueConfig, SendReply, SendRequest, encode_message
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DUE, HEADER_GROUP, decode_body, encode_body

NOW_MS = 1_700_000_000_000
REPLICAS = 3


class _Caller(SimpleNamespace):
    """A connection: one of its kind."""

    __hash__ = object.__hash__


class Group:
    def __init__(self, kind: str, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        self.kind = kind
        self.batch_bytes_max = batch_bytes_max
        self.now_ms = NOW_MS
        self.log: list[tuple[BatchHeader, bytes]] = []
        self.committed = 0  # entries
        self.replicated = 2**62  # no voter is further behind than the commit, unless a test says so
        self.machines: list[Any] = [self._machine() for _ in range(REPLICAS)]
        self.folded = [0] * REPLICAS
        self.checkpoints: list[tuple[int, bytes]] = []
        self.leader = -1
        self.appends = Appends(NodeRoom(MemoryBudget(), lambda: 0.0, lambda: None))
        self.answers: dict[int, SendReply | StorageError] = {}  # by number of the attempt
        self.connection: Any = _Caller(answer=self._answered, refuse=self._refused, parked={})
        self.log_facts = SimpleNamespace(log_end=0)
        self.replica: Any = SimpleNamespace(
            log=self.log_facts,
            append_own=self._append,
            propose_soon=lambda: None,
            host=SimpleNamespace(committer=SimpleNamespace(share_bytes=WAL_GROUP_BYTES_MAX)),
        )
        self.elect(0)

    def _machine(self) -> Any:
        return StreamMachine() if self.kind == "stream" else QueueMachine(QueueConfig(fifo=self.kind == "fifo"))

    def body(self, value: bytes, dedup_id: bytes = b"") -> bytes:
        headers = []
        if self.kind == "fifo":
            headers.append((HEADER_GROUP, b"g" + value[-1:]))
        if dedup_id:
            headers.append((HEADER_DEDUP, dedup_id))
        if self.kind == "scheduled":
            headers.append((HEADER_DUE, b"%d" % (NOW_MS * 2)))
        return encode_body(value, None, headers)

    # --- the leader -------------------------------------------------------------------------------------------

    def send(self, number: int, request: SendRequest) -> None:
        machine = self.machines[self.leader]
        producers = machine.producers if self.kind == "stream" else machine.state.producers
        token = Token(self.connection, number, Opcode.SEND)
        try:
            if self.appends.take(token, encode_message(request), producers, lambda _: self.batch_bytes_max):
                self._progressed()
        except StorageError as error:
            self.answers[number] = error

    def propose(self) -> None:
        self.appends.propose(self.replica, self.now_ms)

    def commit(self, entries: int) -> None:
        self.committed = min(self.committed + entries, len(self.log))
        self._fold(self.leader)
        self._progressed()

    def elect(self, leader: int, kept: int = 0) -> None:
        """Another replica leads: so many uncommitted entries of the former leader are kept, the rest is lost."""
        if self.leader >= 0:
            self.appends.fail(leader)
            self.machines[self.leader].follow()
        self.appends = Appends(NodeRoom(MemoryBudget(), lambda: 0.0, lambda: None))
        del self.log[self.committed + kept :]
        self.log_facts.log_end = self.log[-1][0].end_offset if self.log else 0
        self._append([encode_body(b"", control_key(CONTROL_EPOCH_START))], self.now_ms, control=True)
        self.leader = leader
        self.committed = len(self.log)
        self._fold(leader)
        self.machines[leader].lead(self.now_ms)

    def restart(self, replica: int, chance: random.Random) -> None:
        if replica == self.leader or not self.checkpoints:
            return
        self.folded[replica], blob = chance.choice(self.checkpoints)
        self.machines[replica] = self._machine()
        self.machines[replica].restore(blob)

    def checkpoint(self, replica: int) -> None:
        self.checkpoints.append((self.folded[replica], self.machines[replica].checkpoint()))

    def _append(
        self,
        bodies: list[bytes],
        timestamp_ms: int,
        *,
        plain: bool = False,
        control: bool = False,
        producer: Producer = NO_PRODUCER,
        usage: int = -1,
    ) -> int:
        base = self.log_facts.log_end
        batch = build_batch(base, 1, timestamp_ms, bodies, plain=plain, control=control, producer=producer)
        self.log.append((read_header(batch), batch))
        self.log_facts.log_end = base + len(bodies)
        return int(self.log_facts.log_end)

    def _fold(self, replica: int) -> None:
        machine = self.machines[replica]
        for header, batch in self.log[self.folded[replica] : self.committed]:
            read = iterate_bodies if self.kind == "stream" else records_to_fold
            for effect in machine.apply(header, lambda batch=batch, read=read: read(batch), self.now_ms):
                if type(effect) is Duplicated and replica == self.leader:
                    self.appends.duplicated(effect.pairs)
        self.folded[replica] = self.committed

    def _progressed(self) -> None:
        folded = self.log[self.committed - 1][0].end_offset
        self.appends.progressed(self.log_facts.log_end, folded, min(folded, self.replicated))

    def _answered(self, token: Token, payload: bytes) -> None:
        assert token.request_id not in self.answers, "answered twice"
        self.answers[token.request_id] = msgspec.msgpack.decode(payload, type=SendReply)

    def _refused(self, token: Token, error: StorageError) -> None:
        assert token.request_id not in self.answers, "answered twice"
        self.answers[token.request_id] = error

    # --- what stands there ------------------------------------------------------------------------------------

    def values(self) -> dict[int, bytes]:
        """Of the committed messages, by offset."""
        return {
            offset: bytes(decode_body(body).value)
            for header, batch in self.log[: self.committed]
            if not header.is_control
            for offset, body in iterate_bodies(batch)
        }

    def level(self) -> None:
        for replica in range(REPLICAS):
            self._fold(replica)


def request(sequence: int, count: int = 1, producer: int = 1, epoch: int = 0, acks: Acks = Acks.QUORUM) -> SendRequest:
    bodies = [encode_body(b"%d" % (sequence + at) + b"-" * 50) for at in range(count)]
    return SendRequest(1, bodies, True, acks, producer, epoch, sequence)
