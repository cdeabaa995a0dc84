"""Long polls: acquires that found nothing and wait, first come, first served.

Parked at the leader only. Serving and cancelling are O(1) per waiter; deadlines stand in a heap with lazy deletion.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import NamedTuple

from storage_nodes.machines.driver_contract import Token
from storage_nodes.machines.queue.effects import Tags

# Entries of waiters that are gone which the heap may hold beside as many valid ones again.
_GARBAGE_MAX = 256


class Waiter(NamedTuple):
    token: Token
    messages_max: int
    visibility_ms: int
    until_ms: int
    number: int
    is_long_poll: bool  # False: a short poll that waits only for a read of the log, or a commit, that is under way
    attempt: bytes
    tags: Tags


_Line = OrderedDict[Token, Waiter]


class Waiters:
    """All in one line. Once tags are tracked, those that ask for whatever there is stand in a line of their own too,
    and the others in one a tag: the first that came is served first, in whichever line; a line is looked at when
    something of its tag came.
    """

    __slots__ = ("_deadlines", "_hasty", "_next_number", "_untagged", "_waiting", "by_tag")

    def __init__(self) -> None:
        self._waiting: _Line = OrderedDict()
        self._deadlines: list[tuple[int, int, Token]] = []  # heap of (until_ms, number, token)
        self._hasty: list[Token] = []  # short polls, in order; may name some that are gone
        self._next_number = 0
        self._untagged: _Line | None = None  # None: tags are not tracked
        self.by_tag: dict[bytes, _Line] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def track_tags(self) -> None:
        """Nobody who waits already asks for tags."""
        self._untagged = self._waiting.copy()

    def park(
        self,
        token: Token,
        messages_max: int,
        visibility_ms: int,
        until_ms: int,
        is_long_poll: bool,
        attempt: bytes,
        tags: Tags = (),
    ) -> None:
        assert token not in self._waiting, "two requests with one token"
        self._next_number += 1
        waiter = Waiter(token, messages_max, visibility_ms, until_ms, self._next_number, is_long_poll, attempt, tags)
        self._waiting[token] = waiter
        heapq.heappush(self._deadlines, (until_ms, waiter.number, token))
        if not is_long_poll:
            self._hasty.append(token)
            if len(self._hasty) > 2 * len(self._waiting) + _GARBAGE_MAX:
                self._hasty = [one for one in self._hasty if one in self._waiting]
        if self._untagged is not None:
            for tag in tags:
                self.by_tag.setdefault(tag, OrderedDict())[token] = waiter
            if not tags:
                self._untagged[token] = waiter
        if len(self._deadlines) > 2 * len(self._waiting) + _GARBAGE_MAX:
            self._deadlines = [(w.until_ms, w.number, w.token) for w in self._waiting.values()]
            heapq.heapify(self._deadlines)

    def first(self) -> Waiter:
        return next(iter(self._waiting.values()))

    def first_untagged(self) -> Waiter | None:
        return next(iter(self._untagged.values()), None) if self._untagged else None

    def first_of(self, tag: bytes) -> Waiter | None:
        line = self.by_tag.get(tag)
        return next(iter(line.values())) if line else None

    def remove(self, token: Token) -> bool:
        waiter = self._waiting.pop(token, None)
        if waiter is None:
            return False
        if self._untagged is not None:
            self._untagged.pop(token, None)
            for tag in waiter.tags:
                line = self.by_tag[tag]
                del line[token]
                if not line:
                    del self.by_tag[tag]
        return True

    def remove_first(self) -> None:
        """Where tags are not tracked."""
        self._waiting.popitem(last=False)

    def remove_hasty(self) -> list[Token]:
        short_polls, self._hasty = self._hasty, []
        return [token for token in short_polls if token in self._waiting and self.remove(token)]

    def remove_overdue(self, now_ms: int) -> list[Token]:
        overdue: list[Token] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms:
            _, number, token = heapq.heappop(deadlines)
            if self._is_waiting(token, number):
                self.remove(token)
                overdue.append(token)
        return overdue

    def next_deadline_ms(self) -> int:
        """0 = none."""
        deadlines = self._deadlines
        while deadlines and not self._is_waiting(deadlines[0][2], deadlines[0][1]):
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else 0

    def tokens(self) -> list[Token]:
        return list(self._waiting)

    def _is_waiting(self, token: Token, number: int) -> bool:
        waiter = self._waiting.get(token)
        return waiter is not None and waiter.number == number
