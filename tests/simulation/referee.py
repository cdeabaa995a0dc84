"""What clients were promised, checked against what is committed.

Everything is judged when it leaves the node, by the oracle's books, which know what no client and no node knows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from storage_nodes.limits import CLOCK_SLEW_PERMILLE
from storage_nodes.log.record_batch import read_header
from storage_nodes.model import CLUSTER_PARTITION, Acks
from storage_nodes.node.transport.inter_partition_client import USAGE_TAG
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import (
    AcquireReply,
    CodesReply,
    ConfigureRequest,
    DeleteRequest,
    ErrorReply,
    GroupReadRequest,
    Opcode,
    RescheduleRequest,
    SendReply,
    SendRequest,
    StreamReadReply,
    StreamReadRequest,
    VisibilityMode,
)
from storage_nodes.protocol.records import HEADER_TAG, decode_body
from tests.simulation.books import FifoBook, QueueBook, StreamBook, dead_source
from tests.simulation.group_referee import OPCODES as GROUP_OPCODES

if TYPE_CHECKING:
    from tests.simulation.clients import Operation
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

# By how much the clock of a node may run ahead over a lease, while its leader's time is not slewed.
LEASE_SLACK_US = 20_000


class Lease(NamedTuple):
    """Of the delivery that was answered last; it ends at `until_us` at the earliest, by a clock that is right."""

    since_us: int
    until_us: int
    delivery: int
    lead_ms: int  # leader time less the monotonic clock, when the request arrived
    attempt: bytes = b""


class Referee:
    def __init__(self, world: World) -> None:
        self._world = world
        self.attempts: dict[bytes, str] = {}  # body -> pending, ok, fail, unknown
        self.single: dict[bytes, str] = {}  # the same of calls of the product's own client
        # Places are (partition, offset).
        self.promised: dict[tuple[int, int], bytes] = {}  # place -> body, acknowledged with quorum
        self.deleted_us: dict[tuple[int, int], int] = {}  # place -> when its effective delete was acknowledged
        self.delivered = 0
        self.delivered_us = 0  # the last one, of the queue that everybody uses
        self.read = 0
        self.duplicates = 0
        self.cancelled = 0
        # (node, epoch, place) -> lease
        self._leases: dict[tuple[int, int, tuple[int, int]], Lease] = {}
        # (partition, attempt) -> the earliest end that its requests asked for. Each renews what the others leased, and
        # its answer may be lost.
        self._asked_until_us: dict[tuple[int, bytes], int] = {}
        # (partition, offset, delivery, visibility as the log has it) of changes: calls, and how often they took effect
        self._asked: Counter[tuple[int, int, int, int]] = Counter()
        self._changed: Counter[tuple[int, int, int, int]] = Counter()
        # (partition, offset, delivery, deadline_ms) of leases that a caller has, and of those that were handed back.
        self._taken: set[tuple[int, int, int, int]] = set()
        self._handed_back: set[tuple[int, int, int, int]] = set()
        # Since when the queue is paused beyond doubt; 0 = it may not be.
        self._paused_us = 0
        self._may_resume = False  # a request that it go on was lost, and may come at any time

    # --- sends --------------------------------------------------------------------------------------------------

    def sends(self, request: SendRequest) -> None:
        for body in request.bodies:
            self.attempts[body] = "pending"

    def send_ended(self, operation: Operation) -> None:
        for body in operation.request.bodies:
            self.attempts[body] = operation.outcome

    def calls(self, bodies: list[bytes]) -> None:
        """A client of the product's own is to send these. Whatever it repeats, it is one call."""
        for body in bodies:
            self.attempts[body] = self.single[body] = "pending"

    def call_ended(self, bodies: list[bytes], outcome: str) -> None:
        for body in bodies:
            self.attempts[body] = self.single[body] = outcome

    def changes(
        self, partition: int, changes: Sequence[tuple[int, int, int]], mode: VisibilityMode = VisibilityMode.SET
    ) -> None:
        """A call, however often it is repeated, changes each message once."""
        for offset, delivery, visibility_ms in changes:
            if mode == VisibilityMode.NACK:
                visibility_ms = -1
            elif mode == VisibilityMode.UNSEEN:
                visibility_ms = -2
            elif mode == VisibilityMode.UNCOUNTED:
                visibility_ms = -2 - visibility_ms
            self._asked[partition, offset, delivery, visibility_ms] += 1

    def folded(self, partition: int, book: QueueBook) -> None:
        """LEASE: what changes a lease was asked for, and a repetition of it changes no later lease. Nodes take back
        without being asked what they gave to nobody."""
        for change in book.changes:
            key = partition, *change[:3]
            self._changed[key] += 1
            if change.visibility_ms < -1:
                lease = partition, change.offset, change.last_delivery, change.deadline_ms
                self._handed_back.add(lease)
                self._check_held(lease)
                continue
            if not self._asked[key]:
                self._world.oracle.fail("LEASE", f"partition {partition}: nobody asked for {change}")
            if change.delivery != change.last_delivery and self._changed[key] > self._asked[key]:
                self._world.oracle.fail("LEASE", f"partition {partition}: a repetition ended another lease, {change}")
        book.changes.clear()

    def taken(self, partition: int, reply: AcquireReply) -> None:
        """A caller of a front end has these. Of a FIFO queue: a standard queue's leases have numbers of their own."""
        if not isinstance(self._world.oracle.books.get(partition), FifoBook):
            return
        if reply.messages and not reply.deadline_ms:
            self._world.oracle.fail("HAND-BACK", f"partition {partition}: a lease does not say when it ends")
        for message in reply.messages:
            lease = partition, message.offset, message.delivery, reply.deadline_ms
            self._taken.add(lease)
            self._check_held(lease)

    def _check_held(self, lease: tuple[int, int, int, int]) -> None:
        """HAND-BACK: what is handed back because nobody has it, nobody has."""
        if lease in self._taken and lease in self._handed_back:
            text = f"(partition, offset, delivery, deadline_ms) {lease} was given to a caller, and handed back"
            self._world.oracle.fail("HAND-BACK", text)

    def configures(self, _request: ConfigureRequest) -> None:
        self._paused_us = 0

    def configured(self, operation: Operation) -> None:
        paused = operation.request.config.paused
        self._may_resume |= operation.outcome == "unknown" and not paused
        if operation.outcome == "ok" and paused and not self._may_resume:
            self._paused_us = self._world.scheduler.now_us

    # --- at the node ----------------------------------------------------------------------------------------------

    def arrived(self, process: SimProcess, operation: Operation) -> None:
        operation.arrived_us = self._world.scheduler.now_us
        node = process.node
        partition = getattr(operation.request, "partition", CLUSTER_PARTITION)
        replica = node.replicas.get(partition) if node is not None else None
        operation.applied = replica.applied if replica is not None else -1
        operation.lead_ms = _lead_ms(process, partition)
        attempt = getattr(operation.request, "attempt", b"")
        if attempt:
            until_us = operation.arrived_us + operation.request.visibility_ms * 1_000
            earliest_us = self._asked_until_us.get((partition, attempt), until_us)
            self._asked_until_us[partition, attempt] = min(earliest_us, until_us)

    def answered(self, process: SimProcess, operation: Operation, reply: Any) -> None:
        oracle = self._world.oracle
        if isinstance(reply, ErrorReply):
            if reply.code == ErrorCode.INTERNAL:
                self._world.lease_referee.check_broken()
                oracle.fail("NODE BUG", f"node {process.process_id} answered INTERNAL: {reply.message}")
            return
        oracle.turned(process)  # what the answer rests on may be as young as the answer
        request = operation.request
        if operation.opcode in (Opcode.SEND, Opcode.STREAM_APPEND):
            if request.acks >= Acks.QUORUM:
                self.check_send_committed(request, reply)
        elif operation.opcode in (Opcode.STREAM_READ, Opcode.GROUP_READ):
            self.check_stream_read(request, reply)
        elif operation.opcode == Opcode.CREATE_PARTITION:
            self.check_created(request, reply)
        elif operation.opcode == Opcode.DELETE_PARTITION:
            self.check_dropped(request)
        elif operation.opcode == Opcode.RETIRE:
            self._world.usage_referee.answered(process, request, reply)
        elif operation.opcode in (Opcode.MOVE_REPLICA, Opcode.CANCEL_MOVE):
            self.check_move(reply)
        elif operation.opcode == Opcode.ACQUIRE:
            if reply.messages:
                self.check_paused(operation)
            for message in reply.messages:
                self.check_delivery(operation, reply.epoch, message)
                self.check_lease(process, operation, reply.epoch, message)
            self.check_group_order(request.partition, reply.messages)
        elif operation.opcode == Opcode.DELETE:
            self.check_delete_committed(process, request, reply)
        elif operation.opcode == Opcode.RESCHEDULE:
            self.check_reschedule_committed(request, reply)
        if operation.opcode in GROUP_OPCODES:
            self._world.group_referee.answered(operation, reply)

    def check_send_committed(self, request: SendRequest, reply: SendReply) -> None:
        """I2: an acknowledged message is committed at the offset that was told."""
        bodies = self._bodies(request.partition)
        for offset, body in zip(_offsets(reply, len(request.bodies)), request.bodies, strict=True):
            if bodies.get(offset) != body:
                self._world.oracle.fail("I2 acked is committed", f"offset {offset} was acknowledged, it is not there")
            self.promised[request.partition, offset] = body
        book = self._world.oracle.books.get(request.partition)
        if isinstance(book, FifoBook):
            self.check_duplicates(book, reply, len(request.bodies))

    def check_duplicates(self, book: FifoBook, reply: SendReply, count: int) -> None:
        """I8: whoever sends a message again is told of the first one, and of nothing else."""
        offsets = _offsets(reply, count)
        told = dict(reply.duplicates)
        repeated = {index: book.duplicates[o] for index, o in enumerate(offsets) if o in book.duplicates}
        if told != repeated:
            self._world.oracle.fail("I8 duplicates are known", f"told {told}, by the log {repeated} of {offsets}")
        self.duplicates += len(told)

    def check_group_order(self, partition: int, messages: list[Any]) -> None:
        """I9: of a group, one message after the other; those behind wait until it is deleted."""
        book = self._world.book(partition)
        if not isinstance(book, FifoBook):
            return
        before: set[int] = set()
        for message in messages:
            passed = set(book.waits_before(message.offset)) - before
            if passed:
                self._world.oracle.fail("I9 order in groups", f"offset {message.offset} before {sorted(passed)}")
            before.add(message.offset)

    def check_reschedule_committed(self, request: RescheduleRequest, reply: CodesReply) -> None:
        """I2: an acknowledged cancel is in the committed log, and its message never joined the queue."""
        book = self._world.book(request.partition)
        for (offset, due_ms), code in zip(request.changes, reply.codes, strict=True):
            if code == ErrorCode.OK and not due_ms:
                self.cancelled += 1
                if offset not in book.gone or offset in book.origin.values():
                    self._world.oracle.fail("I2 cancel is committed", f"offset {offset} was cancelled, it is not gone")

    def check_stream_read(self, request: StreamReadRequest | GroupReadRequest, reply: StreamReadReply) -> None:
        """I7: what is read is committed, as it was sent, in order and without gaps but for what retention took."""
        oracle, book = self._world.oracle, self._world.oracle.books.get(request.partition)
        fail = oracle.fail
        assert isinstance(book, StreamBook)
        end = oracle.committed[request.partition].end
        if max(reply.high_watermark, reply.next_offset) > end:
            fail("I7 read below the high watermark", f"{reply.high_watermark}, {reply.next_offset} of {end}")
        if reply.next_offset < request.offset or reply.log_start > book.log_start:
            fail("R24 log start", f"{request}: {reply.next_offset}, log start {reply.log_start} of {book.log_start}")
        due = book.data[bisect_left(book.bases, request.offset) : bisect_left(book.bases, reply.next_offset)]
        missing = [batch for batch in due if batch not in reply.batches]
        if [batch for batch in due if batch not in missing] != reply.batches:
            fail("I7 bytes and order as sent", f"{request}: up to {reply.next_offset}")
        if any(read_header(batch).end_offset > book.log_start for batch in missing):
            fail("I7 no gaps", f"{request}: {len(missing)} batches below {reply.next_offset} are missing")
        self.read += len(reply.batches)

    def check_created(self, request: Any, reply: Any) -> None:
        """I2: a partition that was created is in the committed log, and one name means one partition."""
        name = self._world.oracle.cluster.live.get(reply.partition)
        gone = reply.partition in self._world.oracle.cluster.deleted  # since
        if name != (request.kind, request.tag) and not gone:
            self._world.oracle.fail("I2 created is committed", f"{request.tag}: partition {reply.partition} is {name}")

    def check_dropped(self, request: Any) -> None:
        """I2: a partition that was deleted is deleted by the committed log."""
        if request.partition in self._world.oracle.cluster.live:
            self._world.oracle.fail("I2 drop is committed", f"partition {request.partition} is still there")

    def check_move(self, reply: Any) -> None:
        """I2: a move that was begun, or is to be undone, is in the committed log."""
        if reply.move is None or reply.move.number > self._world.oracle.cluster.machine.last_move:
            self._world.oracle.fail("I2 move is committed", f"partition {reply.partition}: {reply.move}")

    def check_delivery(self, operation: Operation, epoch: int, message: Any) -> None:
        """I7, I2: only what is committed, as it was sent, and not deleted."""
        partition, offset = operation.request.partition, message.offset
        fail, book = self._world.oracle.fail, self._world.book(partition)
        if offset not in book.bodies:
            fail("I7 read below the high watermark", f"offset {offset} was delivered, it is not committed")
        if offset in book.duplicates:
            is_letter = dead_source(message.body) is not None
            text = f"partition {partition}: offset {offset} is {book.duplicates[offset]} once more"
            fail("R30 each message once" if is_letter else "I8 no duplicates", text)
        if book.bodies[offset] != message.body or not self._was_sent(message.body):
            fail("I7 bytes as sent", f"offset {offset} was delivered with other bytes")
        tags = operation.request.tags
        if tags and dict(decode_body(message.body).headers).get(HEADER_TAG) not in tags:
            fail("TAGS only what was asked for", f"offset {offset} was delivered to one who asked for {tags}")
        gone = book.gone.get(offset)
        if gone is not None:
            told = self.deleted_us.get((partition, offset), operation.arrived_us)
            if operation.applied >= gone.end or told < operation.arrived_us:
                fail("I2 deleted stays deleted", f"offset {offset} was delivered in epoch {epoch}, removed by {gone}")
        self.delivered += 1
        if partition == self._world.partition:
            self.delivered_us = self._world.scheduler.now_us

    def check_paused(self, operation: Operation) -> None:
        """PAUSED: who asks after a pause was answered gets nothing, whoever leads."""
        if operation.request.partition != self._world.partition:
            return
        if 0 < self._paused_us < operation.arrived_us:
            late_ms = (operation.arrived_us - self._paused_us) // 1_000
            self._world.oracle.fail("PAUSED", f"a receive that came {late_ms} ms after the pause got messages")

    def check_lease(self, process: SimProcess, operation: Operation, epoch: int, message: Any) -> None:
        """LEASE: one leader does not hand out a message again while its lease holds.

        An answer that waited for the disk may come after the next delivery of its message: its number is lower. One
        attempt that asks twice gets one delivery twice, and the second request sets its end anew. A lease may be
        shorter by what leader time was slewed over it.
        """
        partition = operation.request.partition
        place = partition, message.offset
        key = (process.process_id, epoch, place)
        now_us = self._world.scheduler.now_us
        lease = self._leases.get(key)
        if lease is not None:
            if message.delivery < lease.delivery:
                return
            slack_us = LEASE_SLACK_US + slew_us(lease, now_us, _lead_ms(process, partition))
            is_repeated = bool(operation.request.attempt) and message.delivery == lease.delivery
            is_changed = (message.offset, lease.delivery) in self._world.book(partition).changed
            until_us = min(lease.until_us, self._asked_until_us.get((partition, lease.attempt), lease.until_us))
            if now_us < until_us - slack_us and not is_changed and not is_repeated:
                early_ms = (until_us - now_us) // 1_000
                self._world.oracle.fail("LEASE", f"offset {message.offset}, {early_ms} ms too early")
        since_us = operation.arrived_us
        until_us = since_us + operation.request.visibility_ms * 1_000
        self._leases[key] = Lease(since_us, until_us, message.delivery, operation.lead_ms, operation.request.attempt)

    def check_delete_committed(self, process: SimProcess, request: DeleteRequest, reply: CodesReply) -> None:
        """I2: an acknowledged delete, by the receipt of whatever delivery, is in the committed log."""
        book = self._world.book(request.partition)
        replica = process.node.replicas.get(request.partition) if process.node is not None else None
        folded = replica.applied if replica is not None else 0
        for (offset, delivery), code in zip(request.receipts, reply.codes, strict=True):
            if code != ErrorCode.OK:
                continue
            if offset in book.gone:
                # What removed the message may be committed and not folded here yet.
                if book.gone[offset].end > folded:
                    continue
                self.deleted_us.setdefault((request.partition, offset), self._world.scheduler.now_us)
            else:
                self._world.oracle.fail("I2 delete is committed", f"offset {offset}, delivery {delivery}")

    # --- at the end -------------------------------------------------------------------------------------------------

    def check_outcomes(self) -> None:
        """I15, I7: no failed attempt had an effect, nothing is in the log that nobody sent.

        What stands in the stream of usage was sent by leaders of queues, not by clients."""
        oracle = self._world.oracle
        usage = {partition for partition, (_, tag) in oracle.cluster.live.items() if tag == USAGE_TAG}
        for book in (book for partition, book in oracle.books.items() if partition not in usage):
            for body in book.bodies.values():
                outcome = self.attempts.get(body)
                if outcome is None and self._was_sent(body):
                    continue
                if outcome in (None, "fail"):
                    oracle.fail("I15 fail has no effect", f"{body[:40]!r} ended as {outcome}, it is committed")

    def check_promises(self) -> None:
        """I2: every acknowledged message is still at its offset."""
        for (partition, offset), body in self.promised.items():
            if self._bodies(partition).get(offset) != body:
                self._world.oracle.fail("I2 acked is kept", f"partition {partition}, offset {offset}")

    def check_calls(self) -> None:
        """NO COPIES: a call of the product's client is stored once where it was acknowledged, else at most once."""
        places: dict[bytes, list[tuple[int, int]]] = {}
        for partition, book in self._world.oracle.books.items():
            for offset, body in book.bodies.items():
                if body in self.single:
                    places.setdefault(body, []).append((partition, offset))
        for body, outcome in self.single.items():
            found = places.get(body, [])
            if len(found) > 1:
                self._world.oracle.fail("NO COPIES", f"{body[:40]!r} ended as {outcome}, it is stored at {found}")

    def _was_sent(self, body: bytes) -> bool:
        """By a client, or as the release or the dead letter of a message that a client sent: the same value and key."""
        if body in self.attempts:
            return True
        if any(isinstance(book, QueueBook) and body in book.releases for book in self._world.oracle.books.values()):
            return True
        source = dead_source(body)
        original = self._bodies(source[0]).get(source[1]) if source is not None else None
        return original is not None and decode_body(original)[:2] == decode_body(body)[:2]

    def _bodies(self, partition: int) -> dict[int, bytes]:
        book = self._world.oracle.books.get(partition)
        return book.bodies if book is not None else {}


def slew_us(lease: Lease, now_us: int, lead_ms: int) -> int:
    """By how much leader time was slewed forward since the lease began, as far as it may be."""
    slewed_us = (lead_ms - lease.lead_ms) * 1_000
    return max(0, min(slewed_us, (now_us - lease.since_us) * CLOCK_SLEW_PERMILLE // 1_000))


def _lead_ms(process: SimProcess, partition: int) -> int:
    """By how much the time of the leader here is ahead of the monotonic clock; 0 where none leads."""
    replica = process.node.replicas.get(partition) if process.node is not None else None
    return -replica.time.mono_of(0) if replica is not None and replica.time is not None else 0


def _offsets(reply: SendReply, count: int) -> list[int]:
    """Of the records of a send. A send that was tried again may stand in stretches: (index, offset) of each."""
    stretches = dict(getattr(reply, "stretches", ()))
    offsets: list[int] = []
    for index in range(count):
        offsets.append(stretches.get(index, offsets[-1] + 1 if offsets else reply.first_offset))
    return offsets
