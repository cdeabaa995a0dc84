"""Readers parked at the end of a stream. Any new message wakes all of them."""

from __future__ import annotations

import heapq
from collections.abc import Hashable

Token = Hashable

# Entries of readers that are gone which the heap may hold beside as many valid ones again.
_GARBAGE_MAX = 256


class Readers:
    __slots__ = ("_deadlines", "_next_number", "_parked")

    def __init__(self) -> None:
        self._parked: dict[Token, tuple[int, int, int]] = {}  # (until_ms, number, offset)
        self._deadlines: list[tuple[int, int, Token]] = []  # heap of (until_ms, number, token), lazy deletion
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, token: Token, offset: int, until_ms: int) -> None:
        assert token not in self._parked, "two requests with one token"
        self._next_number += 1
        self._parked[token] = (until_ms, self._next_number, offset)
        heapq.heappush(self._deadlines, (until_ms, self._next_number, token))
        if len(self._deadlines) > 2 * len(self._parked) + _GARBAGE_MAX:
            self._deadlines = [(until, number, name) for name, (until, number, _) in self._parked.items()]
            heapq.heapify(self._deadlines)

    def remove(self, token: Token) -> bool:
        return self._parked.pop(token, None) is not None

    def remove_all(self) -> list[tuple[Token, int]]:
        """(token, offset) of everyone, first come first."""
        parked, self._parked, self._deadlines = self._parked, {}, []
        return [(token, offset) for token, (_, _, offset) in parked.items()]

    def remove_overdue(self, now_ms: int) -> list[tuple[Token, int]]:
        overdue: list[tuple[Token, int]] = []
        while 0 < self.next_deadline_ms() <= now_ms:
            _, _, token = heapq.heappop(self._deadlines)
            overdue.append((token, self._parked.pop(token)[2]))
        return overdue

    def next_deadline_ms(self) -> int:
        """0 = none."""
        deadlines = self._deadlines
        while deadlines and self._parked.get(deadlines[0][2], (0, -1, 0))[1] != deadlines[0][1]:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else 0
