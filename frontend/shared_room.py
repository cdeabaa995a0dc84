"""Room that holders share: each gets a place, or waits in order behind others of its own until it fits its share.

    place    what is held: bytes, or one call
    waiter   one without a place; it holds something, too, and the room for waiters is shared by the same rule

The share is that of `client_bytes.HeldBytes`: no holder may have more than is still free for the others.

Surface: other planes may import this module.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from frontend.client_bytes import HeldBytes


class NoRoom(Exception):
    """The holder has as many waiters as it may, or the wait took too long."""


class _Waiter(NamedTuple):
    amount: int
    admitted: asyncio.Future[None]


class SharedRoom:
    """`held`: places, `waiting`: what waiters hold, `waiter_amount` each. One holder's waiters get their places in the
    order in which they came. Of one event loop."""

    def __init__(self, held_max: int, waiting_max: int, waiter_amount: int, wait_s_max: float) -> None:
        self.held = HeldBytes(held_max)
        self.waiting = HeldBytes(waiting_max)
        self.wait_s_max = wait_s_max
        self._waiter_amount = waiter_amount
        self._waiters: dict[str, deque[_Waiter]] = {}

    async def take(self, holder: str, amount: int) -> None:
        """Returns when the holder has its place. Raises NoRoom."""
        if self.has_room(holder, amount):
            self.held.change(holder, amount)
            return
        if not self.waiting.fits(holder, self._waiter_amount):
            raise NoRoom
        await self._wait(holder, _Waiter(amount, asyncio.get_running_loop().create_future()))

    def has_room(self, holder: str, amount: int) -> bool:
        """Would `take` return at once?"""
        return holder not in self._waiters and self.held.fits(holder, amount)

    def give_back(self, holder: str, amount: int) -> None:
        self.held.change(holder, -amount)
        if self._waiters:
            self._admit()

    async def _wait(self, holder: str, waiter: _Waiter) -> None:
        self.waiting.change(holder, self._waiter_amount)
        self._waiters.setdefault(holder, deque()).append(waiter)
        try:
            async with asyncio.timeout(self.wait_s_max):
                await waiter.admitted
        except BaseException as error:
            if waiter.admitted.done() and not waiter.admitted.cancelled():
                self.give_back(holder, waiter.amount)
            else:
                self._leave(holder, waiter)
            if isinstance(error, TimeoutError):
                raise NoRoom from None
            raise
        finally:
            self.waiting.change(holder, -self._waiter_amount)

    def _leave(self, holder: str, waiter: _Waiter) -> None:
        waiters = self._waiters.get(holder)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[holder]
            self._admit()  # one that wants less may have stood behind it

    def _admit(self) -> None:
        """What is given back makes the share of every holder larger."""
        for holder, waiters in list(self._waiters.items()):
            while waiters and self.held.fits(holder, waiters[0].amount):
                waiter = waiters.popleft()
                if not waiter.admitted.done():  # else it was cancelled, and its task has not run yet
                    self.held.change(holder, waiter.amount)
                    waiter.admitted.set_result(None)
            if not waiters:
                del self._waiters[holder]
