"""Appends under way at a leader: who is answered when, by the acks they asked for."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from storage_nodes.model import Acks
from storage_nodes.node.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply, encode_message


class PendingAppend(NamedTuple):
    """Requests whose records stand in one batch; each (token, offset of its first record)."""

    end_offset: int
    timestamp_ms: int
    requests: list[tuple[Token, int]]


class PendingAppends:
    """Three queues, each in log order: waiting for our own disk, for a majority, for every voter."""

    __slots__ = ("_all", "_leader", "_quorum")

    def __init__(self) -> None:
        self._leader: deque[PendingAppend] = deque()
        self._quorum: deque[PendingAppend] = deque()
        self._all: deque[PendingAppend] = deque()

    def add(self, acks: int, pending: PendingAppend) -> None:
        if acks == Acks.QUORUM:
            self._quorum.append(pending)
        elif acks == Acks.ALL:
            self._all.append(pending)
        elif acks == Acks.LEADER:
            self._leader.append(pending)
        else:
            _answer(pending)

    def progressed(self, durable_end: int, commit: int, replicated: int) -> None:
        """Answer everything that is safe enough now. A batch for all voters also waits for its commit."""
        quorum = self._quorum
        while quorum and quorum[0].end_offset <= commit:
            _answer(quorum.popleft())
        while self._leader and self._leader[0].end_offset <= durable_end:
            _answer(self._leader.popleft())
        while self._all and self._all[0].end_offset <= min(replicated, commit):
            _answer(self._all.popleft())

    def fail(self) -> None:
        """We lead no more: whether these were kept is unknown."""
        error = StorageError(ErrorCode.OUTCOME_UNKNOWN, "the leader changed before the append was committed")
        for waiting in (self._leader, self._quorum, self._all):
            for pending in waiting:
                for token, _ in pending.requests:
                    token.connection.refuse(token, error)
            waiting.clear()


def _answer(pending: PendingAppend) -> None:
    for token, first_offset in pending.requests:
        token.connection.answer(token, encode_message(SendReply(first_offset, pending.timestamp_ms)))
