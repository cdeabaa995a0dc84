"""How many look-ups by a name may turn out to have found nothing. Each is paid for when it begins and given back when
it found something; one that finds nothing left waits while others are under way, which may give back theirs.

So any number of keys that exist may be looked up at once, and keys that do not exist cost the metadata service the rate
at most.
"""

from __future__ import annotations

import asyncio
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
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}  # the oldest first
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
            for ended in [next(iter(waiting))] if left else list(waiting):
                self._forget(name, ended)
                if not ended.done():  # its client may have left in this moment
                    ended.set_result(None)

    async def _wait(self, name: str) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, {})[ended] = None
        self._waiting_count += 1
        try:
            await ended
        except asyncio.CancelledError:
            self._forget(name, ended)  # its client left
            raise
        finally:
            self._waiting_count -= 1

    def _forget(self, name: str, ended: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None and ended in waiting:
            del waiting[ended]
            if not waiting:
                del self._waiting[name]
