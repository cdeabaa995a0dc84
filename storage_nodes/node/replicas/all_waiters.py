"""Sends that wait for every voter (acks = ALL): while one is away, until it is back or their callers give up.

Whoever gives up (CANCEL, or the connection is lost) is told that the outcome is unknown, and counts no more: not as a
request in flight, not against the bound of the partition. The append itself stays in the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

from storage_nodes.limits import ALL_WAITERS_PER_PARTITION_MAX
from storage_nodes.node.replicas.repeats import Waiting, overloaded
from storage_nodes.node.transport.connections import NodeConnection, Token
from storage_nodes.protocol.errors import ErrorCode, StorageError

# Given up and still in the queue: so many at least before they are taken out, all at once.
SWEEP_MIN = 64


class PendingAppend(NamedTuple):
    """Requests whose records stand in one batch."""

    end_offset: int
    requests: list[Waiting]
    plain: bool


class _Nobody:
    """Who is answered where every caller gave up."""

    def answer(self, token: Token, payload: bytes) -> None:
        pass

    def refuse(self, token: Token, error: StorageError) -> None:
        pass


_GIVEN_UP = Token(cast(NodeConnection, _Nobody()), 0, 0)


def _is_given_up(waiting: Waiting) -> bool:
    """By whoever asked, and by all who repeated it."""
    return waiting.token is _GIVEN_UP and not waiting.more


class AllWaiters:
    """Of one partition, while it is led here."""

    __slots__ = ("_given_up", "_pending", "_waiters")

    def __init__(self) -> None:
        self._pending: deque[PendingAppend] = deque()  # by end offset
        self._waiters: dict[Token, Waiting] = {}
        self._given_up = 0

    def __bool__(self) -> bool:
        return bool(self._pending)

    def require_room(self, token: Token) -> None:
        """Raises StorageError."""
        if token in self._waiters:
            raise StorageError(ErrorCode.INVALID_REQUEST, f"request {token.request_id} is under way already")
        if len(self._waiters) >= ALL_WAITERS_PER_PARTITION_MAX:
            raise overloaded("too many sends of this partition wait for all replicas")

    def add(self, token: Token, partition: int, waiting: Waiting) -> None:
        """This caller waits from now on, and may give up."""
        self._waiters[token] = waiting
        token.connection.parked[token.request_id] = (partition, token.opcode)

    def wait(self, pending: PendingAppend) -> None:
        """A batch is in the log."""
        queue = self._pending
        place = len(queue)
        while place and queue[place - 1].end_offset > pending.end_offset:
            place -= 1
        queue.insert(place, pending)

    def progressed(self, end_offset: int, answer: Callable[[PendingAppend], None]) -> None:
        """All voters have the log up to here, and it is folded."""
        queue = self._pending
        while queue and queue[0].end_offset <= end_offset:
            pending = queue.popleft()
            for one in pending.requests:
                for token in (one.token, *(one.more or ())):
                    self._waiters.pop(token, None)
            answer(pending)

    def fail(self, error: StorageError) -> None:
        for pending in self._pending:
            for one in pending.requests:
                one.refuse(error)

    def give_up(self, token: Token) -> bool:
        """False: it does not wait here."""
        waiting = self._waiters.pop(token, None)
        if waiting is None:
            return False
        more = waiting.more
        if waiting.token == token:
            waiting.token = more.pop() if more else _GIVEN_UP
        else:
            assert more is not None, "it joined"
            more.remove(token)
        self._given_up += _is_given_up(waiting)
        token.connection.refuse(token, StorageError(ErrorCode.OUTCOME_UNKNOWN, "given up before all replicas had it"))
        return True

    def sweep(self, unfolded_from: int) -> list[Waiting]:
        """Take out those for whom nobody waits, once they are many: there is one place at most for each that is given
        up and one for each that waits. What is not folded yet stays, since a repeat may still join it."""
        if self._given_up <= max(SWEEP_MIN, len(self._waiters)):
            return []
        self._given_up = 0
        dropped: list[Waiting] = []
        kept: deque[PendingAppend] = deque()
        for pending in self._pending:
            if pending.end_offset < unfolded_from:
                # The list itself is not ours alone.
                dropped += filter(_is_given_up, pending.requests)
                pending = pending._replace(requests=[one for one in pending.requests if not _is_given_up(one)])
            if pending.requests:
                kept.append(pending)
        self._pending = kept
        return dropped
