"""How many look-ups by a name may turn out to have found nothing. Each is paid for when it begins and given back when
it found something. One that finds nothing left waits for what others under way give back, in the order of arrival, for
LOOKUP_WAIT_S_MAX at most: under a stream of names that do not exist there is always one under way, and a request that
waited for the last would be answered when its client has given up.

So any number of keys that exist may be looked up at once, and keys that do not exist cost the metadata service the rate
at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from frontend.errors import throttled
from frontend.limits import LOOKUP_WAIT_S_MAX, LOOKUPS_WAITING_MAX
from frontend.limits.gcra import LeakyBuckets


class LookupGate:
    """`enter` before a look-up, `leave` after it."""

    def __init__(self, per_s: float, steady_s: Callable[[], float]) -> None:
        self._interval_s = 1 / per_s
        self._buckets = LeakyBuckets(per_s)
        self._steady_s = steady_s
        self._under_way: dict[str, int] = {}
        # The oldest first; each is told whether it may go on.
        self._waiting: dict[str, dict[asyncio.Future[bool], None]] = {}
        self._waiting_count = 0

    async def enter(self, name: str) -> None:
        """Raises RequestError where nothing is left, and nothing came back in time."""
        if name not in self._waiting and self._admit(name):
            return
        is_full = self._waiting_count >= LOOKUPS_WAITING_MAX
        if is_full or name not in self._under_way or not await self._wait(name):
            raise throttled(self._interval_s, "too many keys that do not exist were shown")

    def leave(self, name: str, found_nothing: bool) -> None:
        if not found_nothing:
            self._buckets.give_back(name)
        left = self._under_way[name] - 1
        if left:
            self._under_way[name] = left
        else:
            del self._under_way[name]
        self._let_in(name)

    def _admit(self, name: str) -> bool:
        if self._buckets.admit(name, self._steady_s()):
            return False
        self._under_way[name] = self._under_way.get(name, 0) + 1
        return True

    def _let_in(self, name: str) -> None:
        """Of those that wait as many as there is room for. None is under way any more: the others are refused, since
        nobody would wake them later."""
        waiting = self._waiting.get(name, {})
        while waiting:
            ended = next(iter(waiting))
            if ended.cancelled():  # its client left in this moment
                self._forget(name, ended)
            elif self._admit(name):
                self._tell(name, ended, True)
            elif name in self._under_way:
                return
            else:
                self._tell(name, ended, False)

    def _tell(self, name: str, ended: asyncio.Future[bool], may_go_on: bool) -> None:
        self._forget(name, ended)
        ended.set_result(may_go_on)

    async def _wait(self, name: str) -> bool:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[bool] = loop.create_future()
        self._waiting.setdefault(name, {})[ended] = None
        self._waiting_count += 1
        late = loop.call_later(LOOKUP_WAIT_S_MAX, self._refuse_late, name, ended)
        try:
            return await ended
        except asyncio.CancelledError:  # its client left
            if ended.cancelled():
                self._forget(name, ended)
            elif ended.result():
                self.leave(name, found_nothing=False)
            raise
        finally:
            late.cancel()
            self._waiting_count -= 1

    def _refuse_late(self, name: str, ended: asyncio.Future[bool]) -> None:
        if not ended.done():
            self._tell(name, ended, False)

    def _forget(self, name: str, ended: asyncio.Future[bool]) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None and ended in waiting:
            del waiting[ended]
            if not waiting:
                del self._waiting[name]
