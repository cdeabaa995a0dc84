"""Clients: senders that retry, receivers that delete, are slow, or forget. They speak the real wire protocol.

Every attempt of a send has bodies of its own, so that each ends as exactly one of ok, fail, unknown, and a failed one
must never have had an effect. What a node answers is shown to the referee when it leaves the node: whether it is lost
on the way changes nothing about what was promised.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from storage_nodes.model import Acks, PartitionKind
from storage_nodes.protocol.errors import TRAITS, ErrorCode
from storage_nodes.protocol.frames import FLAG_ERROR, Frame, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import (
    AcquireReply,
    AcquireRequest,
    ChangeVisibilityRequest,
    CodesReply,
    CreatePartitionRequest,
    DeleteRequest,
    ErrorReply,
    Hello,
    Opcode,
    PartitionInfo,
    PurgeRequest,
    SendReply,
    SendRequest,
    encode_message,
)
from storage_nodes.protocol.records import HEADER_DELAY_MS, encode_body
from tests.simulation.network import SimTransport

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

RETRY_US = 100_000
# By how much the clock of a node may run ahead over a lease.
LEASE_SLACK_US = 20_000
_REPLIES: dict[int, type[Any]] = {
    Opcode.SEND: SendReply,
    Opcode.ACQUIRE: AcquireReply,
    Opcode.DELETE: CodesReply,
    Opcode.CHANGE_VISIBILITY: CodesReply,
    Opcode.CREATE_PARTITION: PartitionInfo,
}


class Operation:
    """One request. `outcome` ends as ok, fail or unknown."""

    __slots__ = ("applied", "arrived_us", "done", "node_id", "opcode", "outcome", "reply", "request")

    def __init__(self, opcode: int, node_id: int, request: Any, done: Callable[[Operation], None]) -> None:
        self.opcode = opcode
        self.node_id = node_id
        self.request = request
        self.done = done
        self.outcome = ""
        self.reply: Any = None
        self.applied = -1  # of the replica when the request arrived
        self.arrived_us = -1

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
        transport.write(encode_frame(Opcode.HELLO, 0, 0, encode_message(Hello("sim", "client"))))

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
        decoder = FrameDecoder()

        def arrives(data: bytes) -> None:
            operation = self.operations.get(int.from_bytes(data[4:8], "big"))
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


class Creator(Client):
    """Creates the queue, trying until it is there."""

    def start(self) -> None:
        request = CreatePartitionRequest(PartitionKind.QUEUE, "queue:sim:0")
        self.ask(Opcode.CREATE_PARTITION, request, 1_500_000, self._done)

    def _done(self, operation: Operation) -> None:
        if operation.outcome == "ok":
            self.world.queue_created(operation.reply)
        else:
            self.elsewhere(operation.reply)
            self.later(RETRY_US, self.start)


class Sender(Client):
    """Sends its messages one batch after the other, each until it is acknowledged."""

    def __init__(self, world: World, number: int, partition: int) -> None:
        super().__init__(world, number)
        self._partition = partition
        self._message = 0
        self._attempt = 0
        self.is_idle = False
        self.acked = 0
        self._pause_us = self.random.choice([1_000, 20_000, 200_000])
        self._weak = self.random.random() < 0.15
        self._size = self.random.choice([10, 60, 300])
        self._delayed = self.random.random() < 0.3

    def next_message(self) -> None:
        if self.world.draining:
            self.is_idle = True
            return
        self._message += 1
        self._attempt = 0
        self._count = self.random.choice([1, 1, 2, 7])
        self.send()

    def send(self) -> None:
        self._attempt += 1
        acks = self.random.choice([Acks.LEADER, Acks.NONE]) if self._weak else Acks.QUORUM
        if not self._weak and self.random.random() < 0.05 and not self.world.draining:
            acks = Acks.ALL
        delayed = self._delayed and self.random.random() < 0.3
        headers = [(HEADER_DELAY_MS, b"%d" % self.random.choice([1, 200, 1_500]))] if delayed else []
        filler = b"x" * self.random.randrange(self._size)
        bodies = [
            encode_body(
                b"%d/%d/%d/%d|%b" % (self.process_id, self._message, index, self._attempt, filler), None, headers
            )
            for index in range(self._count)
        ]
        request = SendRequest(self._partition, bodies, not delayed, acks)
        self.world.referee.sends(request)
        self.ask(Opcode.SEND, request, self.random.choice([1_000_000, 3_000_000]), self._sent)

    def _sent(self, operation: Operation) -> None:
        self.world.referee.send_ended(operation)
        if operation.outcome == "ok":
            self.acked += self._count
            self.at_leisure(self.random.randrange(self._pause_us), self.next_message)
        else:
            self.elsewhere(operation.reply)
            self.later(RETRY_US, self.send)


class Receiver(Client):
    """Leases messages and mostly deletes them."""

    def __init__(self, world: World, number: int, partition: int) -> None:
        super().__init__(world, number)
        self._partition = partition
        self._visibility_ms = self.random.choice([100, 500, 1_500, 5_000])
        self._slow_ms = self.random.choice([1, 50, 2_000])
        self._forgets = self.random.choice([0.0, 0.1, 0.5])
        self._changes = self.random.choice([0.0, 0.2])
        self._purges = self.random.random() < 0.1

    def receive(self) -> None:
        if self._purges and not self.world.draining and self.random.random() < 0.02:
            self.ask(Opcode.PURGE, PurgeRequest(self._partition), 2_000_000, lambda _: None)
        wait_ms = self.random.choice([0, 0, 300, 3_000])
        count = self.random.choice([1, 3, 10, 40])
        request = AcquireRequest(self._partition, count, self._visibility_ms, wait_ms)
        self.ask(Opcode.ACQUIRE, request, (wait_ms + 1_500) * 1_000, self._received)

    def _received(self, operation: Operation) -> None:
        if operation.outcome != "ok":
            self.elsewhere(operation.reply)
            self.later(RETRY_US, self.receive)
            return
        receipts = [(message.offset, message.delivery) for message in operation.reply.messages]
        draining = self.world.draining
        if receipts and (draining or self.random.random() >= self._forgets):
            if not draining and self.random.random() < self._changes:
                self._change(receipts)
            delay_us = 1_000 if draining else self.random.randrange(self._slow_ms * 1_000)
            self.later(delay_us, lambda: self._delete(receipts))
        self.at_leisure(self.random.randrange(1_000, 60_000), self.receive)

    def _change(self, receipts: list[tuple[int, int]]) -> None:
        visibility_ms = self.random.choice([0, 300, 3_000])
        changes = [(offset, delivery, visibility_ms) for offset, delivery in receipts]
        request = ChangeVisibilityRequest(self._partition, changes)
        self.world.referee.changes(request)
        self.ask(Opcode.CHANGE_VISIBILITY, request, 2_000_000, lambda _: None)

    def _delete(self, receipts: list[tuple[int, int]]) -> None:
        def deleted(operation: Operation) -> None:
            if operation.outcome != "ok":
                self.elsewhere(operation.reply)
                if self.random.random() < 0.7:
                    self.later(RETRY_US, lambda: self._delete(receipts))

        self.ask(Opcode.DELETE, DeleteRequest(self._partition, receipts), 2_000_000, deleted)


class Referee:
    """What clients were promised, checked against what is committed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.attempts: dict[bytes, str] = {}  # body -> pending, ok, fail, unknown
        self.promised: dict[int, bytes] = {}  # offset -> body, acknowledged with quorum
        self.deleted_us: dict[int, int] = {}  # offset -> when its effective delete was acknowledged
        self.delivered = 0
        # (node, epoch, offset) -> when it ends at the earliest, delivery
        self._leases: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._changed: set[int] = set()

    # --- sends --------------------------------------------------------------------------------------------------

    def sends(self, request: SendRequest) -> None:
        for body in request.bodies:
            self.attempts[body] = "pending"

    def send_ended(self, operation: Operation) -> None:
        for body in operation.request.bodies:
            self.attempts[body] = operation.outcome

    def changes(self, request: ChangeVisibilityRequest) -> None:
        self._changed.update(offset for offset, _, _ in request.changes)

    # --- at the node ----------------------------------------------------------------------------------------------

    def arrived(self, process: SimProcess, operation: Operation) -> None:
        operation.arrived_us = self._world.scheduler.now_us
        node = process.node
        replica = node.replicas.get(self._world.partition) if node is not None else None
        operation.applied = replica.applied if replica is not None else -1

    def answered(self, process: SimProcess, operation: Operation, reply: Any) -> None:
        oracle = self._world.oracle
        if isinstance(reply, ErrorReply):
            if reply.code == ErrorCode.INTERNAL:
                oracle.fail("NODE BUG", f"node {process.process_id} answered INTERNAL: {reply.message}")
            return
        oracle.turned(process)  # what the answer rests on may be as young as the answer
        if operation.opcode == Opcode.SEND:
            if operation.request.acks >= Acks.QUORUM:
                oracle.check_not_stale(process, self._world.partition)
                self.check_send_committed(operation.request, reply)
        elif operation.opcode == Opcode.ACQUIRE:
            oracle.check_not_stale(process, self._world.partition)
            for message in reply.messages:
                self.check_delivery(operation, reply.epoch, message)
                self.check_lease(process.process_id, operation, reply.epoch, message)
        elif operation.opcode == Opcode.DELETE:
            self.check_delete_committed(process, operation.request, reply)

    def check_send_committed(self, request: SendRequest, reply: SendReply) -> None:
        """I2: an acknowledged message is committed at the offset that was told."""
        bodies = self._book().bodies
        for offset, body in enumerate(request.bodies, reply.first_offset):
            if bodies.get(offset) != body:
                self._world.oracle.fail("I2 acked is committed", f"offset {offset} was acknowledged, it is not there")
            self.promised[offset] = body

    def check_delivery(self, operation: Operation, epoch: int, message: Any) -> None:
        """I7, I2: only what is committed, as it was sent, and not deleted."""
        fail, book, offset = self._world.oracle.fail, self._book(), message.offset
        if offset not in book.bodies:
            fail("I7 read below the high watermark", f"offset {offset} was delivered, it is not committed")
        if book.bodies[offset] != message.body or message.body not in self.attempts:
            fail("I7 bytes as sent", f"offset {offset} was delivered with other bytes")
        gone = book.gone.get(offset)
        if gone is not None:
            told = self.deleted_us.get(offset, operation.arrived_us)
            if operation.applied >= gone.end or (epoch >= gone.epoch and told < operation.arrived_us):
                fail("I2 deleted stays deleted", f"offset {offset} was delivered in epoch {epoch}, removed by {gone}")
        self.delivered += 1

    def check_lease(self, node_id: int, operation: Operation, epoch: int, message: Any) -> None:
        """LEASE: one leader does not hand out a message again while its lease holds.

        An answer that waited for the disk may come after the next delivery of its message: its number is lower.
        """
        key = (node_id, epoch, message.offset)
        now_us = self._world.scheduler.now_us
        until_us, delivery = self._leases.get(key, (0, 0))
        if message.delivery < delivery:
            return
        if now_us < until_us - LEASE_SLACK_US and message.offset not in self._changed:
            self._world.oracle.fail("LEASE", f"offset {message.offset}, {(until_us - now_us) // 1000} ms too early")
        self._leases[key] = operation.arrived_us + operation.request.visibility_ms * 1_000, message.delivery

    def check_delete_committed(self, process: SimProcess, request: DeleteRequest, reply: CodesReply) -> None:
        """I2: an acknowledged delete with a receipt that was current is in the committed log."""
        book = self._book()
        replica = process.node.replicas.get(request.partition) if process.node is not None else None
        folded = replica.applied if replica is not None else 0
        for (offset, delivery), code in zip(request.receipts, reply.codes, strict=True):
            if code != ErrorCode.OK:
                continue
            if offset in book.gone:
                # An old receipt is answered too; what removed the message may be committed and not folded here yet.
                if book.gone[offset].end > folded:
                    continue
                self.deleted_us.setdefault(offset, self._world.scheduler.now_us)
            elif delivery >= book.delivery.get(offset, 0):
                self._world.oracle.fail("I2 delete is committed", f"offset {offset}, delivery {delivery}")

    # --- at the end -------------------------------------------------------------------------------------------------

    def check_outcomes(self) -> None:
        """I15, I7: no failed attempt had an effect, nothing is in the log that nobody sent."""
        for body in self._world.oracle.sent_bodies(self._world.partition):
            outcome = self.attempts.get(body)
            if outcome in (None, "fail"):
                self._world.oracle.fail("I15 fail has no effect", f"{body[:40]!r} ended as {outcome}, it is committed")

    def check_promises(self) -> None:
        """I2: every acknowledged message is still at its offset."""
        bodies = self._book().bodies
        for offset, body in self.promised.items():
            if bodies.get(offset) != body:
                self._world.oracle.fail("I2 acked is kept", f"offset {offset}")

    def _book(self) -> Any:
        return self._world.book()
