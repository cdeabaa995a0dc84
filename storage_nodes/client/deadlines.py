"""When calls are given up, where all have the same time: one timer for all of them instead of one each.

They end in the order in which they began, so the timer is set for the first that is not over. Those that are over leave
when they come first, or when there are too many of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from storage_nodes.client.suspensions import Suspensions

# Calls that are over and may wait beside as many that are not.
OVER_KEPT_MAX = 64


class Ending(Protocol):
    """A call: when it is to be given up, on the clock of the loop."""

    deadline_s: float

    @property
    def is_over(self) -> bool: ...

    def give_up(self) -> None: ...


class Deadlines:
    """Calls `give_up` of each call that is not over at its deadline."""

    __slots__ = ("_calls", "_calls_max", "_suspensions", "_timer")

    def __init__(self, suspensions: Suspensions) -> None:
        self._suspensions = suspensions
        self._calls: deque[Ending] = deque()
        self._calls_max = OVER_KEPT_MAX
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, loop: asyncio.AbstractEventLoop, call: Ending) -> None:
        """Its deadline is not before that of any other."""
        calls = self._calls
        calls.append(call)
        if self._timer is None:
            self._timer = loop.call_at(call.deadline_s, self._ring, loop)
        if len(calls) > self._calls_max:
            self._calls = deque(other for other in calls if not other.is_over)
            self._calls_max = 2 * len(self._calls) + OVER_KEPT_MAX

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        self._suspensions.look(now_s)
        try:
            while self._calls and (self._calls[0].is_over or self._calls[0].deadline_s <= now_s):
                call = self._calls.popleft()
                if not call.is_over:
                    call.give_up()
        finally:
            # Only now: what is added by those that were given up waits for it. A call that fails takes no other along.
            self._timer = loop.call_at(self._calls[0].deadline_s, self._ring, loop) if self._calls else None
