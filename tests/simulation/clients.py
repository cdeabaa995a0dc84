"""What all clients have in common: sessions with nodes over the real wire protocol, operations and their outcomes.

What a node answers is shown to the referee when it leaves the node: whether it is lost on the way changes nothing about
what was promised.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from storage_nodes.protocol.errors import TRAITS, ErrorCode
from storage_nodes.protocol.frames import FLAG_ERROR, Frame, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import (
    AcquireReply,
    CodesReply,
    Empty,
    ErrorReply,
    GroupCommitReply,
    GroupCommittedReply,
    GroupDeleteReply,
    GroupMembership,
    Hello,
    Opcode,
    PartitionInfo,
    RetireReply,
    SendReply,
    StreamReadReply,
    encode_message,
)
from tests.simulation.transport import SimTransport

if TYPE_CHECKING:
    from tests.simulation.world import World

RETRY_US = 100_000
_REPLIES: dict[int, type[Any]] = {
    Opcode.SEND: SendReply,
    Opcode.ACQUIRE: AcquireReply,
    Opcode.DELETE: CodesReply,
    Opcode.CHANGE_VISIBILITY: CodesReply,
    Opcode.CONFIGURE: Empty,
    Opcode.UNPARK: CodesReply,
    Opcode.RESCHEDULE: CodesReply,
    Opcode.CREATE_PARTITION: PartitionInfo,
    Opcode.DELETE_PARTITION: Empty,
    Opcode.RETIRE: RetireReply,
    Opcode.MOVE_REPLICA: PartitionInfo,
    Opcode.CANCEL_MOVE: PartitionInfo,
    Opcode.SET_NODE_STATE: Empty,
    Opcode.STREAM_APPEND: SendReply,
    Opcode.STREAM_READ: StreamReadReply,
    Opcode.GROUP_JOIN: GroupMembership,
    Opcode.GROUP_HEARTBEAT: GroupMembership,
    Opcode.GROUP_LEAVE: Empty,
    Opcode.GROUP_READ: StreamReadReply,
    Opcode.GROUP_COMMIT: GroupCommitReply,
    Opcode.GROUP_COMMITTED: GroupCommittedReply,
    Opcode.GROUP_DELETE: GroupDeleteReply,
}


class Operation:
    """One request. `outcome` ends as ok, fail or unknown."""

    __slots__ = ("applied", "arrived_us", "done", "lead_ms", "node_id", "opcode", "outcome", "reply", "request")

    def __init__(self, opcode: int, node_id: int, request: Any, done: Callable[[Operation], None]) -> None:
        self.opcode = opcode
        self.node_id = node_id
        self.request = request
        self.done = done
        self.outcome = ""
        self.reply: Any = None
        self.applied = -1  # of the replica when the request arrived
        self.arrived_us = -1
        self.lead_ms = 0  # of the leader there, when it arrived

    def end(self, outcome: str, reply: Any = None) -> None:
        if not self.outcome:
            self.outcome, self.reply = outcome, reply
            self.done(self)


def read_reply(frame: Frame) -> Any:
    if frame.flags & FLAG_ERROR:
        return msgspec.msgpack.decode(frame.payload, type=ErrorReply)
    kind = _REPLIES.get(frame.opcode)
    return msgspec.msgpack.decode(frame.payload, type=kind) if kind is not None else None


class Session:
    """A connection of a client to one node."""

    def __init__(self, client: Client, node_id: int) -> None:
        self._client = client
        self._node_id = node_id
        self._transport: SimTransport | None = None
        self._decoder = FrameDecoder()
        self._waiting: list[bytes] = []
        self._greeted = False
        self._is_over = False
        self.operations: dict[int, Operation] = {}
        client.world.network.dial(client, node_id, lambda: self, self._dialled)

    def ask(self, number: int, operation: Operation) -> None:
        self.operations[number] = operation
        frame = encode_frame(operation.opcode, 0, number, encode_message(operation.request))
        if self._greeted and self._transport is not None:
            self._transport.write(frame)
        else:
            self._waiting.append(frame)

    def _dialled(self, error: Exception | None) -> bool:
        if error is not None:
            self.connection_lost(None)
        return not self._is_over

    def connection_made(self, transport: SimTransport) -> None:
        self._transport = transport
        self._watch(transport.peer)
        if self._client.reads_slowly:
            self._pause_reading()
        transport.write(encode_frame(Opcode.HELLO, 0, 0, encode_message(Hello("sim", "client"))))

    def _pause_reading(self) -> None:
        """What the node answers piles up there, now and then."""
        client, transport = self._client, self._transport
        if transport is None or transport.closed or client.world.draining:
            return
        transport.pause_reading()
        client.later(client.slowness.randrange(10_000, 3_000_000), transport.resume_reading)
        client.later(client.slowness.randrange(3_000_000, 9_000_000), self._pause_reading)

    def pause_writing(self) -> None:
        """It writes on: a client of this kind knows no better."""

    def resume_writing(self) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if frame.opcode == Opcode.HELLO:
                self._greeted = True
                waiting, self._waiting = self._waiting, []
                for request in waiting:
                    assert self._transport is not None
                    self._transport.write(request)
                continue
            operation = self.operations.pop(frame.correlation_id, None)
            if operation is not None:
                self._end(operation, read_reply(frame))

    def connection_lost(self, _: object) -> None:
        self._is_over = True
        if self._client.sessions.get(self._node_id) is self:
            del self._client.sessions[self._node_id]
        operations, self.operations = self.operations, {}
        for operation in operations.values():
            operation.end("unknown" if self._greeted else "fail")

    def give_up(self) -> None:
        if self._transport is not None:
            self._transport.close()
        else:
            self.connection_lost(None)

    @staticmethod
    def _end(operation: Operation, reply: Any) -> None:
        if not isinstance(reply, ErrorReply):
            operation.end("ok", reply)
        else:
            operation.end("unknown" if TRAITS[ErrorCode(reply.code)].outcome_unknown else "fail", reply)

    def _watch(self, there: SimTransport) -> None:
        """Show the referee what arrives at the node and what leaves it."""
        world, process = self._client.world, there.own
        asked, decoder = FrameDecoder(), FrameDecoder()
        world.lease_referee.watch(there, self.operations)

        def arrives(data: bytes) -> None:
            for frame in asked.feed(data):
                operation = self.operations.get(frame.correlation_id)
                if operation is not None:
                    world.referee.arrived(process, operation)  # type: ignore[arg-type]

        def leaves(data: bytes) -> None:
            for frame in decoder.feed(data):
                operation = self.operations.get(frame.correlation_id)
                if operation is not None and frame.opcode != Opcode.HELLO:
                    world.referee.answered(process, operation, read_reply(frame))  # type: ignore[arg-type]

        there.on_arrival, there.on_write = arrives, leaves


class Client:
    """Sends requests to nodes, follows hints about the leader, gives up after a while."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.process_id = 100 + number
        self.is_up = True
        self.random = random.Random(f"{world.seed}-client-{number}")
        self.sessions: dict[int, Session] = {}
        self.node_id = self.random.choice(world.node_ids)
        self._number = 0
        self.slowness = random.Random(f"{world.seed}-slowness-{number}")
        self.reads_slowly = number > 0 and self.slowness.random() < world.faults.slow_readers

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        callback(*args)

    def ask(self, opcode: int, request: Any, timeout_us: int, done: Callable[[Operation], None]) -> None:
        session = self.sessions.get(self.node_id)
        if session is None:
            session = self.sessions[self.node_id] = Session(self, self.node_id)
        self._number += 1
        operation = Operation(opcode, self.node_id, request, done)
        self.world.scheduler.after(timeout_us, self._timed_out, session, operation)
        session.ask(self._number, operation)

    def elsewhere(self, reply: Any) -> None:
        """Where to ask next."""
        hint = reply.leader if isinstance(reply, ErrorReply) else 0
        self.node_id = hint or self.random.choice(self.world.node_ids)

    def later(self, delay_us: int, call: Callable[[], None]) -> None:
        self.world.scheduler.after(delay_us, call)

    def at_leisure(self, delay_us: int, call: Callable[[], None]) -> None:
        """The pause of a client that has nothing to wait for."""
        self.later(delay_us * self.world.faults.leisure, call)

    @staticmethod
    def _timed_out(session: Session, operation: Operation) -> None:
        if not operation.outcome:
            session.give_up()
            operation.end("unknown")
