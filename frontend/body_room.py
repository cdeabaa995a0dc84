"""Room for request bodies that come in several reads, or are large: each gets room for all of its bytes, or waits.

An address over its share waits, and is read no further: the first bytes of a body are here, the rest is with the
client. A body that has its room needs nothing from one that waits, so it always comes to its end.

    place    the bytes of one body, as its Content-Length says (REQUEST_BODY_BYTES_MAX where nothing says it), from its
             second read to its answer; of one that came in one read from there on
    waiter   a body without a place; it counts as BODY_WAITING_BYTES until it has one or is refused
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from frontend.client_bytes import HeldBytes
from frontend.limits import BODIES_HELD_BYTES_MAX, BODIES_WAITING_BYTES_MAX, BODY_WAIT_S_MAX, BODY_WAITING_BYTES


class NoRoom(Exception):
    """The holder has as many waiters as it may, or the wait took BODY_WAIT_S_MAX."""


class _Waiter(NamedTuple):
    count_bytes: int
    admitted: asyncio.Future[None]


class BodyRoom:
    """`held`: places, `waiting`: what waiters hold; each holder has its share of both. One holder's waiters get their
    places in the order in which they came."""

    def __init__(self, held_bytes_max: int, waiting_bytes_max: int) -> None:
        self.held = HeldBytes(held_bytes_max)
        self.waiting = HeldBytes(waiting_bytes_max)
        self._waiters: dict[str, deque[_Waiter]] = {}

    async def take(self, holder: str, count_bytes: int) -> None:
        """Returns when the body has its place. Raises NoRoom."""
        if self.has_room(holder, count_bytes):
            self.held.change(holder, count_bytes)
            return
        if not self.waiting.fits(holder, BODY_WAITING_BYTES):
            raise NoRoom
        await self._wait(holder, _Waiter(count_bytes, asyncio.get_running_loop().create_future()))

    def has_room(self, holder: str, count_bytes: int) -> bool:
        """Would `take` return at once?"""
        return holder not in self._waiters and self.held.fits(holder, count_bytes)

    def give_back(self, holder: str, count_bytes: int) -> None:
        self.held.change(holder, -count_bytes)
        if self._waiters:
            self._admit()

    async def _wait(self, holder: str, waiter: _Waiter) -> None:
        self.waiting.change(holder, BODY_WAITING_BYTES)
        self._waiters.setdefault(holder, deque()).append(waiter)
        try:
            async with asyncio.timeout(BODY_WAIT_S_MAX):
                await waiter.admitted
        except BaseException as error:
            if waiter.admitted.done() and not waiter.admitted.cancelled():
                self.give_back(holder, waiter.count_bytes)
            else:
                self._leave(holder, waiter)
            if isinstance(error, TimeoutError):
                raise NoRoom from None
            raise
        finally:
            self.waiting.change(holder, -BODY_WAITING_BYTES)

    def _leave(self, holder: str, waiter: _Waiter) -> None:
        waiters = self._waiters.get(holder)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[holder]
            self._admit()  # one that wants less may have stood behind it

    def _admit(self) -> None:
        """Each byte that is given back makes the share of every holder larger."""
        for holder, waiters in list(self._waiters.items()):
            while waiters and self.held.fits(holder, waiters[0].count_bytes):
                waiter = waiters.popleft()
                if not waiter.admitted.done():  # else it was cancelled, and its task has not run yet
                    self.held.change(holder, waiter.count_bytes)
                    waiter.admitted.set_result(None)
            if not waiters:
                del self._waiters[holder]


body_room = BodyRoom(BODIES_HELD_BYTES_MAX, BODIES_WAITING_BYTES_MAX)
