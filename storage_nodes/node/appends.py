"""Appends at a leader, from the request to the answer: gathered, proposed as one batch per group commit, answered.

take     requests that arrive while the disk is busy
propose  one data batch per kind (plain or not, size) and acks, cut where it would grow too large
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
    PROPOSALS_PENDING_BYTES_MAX,
    PROPOSALS_PENDING_MAX,
    RECORD_BYTES_MAX,
    RECORDS_PER_SEND_MAX,
)
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

# A request that waits, and how large batches with its records may be.
Gathered = tuple[Token, SendRequest, int]

_send_request = msgspec.msgpack.Decoder(SendRequest)


def _check_nothing(_request: SendRequest) -> int:
    """For partitions that take any record."""
    return BATCH_BYTES_MAX


class PendingAppend(NamedTuple):
    """Requests whose records stand in one batch; each (token, offset of its first record)."""

    end_offset: int
    timestamp_ms: int
    requests: list[tuple[Token, int]]
    plain: bool


# Stands for a queue that was not made yet; nothing is ever put into it.
_NOTHING: deque[PendingAppend] = deque(maxlen=0)


class Appends:
    """Of one partition, while it leads. The three pending queues are in log order."""

    __slots__ = (
        "_all", "_duplicates", "_gathered", "_gathered_bytes", "_leader", "_quorum", "_room", "gathered_records",
    )  # fmt: skip

    def __init__(self, room: NodeRoom) -> None:
        self._room = room
        self._gathered: list[Gathered] = []
        self._gathered_bytes = 0
        self.gathered_records = 0
        # Made when first needed: an empty deque weighs 600 bytes, and most partitions of a node are idle.
        self._leader = self._quorum = self._all = _NOTHING
        # Of requests that are not answered yet: offset -> offset of the original message.
        self._duplicates: dict[int, int] | None = None

    @property
    def is_idle(self) -> bool:
        """Does nobody wait for anything?"""
        return not (self._gathered or self._leader or self._quorum or self._all)

    def take(self, token: Token, payload: bytes, check: Callable[[SendRequest], int] = _check_nothing) -> None:
        """Raises StorageError or msgspec.DecodeError when the request cannot be proposed; `check` may refuse it too. It
        says how large batches with these records may be."""
        request = _send_request.decode(payload)
        _check(request)
        batch_bytes_max = check(request)
        if len(self._gathered) >= PROPOSALS_PENDING_MAX or self._gathered_bytes > PROPOSALS_PENDING_BYTES_MAX:
            raise self._room.refusal("too many sends of this partition wait for the disk")
        self._room.require_room(self._gathered_bytes)
        self._gathered.append((token, request, batch_bytes_max))
        self._hold(self._gathered_bytes + len(payload))
        self.gathered_records += len(request.bodies)

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
        groups: dict[tuple[bool, int, int], list[Gathered]] = {}
        for item in gathered:
            groups.setdefault((item[1].plain, _acks_of(item[1]), item[2]), []).append(item)
        for (plain, acks, batch_bytes_max), items in groups.items():
            self._propose_group(replica, items, plain, acks, batch_bytes_max, now_ms)

    def _hold(self, size_bytes: int) -> None:
        """So many bytes gather here now."""
        self._room.budget.take(Kind.SENDS, size_bytes - self._gathered_bytes)
        self._gathered_bytes = size_bytes

    def _keep_excess(self, gathered: list[Gathered], share_bytes: int) -> list[Gathered]:
        size = taken = 0
        while taken < len(gathered) and size <= share_bytes - BATCH_BYTES_MAX:
            size += sum(map(len, gathered[taken][1].bodies))
            taken += 1
        self._gathered = gathered[taken:]
        self._hold(sum(len(body) for _, request, _ in self._gathered for body in request.bodies))
        self.gathered_records = sum(len(request.bodies) for _, request, _ in self._gathered)
        return gathered[:taken]

    def duplicated(self, pairs: list[tuple[int, int]]) -> None:
        """The fold found these to repeat an id: (offset, offset of the original). They are answered with it."""
        if self._duplicates is None:
            self._duplicates = {}
        self._duplicates.update(pairs)

    def progressed(self, durable_end: int, commit: int, replicated: int) -> None:
        """Answer everything that is safe enough now. A batch for all voters also waits for its commit."""
        quorum = self._quorum
        while quorum and quorum[0].end_offset <= commit:
            self._answer(quorum.popleft())
        while self._leader and self._leader[0].end_offset <= durable_end:
            self._answer(self._leader.popleft())
        while self._all and self._all[0].end_offset <= min(replicated, commit):
            self._answer(self._all.popleft())

    def fail(self, leader: int) -> None:
        """We lead no more: what was not proposed may be tried elsewhere, whether the rest was kept is unknown."""
        gathered, self._gathered = self._gathered, []
        self._hold(0)
        self.gathered_records = 0
        for token, _, _ in gathered:
            token.connection.refuse(token, StorageError(ErrorCode.NOT_LEADER, "leadership was lost", leader))
        error = StorageError(ErrorCode.OUTCOME_UNKNOWN, "the leader changed before the append was committed")
        for waiting in (self._leader, self._quorum, self._all):
            for pending in waiting:
                for token, _ in pending.requests:
                    token.connection.refuse(token, error)
        self._leader = self._quorum = self._all = _NOTHING
        self._duplicates = None

    def _propose_group(
        self, replica: Replica, items: list[Gathered], plain: bool, acks: int, bytes_max: int, now_ms: int
    ) -> None:
        bodies: list[bytes] = []
        requests: list[tuple[Token, int]] = []
        base = replica.log.log_end
        size = 0
        for token, request, _ in items:
            added = sum(map(len, request.bodies))
            if bodies and (size + added > bytes_max or len(bodies) + len(request.bodies) > BATCH_RECORDS_MAX):
                self._append(replica, bodies, requests, plain, acks, now_ms)
                bodies, requests, base, size = [], [], replica.log.log_end, 0
            size += added
            requests.append((token, base + len(bodies)))
            bodies += request.bodies
            while size > bytes_max and len(bodies) > 1:
                # One request that is too large: it is answered with its last batch.
                bodies, size = _append_first(replica, bodies, plain, bytes_max, now_ms)
                base = replica.log.log_end
        self._append(replica, bodies, requests, plain, acks, now_ms)

    def _append(
        self,
        replica: Replica,
        bodies: list[bytes],
        requests: list[tuple[Token, int]],
        plain: bool,
        acks: int,
        now_ms: int,
    ) -> None:
        pending = PendingAppend(replica.append_own(bodies, now_ms, plain=plain), now_ms, requests, plain)
        if acks == Acks.QUORUM:
            if self._quorum is _NOTHING:
                self._quorum = deque()
            self._quorum.append(pending)
        elif acks == Acks.ALL:
            if self._all is _NOTHING:
                self._all = deque()
            self._all.append(pending)
        elif acks == Acks.LEADER:
            if self._leader is _NOTHING:
                self._leader = deque()
            self._leader.append(pending)
        else:
            self._answer(pending)

    def _answer(self, pending: PendingAppend) -> None:
        end_offset, timestamp_ms, requests, plain = pending
        if not plain and self._duplicates:
            self._answer_with_duplicates(end_offset, timestamp_ms, requests, self._duplicates)
            return
        for token, first_offset in requests:
            token.connection.answer(token, encode_message(SendReply(first_offset, timestamp_ms)))

    def _answer_with_duplicates(
        self, end_offset: int, timestamp_ms: int, requests: list[tuple[Token, int]], known: dict[int, int]
    ) -> None:
        ends = [first_offset for _, first_offset in requests[1:]] + [end_offset]
        for (token, first_offset), end in zip(requests, ends, strict=True):
            offsets = [offset for offset in range(first_offset, end) if offset in known]
            duplicates = [(offset - first_offset, known.pop(offset)) for offset in offsets]
            token.connection.answer(token, encode_message(SendReply(first_offset, timestamp_ms, duplicates)))


def _append_first(
    replica: Replica, bodies: list[bytes], plain: bool, bytes_max: int, now_ms: int
) -> tuple[list[bytes], int]:
    """Stage as many of these as a batch may hold, one at least; the others, and their size."""
    ends = list(accumulate(map(len, bodies)))
    count = max(bisect_right(ends, bytes_max), 1)
    replica.append_own(bodies[:count], now_ms, plain=plain)
    return bodies[count:], ends[-1] - ends[count - 1]


def _check(request: SendRequest) -> None:
    bodies = request.bodies
    if not 1 <= len(bodies) <= RECORDS_PER_SEND_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"a send holds 1 to {RECORDS_PER_SEND_MAX} records")
    if max(map(len, bodies)) > RECORD_BYTES_MAX or sum(map(len, bodies)) > BATCH_BYTES_MAX:
        raise StorageError(ErrorCode.TOO_LARGE, f"a record holds at most {RECORD_BYTES_MAX} bytes")
    if not Acks.NONE <= request.acks <= Acks.ALL:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"acks {request.acks} is not known")


def _acks_of(request: SendRequest) -> int:
    """Whether a message repeats an id is known when it is committed and not before (R28)."""
    return request.acks if request.plain else max(request.acks, Acks.QUORUM)
