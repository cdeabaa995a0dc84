"""Appends at a leader, from the request to the answer: gathered, proposed as one batch per group commit, answered.

take     requests that arrive while the disk is busy; a repeat is answered from the log, or joins its first attempt
propose  one data batch per producer, kind (plain or not, size) and acks, cut where it would grow too large
answer   when the acks asked for are reached: our own disk, a majority, every voter
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from storage_nodes.limits import (
    BATCH_BYTES_MAX,
    OVERLOADED_RETRY_MS,
    PRODUCERS_PER_PARTITION_MAX,
    PROPOSALS_PENDING_BYTES_MAX,
    PROPOSALS_PENDING_MAX,
    RECORD_BYTES_MAX,
    RECORDS_PER_SEND_MAX,
    UNCOMMITTED_BYTES_MAX,
)
from storage_nodes.log.record_batch import NO_PRODUCER
from storage_nodes.machines.producers import ProducerTable, Repeated, check_producer, overlapping
from storage_nodes.model import Acks
from storage_nodes.node.connections import Token
from storage_nodes.node.memory_budget import Kind
from storage_nodes.node.room import NodeRoom
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply, SendRequest, encode_message

if TYPE_CHECKING:
    from storage_nodes.node.replica import Replica

# Records of one data batch, so that record prefixes stay within the codec's tables.
BATCH_RECORDS_MAX = 4_096

_send_request = msgspec.msgpack.Decoder(SendRequest)


def _check_nothing(_request: SendRequest) -> int:
    """For partitions that take any record."""
    return BATCH_BYTES_MAX


class Waiting:
    """A request on its way, and all who wait for its answer: a repeat joins the first attempt."""

    __slots__ = ("acks", "batch_bytes_max", "bodies", "count", "earlier", "first_offset", "is_answered", "plain",
                 "producer", "sequence", "timestamp_ms", "tokens")  # fmt: skip

    def __init__(self, token: Token, request: SendRequest, batch_bytes_max: int) -> None:
        self.tokens = [token]
        self.bodies = request.bodies
        self.count = len(request.bodies)
        self.plain = request.plain
        # Whether a message repeats an id is known when it is committed and not before (R28).
        self.acks = request.acks if request.plain else max(request.acks, Acks.QUORUM)
        self.batch_bytes_max = batch_bytes_max
        self.producer = (request.producer_id, request.producer_epoch)
        self.sequence = request.sequence
        # What an earlier leader appended of it; the rest begins at first_offset.
        self.earlier: Repeated | None = None
        self.first_offset = -1
        self.timestamp_ms = 0
        self.is_answered = False

    @property
    def own_sequence(self) -> int:
        """Of the first record that is appended here."""
        return self.sequence if self.earlier is None else self.sequence + self.earlier.known

    def reply(self, duplicates: list[tuple[int, int]]) -> SendReply:
        earlier = self.earlier
        if earlier is None:
            return SendReply(self.first_offset, self.timestamp_ms, duplicates)
        own = [(earlier.known + index, original) for index, original in duplicates]
        stretches = [*earlier.stretches]
        if earlier.known < self.count:
            stretches.append((earlier.known, self.first_offset))
        return SendReply(stretches[0][1], self.timestamp_ms, [*earlier.duplicates, *own], stretches[1:])


class PendingAppend(NamedTuple):
    """Requests whose records stand in one batch."""

    end_offset: int
    requests: list[Waiting]
    plain: bool


class Unfolded(NamedTuple):
    """A batch that is not folded yet."""

    end_offset: int
    size_bytes: int
    requests: list[Waiting]


class _UnderWay:
    """What a producer sent that is gathered or appended, and not folded."""

    __slots__ = ("epoch", "high", "requests")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.high = 0  # end of the highest sequence
        self.requests: dict[int, Waiting] = {}  # by first sequence


class _Batch:
    """What goes into the next batch of one kind and one producer."""

    __slots__ = ("acks", "bodies", "now_ms", "plain", "producer", "replica", "requests", "size_bytes")

    def __init__(self, replica: Replica, plain: bool, acks: int, now_ms: int) -> None:
        self.replica = replica
        self.plain = plain
        self.acks = acks
        self.now_ms = now_ms
        self.bodies: list[bytes] = []
        self.requests: list[Waiting] = []
        self.producer = NO_PRODUCER
        self.size_bytes = 0

    def takes(self, one: Waiting, size_bytes: int) -> bool:
        """May this request stand behind those that are here? Not, where sequences would not go on."""
        if not self.bodies:
            return True
        expected = self.producer[2] + len(self.bodies) if self.producer is not NO_PRODUCER else one.sequence
        records = len(self.bodies) + len(one.bodies)
        fits = self.size_bytes + size_bytes <= one.batch_bytes_max and records <= BATCH_RECORDS_MAX
        return fits and one.own_sequence == expected

    def add(self, one: Waiting, size_bytes: int) -> None:
        if not self.bodies and one.sequence >= 0:
            self.producer = (*one.producer, one.own_sequence)
        one.first_offset = self.replica.log.log_end + len(self.bodies)
        one.timestamp_ms = self.now_ms
        self.bodies += one.bodies
        one.bodies = []
        self.requests.append(one)
        self.size_bytes += size_bytes

    def append(self, count: int) -> int:
        """The first records go into the log; returns the end of it."""
        bodies = self.bodies if count == len(self.bodies) else self.bodies[:count]
        end = self.replica.append_own(bodies, self.now_ms, plain=self.plain, producer=self.producer)
        self.bodies = self.bodies[count:]
        if self.producer is not NO_PRODUCER:
            producer_id, epoch, sequence = self.producer
            self.producer = (producer_id, epoch, sequence + count)
        return end


# No record has a producer yet.
_NOBODY = ProducerTable()

# Stands for a queue that was not made yet; nothing is ever put into it.
_NOTHING: deque[PendingAppend] = deque(maxlen=0)
_NOTHING_UNFOLDED: deque[Unfolded] = deque(maxlen=0)


class Appends:
    """Of one partition, while it leads. The pending queues are in log order."""

    __slots__ = ("_all", "_duplicates", "_gathered", "_gathered_bytes", "_leader", "_quorum", "_room", "_under_way",
                 "_unfolded", "gathered_records", "uncommitted_bytes")  # fmt: skip

    def __init__(self, room: NodeRoom) -> None:
        self._room = room
        self._gathered: list[Waiting] = []
        self._gathered_bytes = 0
        self.gathered_records = 0
        # Made when first needed: an empty deque weighs 600 bytes, and most partitions of a node are idle.
        self._leader = self._quorum = self._all = _NOTHING
        # Of requests that are not answered yet: offset -> offset of the original message.
        self._duplicates: dict[int, int] | None = None
        self._unfolded = _NOTHING_UNFOLDED
        self._under_way: dict[int, _UnderWay] = {}
        # Of sends in the log that no majority has yet, as far as is known.
        self.uncommitted_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Does nobody wait for anything?"""
        return not (self._gathered or self._leader or self._quorum or self._all or self._unfolded)

    def take(
        self,
        token: Token,
        payload: bytes,
        producers: ProducerTable | None,
        check: Callable[[SendRequest], int] = _check_nothing,
    ) -> bool:
        """Raises StorageError or msgspec.DecodeError when the request cannot be proposed; `check` may refuse it too. It
        says how large batches with these records may be. `producers`: what the partition remembers of them. True: a
        look whether it can be answered is due (`progressed`)."""
        request = _send_request.decode(payload)
        _check(request)
        earlier: Repeated | None = None
        is_numbered = request.producer_id >= 0
        if is_numbered:
            check_producer(request.producer_id, request.producer_epoch, request.sequence, len(request.bodies))
            if self._joined(token, request):
                return False
            earlier = self._look_up(request, producers)
            if earlier is not None and earlier.known == len(request.bodies):
                return self._answer_earlier(token, request, earlier)
        batch_bytes_max = check(request)
        if len(self._gathered) >= PROPOSALS_PENDING_MAX or self._gathered_bytes > PROPOSALS_PENDING_BYTES_MAX:
            raise self._room.refusal("too many sends of this partition wait for the disk")
        if self.uncommitted_bytes > UNCOMMITTED_BYTES_MAX:
            raise self._room.refusal("too many sends of this partition wait for a majority")
        self._room.require_room(self._gathered_bytes)
        waiting = Waiting(token, request, batch_bytes_max)
        if earlier is not None:
            waiting.earlier = earlier
            waiting.bodies = request.bodies[earlier.known :]
        if is_numbered:
            self._set_out(waiting)
        self._gathered.append(waiting)
        self._hold(self._gathered_bytes + len(payload))
        self.gathered_records += len(waiting.bodies)
        return False

    def propose(self, replica: Replica, now_ms: int) -> None:
        """Stage what gathered; what exceeds this partition's share of the WAL group stays for the next one."""
        gathered, self._gathered = self._gathered, []
        self.gathered_records = 0
        share_bytes = replica.group_share_bytes()
        if self._gathered_bytes > share_bytes:
            gathered = self._keep_excess(gathered, share_bytes)
            replica.propose_soon()
        else:
            self._hold(0)
        groups: dict[tuple[bool, int, int, tuple[int, int]], list[Waiting]] = {}
        for one in gathered:
            groups.setdefault((one.plain, one.acks, one.batch_bytes_max, one.producer), []).append(one)
        for (plain, acks, batch_bytes_max, _), requests in groups.items():
            self._propose_group(_Batch(replica, plain, acks, now_ms), requests, batch_bytes_max)

    def _hold(self, size_bytes: int) -> None:
        """So many bytes gather here now."""
        self._room.budget.take(Kind.SENDS, size_bytes - self._gathered_bytes)
        self._gathered_bytes = size_bytes

    def _keep_excess(self, gathered: list[Waiting], share_bytes: int) -> list[Waiting]:
        size = taken = 0
        while taken < len(gathered) and size <= share_bytes - BATCH_BYTES_MAX:
            size += sum(map(len, gathered[taken].bodies))
            taken += 1
        self._gathered = gathered[taken:]
        self._hold(sum(len(body) for one in self._gathered for body in one.bodies))
        self.gathered_records = sum(len(one.bodies) for one in self._gathered)
        return gathered[:taken]

    def duplicated(self, pairs: list[tuple[int, int]]) -> None:
        """The fold found these to repeat an id: (offset, offset of the original). They are answered with it."""
        if self._duplicates is None:
            self._duplicates = {}
        self._duplicates.update(pairs)

    def progressed(self, durable_end: int, folded: int, replicated: int) -> None:
        """Answer everything that is safe enough now. A batch for all voters also waits for its commit."""
        quorum = self._quorum
        while quorum and quorum[0].end_offset <= folded:
            self._answer(quorum.popleft())
        while self._leader and self._leader[0].end_offset <= durable_end:
            self._answer(self._leader.popleft())
        while self._all and self._all[0].end_offset <= min(replicated, folded):
            self._answer(self._all.popleft())
        unfolded = self._unfolded
        while unfolded and unfolded[0].end_offset <= folded:
            self._folded(unfolded.popleft())

    def fail(self, leader: int) -> None:
        """We lead no more: what was not proposed may be tried elsewhere, whether the rest was kept is unknown."""
        gathered, self._gathered = self._gathered, []
        self._hold(0)
        self.gathered_records = self.uncommitted_bytes = 0
        for one in gathered:
            _refuse(one, StorageError(ErrorCode.NOT_LEADER, "leadership was lost", leader))
        error = StorageError(ErrorCode.OUTCOME_UNKNOWN, "the leader changed before the append was committed")
        for queue in (self._leader, self._quorum, self._all):
            for pending in queue:
                for one in pending.requests:
                    _refuse(one, error)
        self._leader = self._quorum = self._all = _NOTHING
        self._duplicates = None
        self._unfolded = _NOTHING_UNFOLDED
        self._under_way.clear()

    # --- repeats ----------------------------------------------------------------------------------------------

    def _joined(self, token: Token, request: SendRequest) -> bool:
        """Does an earlier attempt of this send stand here? Then both are answered together. Raises StorageError."""
        line = self._under_way.get(request.producer_id)
        if line is None:
            return False
        first = request.sequence
        if line.epoch != request.producer_epoch:
            if request.producer_epoch < line.epoch:
                raise StorageError(ErrorCode.FENCED, f"the producer has a newer epoch, {line.epoch}")
            raise overloaded("sends of the producer's former epoch are under way")
        if first >= line.high:
            return False
        end = first + len(request.bodies)
        known = line.requests.get(first)
        if known is None or known.count != len(request.bodies):
            if any(one.sequence < end and first < one.sequence + one.count for one in line.requests.values()):
                raise overlapping(first, end)
            return False
        if known.is_answered:
            token.connection.answer(token, encode_message(known.reply([])))
        else:
            known.tokens.append(token)
        return True

    def _look_up(self, request: SendRequest, producers: ProducerTable | None) -> Repeated | None:
        producer_id = request.producer_id
        line = self._under_way.get(producer_id)
        if producers is None:
            producers = _NOBODY
        if line is None and len(producers) + len(self._under_way) >= PRODUCERS_PER_PARTITION_MAX:
            others = sum(other not in producers for other in self._under_way)
            if producer_id not in producers and not producers.has_room(others):
                raise overloaded("too many producers send to the partition")
        high = 0 if line is None else line.high
        return producers.look_up(producer_id, request.producer_epoch, request.sequence, len(request.bodies), high)

    def _answer_earlier(self, token: Token, request: SendRequest, earlier: Repeated) -> bool:
        """All of it stands in the log, folded. Who asked for all voters waits for them: True."""
        waiting = Waiting(token, request, 0)
        waiting.bodies, waiting.earlier, waiting.timestamp_ms = [], earlier, earlier.timestamp_ms
        if request.acks != Acks.ALL:
            token.connection.answer(token, encode_message(waiting.reply([])))
            return False
        index, offset = earlier.stretches[-1]
        self._wait_for_all(PendingAppend(offset + earlier.known - index, [waiting], True))
        return True

    def _wait_for_all(self, pending: PendingAppend) -> None:
        if self._all is _NOTHING:
            self._all = deque()
        place = len(self._all)
        while place and self._all[place - 1].end_offset > pending.end_offset:
            place -= 1
        self._all.insert(place, pending)

    def _set_out(self, waiting: Waiting) -> None:
        producer_id, epoch = waiting.producer
        line = self._under_way.get(producer_id)
        if line is None:
            line = self._under_way[producer_id] = _UnderWay(epoch)
        line.requests[waiting.sequence] = waiting
        line.high = max(line.high, waiting.sequence + waiting.count)

    def _folded(self, batch: Unfolded) -> None:
        self.uncommitted_bytes -= batch.size_bytes
        for one in batch.requests:
            producer_id = one.producer[0]
            if producer_id < 0:
                continue
            line = self._under_way[producer_id]
            del line.requests[one.sequence]
            if not line.requests:
                del self._under_way[producer_id]

    # --- batches and answers ----------------------------------------------------------------------------------

    def _propose_group(self, batch: _Batch, requests: list[Waiting], bytes_max: int) -> None:
        for one in requests:
            size = sum(map(len, one.bodies))
            if not batch.takes(one, size):
                self._append(batch)
                batch = _Batch(batch.replica, batch.plain, batch.acks, batch.now_ms)
            batch.add(one, size)
            while batch.size_bytes > bytes_max and len(batch.bodies) > 1:
                # One request that is too large: it is answered with its last batch.
                self._append_first(batch, bytes_max)
        self._append(batch)

    def _append_first(self, batch: _Batch, bytes_max: int) -> None:
        """Stage as many records as a batch may hold, one at least."""
        ends = list(accumulate(map(len, batch.bodies)))
        count = max(bisect_right(ends, bytes_max), 1)
        end = batch.append(count)
        batch.size_bytes -= ends[count - 1]
        self._appended(end, ends[count - 1], [])

    def _append(self, batch: _Batch) -> None:
        pending = PendingAppend(batch.append(len(batch.bodies)), batch.requests, batch.plain)
        self._appended(pending.end_offset, batch.size_bytes, batch.requests)
        acks = batch.acks
        if acks == Acks.QUORUM:
            if self._quorum is _NOTHING:
                self._quorum = deque()
            self._quorum.append(pending)
        elif acks == Acks.ALL:
            self._wait_for_all(pending)
        elif acks == Acks.LEADER:
            if self._leader is _NOTHING:
                self._leader = deque()
            self._leader.append(pending)
        else:
            self._answer(pending)

    def _appended(self, end_offset: int, size_bytes: int, requests: list[Waiting]) -> None:
        if self._unfolded is _NOTHING_UNFOLDED:
            self._unfolded = deque()
        self._unfolded.append(Unfolded(end_offset, size_bytes, requests))
        self.uncommitted_bytes += size_bytes

    def _answer(self, pending: PendingAppend) -> None:
        known = None if pending.plain else self._duplicates
        for one in pending.requests:
            duplicates: list[tuple[int, int]] = []
            if known:
                first = one.first_offset
                own = range(first, first + one.count - (one.earlier.known if one.earlier is not None else 0))
                duplicates = [(offset - first, known.pop(offset)) for offset in own if offset in known]
            one.is_answered = True
            answer = encode_message(one.reply(duplicates))
            for token in one.tokens:
                token.connection.answer(token, answer)


def overloaded(text: str) -> StorageError:
    return StorageError(ErrorCode.OVERLOADED, text, retry_after_ms=OVERLOADED_RETRY_MS)


def _refuse(waiting: Waiting, error: StorageError) -> None:
    if not waiting.is_answered:
        for token in waiting.tokens:
            token.connection.refuse(token, error)


def _check(request: SendRequest) -> None:
    bodies = request.bodies
    if not 1 <= len(bodies) <= RECORDS_PER_SEND_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"a send holds 1 to {RECORDS_PER_SEND_MAX} records")
    if max(map(len, bodies)) > RECORD_BYTES_MAX or sum(map(len, bodies)) > BATCH_BYTES_MAX:
        raise StorageError(ErrorCode.TOO_LARGE, f"a record holds at most {RECORD_BYTES_MAX} bytes")
    if not Acks.NONE <= request.acks <= Acks.ALL:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"acks {request.acks} is not known")
