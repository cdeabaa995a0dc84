"""Receiving: credit that follows what is settled, and batches in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

from penstock_client.link import Link
from penstock_client.messages import Batch
from penstock_client.wire import frame_of


class Receiving(AsyncIterator[Batch]):
    """One receive. It ends with its last batch, by `aclose`, or when it is left (`break`) and nothing holds it: a
    generator would end a turn of the event loop later, and the next receive find the queue taken."""

    def __init__(
        self, consuming: Consuming, prefetch: int, tags: Sequence[str], limit: int | None, idle_s: float | None
    ) -> None:
        self._consuming = consuming
        self._asked = (prefetch, tags, limit)
        self._idle_s = idle_s
        self._has_begun = self._has_ended = False

    async def __anext__(self) -> Batch:
        if self._has_ended:
            raise StopAsyncIteration
        batch = None
        try:
            if not self._has_begun:
                self._has_begun = True
                await self._consuming.start(self, *self._asked)
            batch = await self._consuming.next(self._idle_s)
        finally:
            if batch is None:
                self._end()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def aclose(self) -> None:
        self._end()

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        self._has_ended = True
        self._consuming.end(self)


class Consuming:
    """Of one queue, one receiver at a time.

    _open     credit that was given and not used
    _held     messages that arrived and are not settled
    _given    messages that the receiver has had; those of a lost connection that it did not settle come again
    _settled  messages that the receiver has settled, over all connections
    """

    def __init__(self) -> None:
        self.link: Link
        self._batches: deque[Batch] = deque()
        self._news = asyncio.Event()
        self._receiving: int | None = None  # the id of what receives: who leaves it must be seen to have gone
        self._prefetch = 0
        self._limit: int | None = None
        self._tags: tuple[str, ...] | None = None  # None: nothing was received yet
        self._filtered = 0  # the connection that knows the tags
        self._open = 0
        self._held = 0
        self._given = 0
        self._settled = 0

    async def start(self, receiving: Receiving, prefetch: int, tags: Sequence[str], limit: int | None) -> None:
        if self._receiving is not None:
            raise RuntimeError("the queue is being received from already")
        if not 1 <= prefetch <= self.link.limits["credit_max"]:
            raise ValueError(f"prefetch must be between 1 and {self.link.limits['credit_max']}")
        if self._tags is not None and self._tags != tuple(tags):
            raise ValueError("the first receive of a queue chooses the tags")
        self._receiving = id(receiving)
        self._prefetch, self._limit, self._tags = prefetch, limit, tuple(tags)
        self._given = self._settled = 0
        if self.link.ready.is_set():  # else `begin` asks
            await self._ask()

    async def next(self, idle_s: float | None) -> Batch | None:
        """None: it has given as many as were asked for, or nothing came for so long. Raises what ended the link."""
        if self._limit is not None and self._given >= self._limit:
            return None
        batch = await self._next(idle_s)
        if batch is not None:
            self._given += len(batch)
        return batch

    def end(self, receiving: Receiving) -> None:
        """Another one may begin, and what arrives waits for it."""
        if self._receiving == id(receiving):
            self._receiving = None
            self._prefetch = 0

    async def begin(self) -> None:
        """On a new connection: what the last one brought comes again."""
        self._open = self._held = 0
        self._given = self._settled
        self._batches.clear()
        if self._prefetch:
            await self._ask()

    def give_up(self) -> None:
        """The link has failed."""
        self._news.set()

    def arrived(self, frame: dict[str, Any]) -> None:
        rows = frame["messages"]
        self._open -= len(rows)
        self._held += len(rows)
        self._batches.append(Batch(self, self.link.connection, frame["first"], rows))
        self._news.set()

    async def settle(
        self, connection: int, kind: str, ranges: list[list[int]], count: int, more: dict[str, Any] | None = None
    ) -> bool:
        if connection != self.link.connection:
            return False
        if not self.link.ready.is_set():
            self._given -= count  # they come again
            return False
        if not count:
            return True
        self._held -= count
        self._settled += count
        sent = await self.link.say(frame_of(kind, ranges=ranges, **(more or {})))
        if not sent:  # they come again, and count when they do
            self._settled -= count
            self._given -= count
        if self._prefetch and self.link.ready.is_set():
            await self._give_credit()
        return sent

    async def _ask(self) -> None:
        """The filter goes before the first credit of a connection."""
        if self._tags and self._filtered != self.link.connection:
            self._filtered = self.link.connection
            await self.link.say(frame_of("filter", tags=self._tags))
        await self._give_credit()

    async def _give_credit(self) -> None:
        """In halves of the prefetch, so that credit costs a frame now and then."""
        room = self._prefetch - self._open - self._held
        if self._limit is not None:
            room = min(room, self._limit - self._given - self._open - sum(map(len, self._batches)))
        if room > 0 and (room >= self._prefetch // 2 or not self._open):
            self._open += room
            await self.link.say(frame_of("credit", n=room))

    async def _next(self, idle_s: float | None) -> Batch | None:
        """None: nothing came for so long. Raises what ended the link."""
        while not self._batches:
            if self.link.failure is not None:
                raise self.link.failure
            self._news.clear()
            try:
                async with asyncio.timeout(idle_s):
                    await self._news.wait()
            except TimeoutError:
                break
        return self._batches.popleft() if self._batches else None
