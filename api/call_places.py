"""Places of the calls that this process works on: fewer than it has connections to the database, and nobody takes all
of them. One holder, an account or an address, has half at most; the next one finds a place.

    place         a call has one until it is answered. Who has its share waits, in order and on the event loop: without
                  a thread or a connection
    definitions   comparisons and imports of definitions have, before that, a place among few of their own

A call that waits for storage (`release_while_waiting`) needs neither place nor connection while it does, nor for its
looks at a row now and then: for these DATABASE_POOL_MAX leaves some. A call whose connection carries something, a
transaction or a lock, keeps both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from asgiref.sync import sync_to_async
from django.db import connection
from prometheus_client import Counter, Gauge

from api import limits
from frontend.shared_room import NoRoom, SharedRoom

# Of this process. Read at /metrics of the control plane.
CALLS_UNDER_WAY = Gauge("penstock_control_calls_under_way", "Calls that have a place.")
CALLS_WAITING = Gauge("penstock_control_calls_waiting", "Calls that wait for a place.")
CALLS_REFUSED = Counter(
    "penstock_control_calls_refused",
    "Calls refused: their holder had its share, or all places were taken.",
    ("reason",),
)


class NoPlace(Exception):
    """`has_share`: the holder has all that it gets; else the others have taken everything."""

    def __init__(self, has_share: bool) -> None:
        super().__init__(has_share)
        self.has_share = has_share


_current: ContextVar[CallPlace] = ContextVar("call_place")


class CallPlace:
    """Of one call, until it is answered or waits for storage."""

    def __init__(self, room: SharedRoom, holder: str) -> None:
        self._room = room
        self._holder = holder
        self._loop = asyncio.get_running_loop()
        self._is_held = True
        # How many reasons there are to keep place and connection while the call waits.
        self.kept = 0

    @contextmanager
    def current(self) -> Iterator[None]:
        """What runs in here is the call."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def give_back(self) -> None:
        """The room is of its event loop; also safe to call where the place is not held any more."""
        if asyncio.get_running_loop() is self._loop:
            self._give_back()
        else:
            self._loop.call_soon_threadsafe(self._give_back)

    def _give_back(self) -> None:
        if self._is_held:
            self._is_held = False
            self._room.give_back(self._holder, 1)


class CallPlaces:
    def __init__(self, calls_max: int, definitions_max: int) -> None:
        self.calls = _room(calls_max)
        self.definitions = _room(definitions_max)
        CALLS_UNDER_WAY.set_function(lambda: self.calls.held.held_bytes)
        CALLS_WAITING.set_function(lambda: self.calls.waiting.held_bytes + self.definitions.waiting.held_bytes)

    @asynccontextmanager
    async def place(self, holder: str, is_definitions: bool) -> AsyncIterator[CallPlace]:
        """Around one call. Raises NoPlace before it begins."""
        if not is_definitions:
            async with self._one(holder) as place:
                yield place
            return
        await _take(self.definitions, holder)
        try:
            async with self._one(holder) as place:
                place.kept += 1  # an import goes on for long behind its first wait
                yield place
        finally:
            self.definitions.give_back(holder, 1)

    @asynccontextmanager
    async def _one(self, holder: str) -> AsyncIterator[CallPlace]:
        await _take(self.calls, holder)
        place = CallPlace(self.calls, holder)
        try:
            yield place
        finally:
            place.give_back()


async def release_while_waiting() -> None:
    """Before a call waits for storage, and again behind each look meanwhile: neither place nor connection is kept."""
    place = _current.get(None)
    if place is not None and not place.kept and await sync_to_async(_close_connection)():
        place.give_back()


@contextmanager
def connection_kept() -> Iterator[None]:
    """What hangs on the session of the database, in here, is not lost by a wait for storage."""
    place = _current.get(None)
    if place is None:
        yield
        return
    place.kept += 1
    try:
        yield
    finally:
        place.kept -= 1


def _room(calls_max: int) -> SharedRoom:
    return SharedRoom(calls_max, limits.CALLS_WAITING_MAX, 1, limits.CALL_WAIT_S_MAX)


async def _take(room: SharedRoom, holder: str) -> None:
    try:
        await room.take(holder, 1)
    except NoRoom:
        has_share = room.held.held_by(holder) > 0
        CALLS_REFUSED.labels("share" if has_share else "full").inc()
        raise NoPlace(has_share) from None


def _close_connection() -> bool:
    """Of the thread of the call."""
    if connection.in_atomic_block:
        return False
    connection.close()
    return True
