"""How many look-ups by a name may turn out to have found nothing. Each is paid for when it begins and given back when
it found something; one that finds nothing left waits while others are under way, which may give back theirs.

So any number of keys that exist may be looked up at once, and keys that do not exist cost the metadata service no more
than the rate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from frontend.errors import throttled
from frontend.limits import LOOKUPS_WAITING_MAX
from frontend.limits.gcra import LeakyBuckets


class LookupGate:
    """`enter` before a look-up, `leave` after it."""

    def __init__(self, per_s: float, steady_s: Callable[[], float]) -> None:
        self._buckets = LeakyBuckets(per_s)
        self._steady_s = steady_s
        self._under_way: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting_count = 0

    async def enter(self, name: str) -> None:
        """Raises RequestError where nothing is left, and nothing can come back."""
        while True:
            wait_s = self._buckets.admit(name, self._steady_s())
            if not wait_s:
                self._under_way[name] = self._under_way.get(name, 0) + 1
                return
            if name not in self._under_way or self._waiting_count >= LOOKUPS_WAITING_MAX:
                raise throttled(wait_s, "too many keys that do not exist were shown")
            await self._wait(name)

    def leave(self, name: str, found_nothing: bool) -> None:
        if not found_nothing:
            self._buckets.give_back(name)
        left = self._under_way[name] - 1
        if left:
            self._under_way[name] = left
        else:
            del self._under_way[name]
        waiting = self._waiting.get(name)
        if waiting is not None:
            # The last one wakes all: nobody would wake them later.
            for _ in range(min(1, len(waiting)) if left else len(waiting)):
                _wake(waiting.popleft())

    async def _wait(self, name: str) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(name, deque())
        waiting.append(ended)
        self._waiting_count += 1
        try:
            await ended
        finally:
            self._waiting_count -= 1
            if not waiting and self._waiting.get(name) is waiting:
                del self._waiting[name]


def _wake(ended: asyncio.Future[None]) -> None:
    if not ended.done():  # its client may have left
        ended.set_result(None)
