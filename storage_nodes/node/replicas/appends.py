"""Appends at a leader, from the request to the answer: gathered, proposed as one batch per group commit, answered.

take     requests that arrive while the disk is busy; a repeat is answered from the log, or joins its first attempt
propose  one data batch per producer, kind (plain or not, size) and acks, cut where it would grow too large
answer   when the acks asked for are reached: our own disk, a majority, every voter
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from storage_nodes.limits import (
    BATCH_BYTES_MAX,
    PRODUCER_SEQUENCE_MAX,
    PROPOSALS_PENDING_BYTES_MAX,
    PROPOSALS_PENDING_MAX,
    RECORD_BYTES_MAX,
    RECORDS_PER_SEND_MAX,
    UNCOMMITTED_BYTES_MAX,
)
from storage_nodes.log.record_batch import HEADER_BYTES
from storage_nodes.machines.producers import ProducerTable, Repeated
from storage_nodes.model import Acks
from storage_nodes.node.memory.memory_budget import Kind
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.replicas.all_waiters import AllWaiters, PendingAppend
from storage_nodes.node.replicas.repeats import BatchKind, ProducerLine, Repeats, Waiting, never
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply, SendRequest, encode_message

if TYPE_CHECKING:
    from storage_nodes.node.replicas.replica import Replica

# Records of one data batch, so that record prefixes stay within the codec's tables.
BATCH_RECORDS_MAX = 4_096

# What a send without a producer says of it.
_NO_PRODUCER = (-1, -1, -1)

# Plain numbers: every send is compared with them.
_NO_ACKS, _ALL_ACKS, _QUORUM_ACKS, _LEADER_ACKS = map(int, (Acks.NONE, Acks.ALL, Acks.QUORUM, Acks.LEADER))

_send_request = msgspec.msgpack.Decoder(SendRequest)


def _check_nothing(_request: SendRequest) -> int:
    """For partitions that take any record."""
    return BATCH_BYTES_MAX


def _bill_nothing(_bodies: list[bytes]) -> int:
    return -1


class Unfolded(NamedTuple):
    """A batch that is not folded yet."""

    end_offset: int
    size_bytes: int
    requests: list[Waiting]


# Stands for a queue that was not made yet; nothing is ever put into it.
_NOTHING: deque[PendingAppend] = deque(maxlen=0)
_NOTHING_UNFOLDED: deque[Unfolded] = deque(maxlen=0)


class Appends:
    """Of one partition, while it leads. The pending queues are in log order."""

    __slots__ = ("_all", "_duplicates", "_gathered", "_gathered_bytes", "_leader", "_quorum", "_repeats", "_room",
                 "_sum_of", "_unfolded", "gathered_records", "uncommitted_bytes")  # fmt: skip

    def __init__(
        self,
        room: NodeRoom,
        used_since_ms: Callable[[], int] = never,
        sum_of: Callable[[list[bytes]], int] = _bill_nothing,
    ) -> None:
        """`sum_of` says what is billed of the messages of a batch."""
        self._room = room
        self._sum_of = sum_of
        self._gathered: list[Waiting] = []
        self._gathered_bytes = 0
        self.gathered_records = 0
        # Made when first needed: an empty deque weighs 600 bytes, and most partitions of a node are idle.
        self._leader = self._quorum = _NOTHING
        self._all: AllWaiters | None = None
        # Of requests that are not answered yet: offset -> offset of the original message.
        self._duplicates: dict[int, int] | None = None
        self._unfolded = _NOTHING_UNFOLDED
        self._repeats = Repeats(used_since_ms)
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
        bodies = request.bodies
        _check(request)
        line: ProducerLine | None = None
        earlier: Repeated | None = None
        is_numbered = request.producer_id >= 0
        if is_numbered:
            line = self._repeats.line(request, producers)
            if line is None or request.sequence > PRODUCER_SEQUENCE_MAX + 1 - len(bodies):
                found = self._repeats.find(request, producers)
                if type(found) is Waiting:
                    if found.kind[1] == Acks.ALL and not found.is_answered:
                        self._room_for_all(token).add(token, request.partition, found)
                    _join(token, found)
                    return False
                earlier = found
                if earlier is not None and earlier.known == len(bodies):
                    return self._answer_earlier(token, request, earlier)
        batch_bytes_max = check(request)
        if len(self._gathered) >= PROPOSALS_PENDING_MAX or self._gathered_bytes > PROPOSALS_PENDING_BYTES_MAX:
            raise self._room.refusal("too many sends of this partition wait for the disk")
        if self.uncommitted_bytes > UNCOMMITTED_BYTES_MAX:
            raise self._room.refusal("too many sends of this partition wait for a majority")
        self._room.require_room(self._gathered_bytes)
        for_all = self._room_for_all(token) if request.acks == _ALL_ACKS else None
        if is_numbered:
            if line is None:
                line = self._repeats.begin(request, producers)
            else:
                self._repeats.go_on(line)
        waiting = Waiting(token, request, _kind_of(request, batch_bytes_max), line)
        if line is not None:
            line.requests[request.sequence] = waiting
            end = request.sequence + len(bodies)
            if end > line.high:
                line.high = end
        if earlier is not None:
            waiting.earlier = earlier
            waiting.bodies = bodies[earlier.known :]
        if for_all is not None:
            for_all.add(token, request.partition, waiting)
        self._gathered.append(waiting)
        waiting.size_bytes = len(payload) + HEADER_BYTES
        self._hold(self._gathered_bytes + waiting.size_bytes)
        self.gathered_records += len(waiting.bodies)
        return False

    def propose(self, replica: Replica, now_ms: int) -> None:
        """Stage what gathered; what exceeds this partition's share of the WAL group stays for the next one."""
        share_bytes = replica.host.committer.share_bytes
        if self._gathered_bytes > share_bytes:
            gathered = self._take_share(share_bytes)
        else:
            gathered, self._gathered = self._gathered, []
            self.gathered_records = 0
            self._hold(0)
        if self._gathered:
            replica.propose_soon()
        if len(gathered) == 1:
            self._propose_group(replica, gathered, gathered[0].kind, now_ms)
            return
        groups: dict[BatchKind, list[Waiting]] = {}
        for one in gathered:
            groups.setdefault(one.kind, []).append(one)
        for kind, requests in groups.items():
            self._propose_group(replica, requests, kind, now_ms)

    def _hold(self, size_bytes: int) -> None:
        """So many bytes gather here now."""
        self._room.budget.take(Kind.SENDS, size_bytes - self._gathered_bytes)
        self._gathered_bytes = size_bytes

    def _take_share(self, share_bytes: int) -> list[Waiting]:
        """The first requests, one at least, that are no larger than this together."""
        gathered = self._gathered
        size = taken = 0
        while taken < len(gathered) and (not taken or size + gathered[taken].size_bytes <= share_bytes):
            size += gathered[taken].size_bytes
            taken += 1
        share, self._gathered = gathered[:taken], gathered[taken:]
        self._hold(self._gathered_bytes - size)
        self.gathered_records -= sum(len(one.bodies) for one in share)
        return share

    def duplicated(self, pairs: list[tuple[int, int]]) -> None:
        """The fold found these to repeat an id: (offset, offset of the original). They are answered with it."""
        if self._duplicates is None:
            self._duplicates = {}
        self._duplicates.update(pairs)

    def progressed(self, durable_end: int, folded: int, replicated: int) -> None:
        """Answer everything that is safe enough now. A batch for all voters also waits for its commit."""
        unfolded = self._unfolded
        if not unfolded and self.is_idle:
            return
        quorum = self._quorum
        while quorum and quorum[0].end_offset <= folded:
            self._answer(quorum.popleft())
        while self._leader and self._leader[0].end_offset <= durable_end:
            self._answer(self._leader.popleft())
        if self._all is not None:
            self._all.progressed(min(replicated, folded), self._answer)
        while unfolded and unfolded[0].end_offset <= folded:
            batch = unfolded.popleft()
            self.uncommitted_bytes -= batch.size_bytes
            self._repeats.folded(batch.requests)

    def give_up(self, token: Token) -> bool:
        """The caller waits for all voters no longer; what it sent goes on its way. False: it waits for nothing here."""
        if self._all is None or not self._all.give_up(token):
            return False
        unfolded_from = self._unfolded[0].end_offset if self._unfolded else sys.maxsize
        for one in self._all.sweep(unfolded_from):
            if self._duplicates:
                _take_duplicates(one, self._duplicates)
        return True

    def fail(self, leader: int) -> None:
        """We lead no more: what was not proposed may be tried elsewhere, whether the rest was kept is unknown."""
        gathered, self._gathered = self._gathered, []
        self._hold(0)
        self.gathered_records = self.uncommitted_bytes = 0
        for one in gathered:
            one.refuse(StorageError(ErrorCode.NOT_LEADER, "leadership was lost", leader))
        error = StorageError(ErrorCode.OUTCOME_UNKNOWN, "the leader changed before the append was committed")
        for queue in (self._leader, self._quorum):
            for pending in queue:
                for one in pending.requests:
                    one.refuse(error)
        if self._all is not None:
            self._all.fail(error)
        self._leader = self._quorum = _NOTHING
        self._all = None
        self._duplicates = None
        self._unfolded = _NOTHING_UNFOLDED
        self._repeats.clear()

    def _answer_earlier(self, token: Token, request: SendRequest, earlier: Repeated) -> bool:
        """All of it stands in the log, folded. Who asked for all voters waits for them: True."""
        waiting = Waiting(token, request, _kind_of(request, 0), None)
        waiting.bodies, waiting.earlier, waiting.timestamp_ms = [], earlier, earlier.timestamp_ms
        if request.acks != Acks.ALL:
            waiting.answer([])
            return False
        index, offset = earlier.stretches[-1]
        for_all = self._room_for_all(token)
        for_all.add(token, request.partition, waiting)
        for_all.wait(PendingAppend(offset + earlier.known - index, [waiting], True))
        return True

    def _room_for_all(self, token: Token) -> AllWaiters:
        """For one more who waits for all voters. Raises StorageError."""
        if self._all is None:
            self._all = AllWaiters()
        self._all.require_room(token)
        return self._all

    # --- batches and answers ----------------------------------------------------------------------------------

    def _propose_group(self, replica: Replica, requests: list[Waiting], kind: BatchKind, now_ms: int) -> None:
        bytes_max, is_numbered = kind[2], kind[3] >= 0
        base = replica.log.log_end
        bodies: list[bytes] = []
        standing: list[Waiting] = []
        size = first = following = 0
        for one in requests:
            added = sum(map(len, one.bodies))
            own = one.sequence if one.earlier is None else one.sequence + one.earlier.known
            too_much = size + added > bytes_max or len(bodies) + len(one.bodies) > BATCH_RECORDS_MAX
            if bodies and (too_much or own != following):
                self._append(replica, bodies, standing, size, kind, first, now_ms)
                bodies, standing, base, size = [], [], replica.log.log_end, 0
            if not bodies:
                first = own
            following = own + len(one.bodies) if is_numbered else own
            size += added
            one.first_offset, one.timestamp_ms = base + len(bodies), now_ms
            standing.append(one)
            bodies += one.bodies
            one.bodies = []
            while size > bytes_max and len(bodies) > 1:
                # One request that is too large: it is answered with its last batch.
                count, staged = _fitting(bodies, bytes_max)
                self._stage(replica, bodies[:count], [], staged, kind, first, now_ms)
                bodies, base = bodies[count:], replica.log.log_end
                size -= staged
                first += count if is_numbered else 0
        self._append(replica, bodies, standing, size, kind, first, now_ms)

    def _append(
        self,
        replica: Replica,
        bodies: list[bytes],
        requests: list[Waiting],
        size_bytes: int,
        kind: BatchKind,
        sequence: int,
        now_ms: int,
    ) -> None:
        end = self._stage(replica, bodies, requests, size_bytes, kind, sequence, now_ms)
        plain, acks, *_ = kind
        pending = PendingAppend(end, requests, plain)
        if acks == _QUORUM_ACKS:
            if self._quorum is _NOTHING:
                self._quorum = deque()
            self._quorum.append(pending)
        elif acks == _ALL_ACKS:
            assert self._all is not None, "made when the request was taken"
            self._all.wait(pending)
        elif acks == _LEADER_ACKS:
            if self._leader is _NOTHING:
                self._leader = deque()
            self._leader.append(pending)
        else:
            self._answer(pending)

    def _stage(
        self,
        replica: Replica,
        bodies: list[bytes],
        requests: list[Waiting],
        size_bytes: int,
        kind: BatchKind,
        sequence: int,
        now_ms: int,
    ) -> int:
        """One batch goes into the log; returns the end of it."""
        plain, _, _, producer_id, epoch = kind
        usage = self._sum_of(bodies)
        end = replica.append_own(bodies, now_ms, plain=plain, producer=(producer_id, epoch, sequence), usage=usage)
        if self._unfolded is _NOTHING_UNFOLDED:
            self._unfolded = deque()
        self._unfolded.append(Unfolded(end, size_bytes, requests))
        self.uncommitted_bytes += size_bytes
        return end

    def _answer(self, pending: PendingAppend) -> None:
        known = None if pending.plain else self._duplicates
        for one in pending.requests:
            one.answer(_take_duplicates(one, known) if known else [])


def _take_duplicates(one: Waiting, known: dict[int, int]) -> list[tuple[int, int]]:
    first = one.first_offset
    own = range(first, first + one.count - (one.earlier.known if one.earlier is not None else 0))
    return [(offset - first, known.pop(offset)) for offset in own if offset in known]


def _fitting(bodies: list[bytes], bytes_max: int) -> tuple[int, int]:
    """How many records a batch may hold, one at least, and their bytes."""
    ends = list(accumulate(map(len, bodies)))
    count = max(bisect_right(ends, bytes_max), 1)
    return count, ends[count - 1]


def _join(token: Token, first: Waiting) -> None:
    """A repeat is answered with its first attempt; again, where that was answered before its commit."""
    if first.is_answered:
        payload = encode_message(SendReply(first.first_offset, first.timestamp_ms))
        token.connection.answer(token, payload)
    elif first.more is None:
        first.more = [token]
    else:
        first.more.append(token)


def _kind_of(request: SendRequest, batch_bytes_max: int) -> BatchKind:
    # Whether a message repeats an id is known when it is committed and not before (R28).
    acks = request.acks if request.plain else max(request.acks, _QUORUM_ACKS)
    return request.plain, acks, batch_bytes_max, request.producer_id, request.producer_epoch


def _check(request: SendRequest) -> None:
    bodies = request.bodies
    if not 1 <= len(bodies) <= RECORDS_PER_SEND_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"a send holds 1 to {RECORDS_PER_SEND_MAX} records")
    # If the sum is within the bound, so is each record.
    if sum(map(len, bodies)) > RECORD_BYTES_MAX and (
        max(map(len, bodies)) > RECORD_BYTES_MAX or sum(map(len, bodies)) > BATCH_BYTES_MAX
    ):
        raise StorageError(ErrorCode.TOO_LARGE, f"a record holds at most {RECORD_BYTES_MAX} bytes")
    if not _NO_ACKS <= request.acks <= _ALL_ACKS:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"acks {request.acks} is not known")
    if request.producer_id < 0 and (request.producer_id, request.producer_epoch, request.sequence) != _NO_PRODUCER:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"without a producer its numbers are {_NO_PRODUCER}")
