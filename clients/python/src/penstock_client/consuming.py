"""Receiving: credit that follows what is settled, and batches in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from penstock_client.link import Link
from penstock_client.messages import Batch
from penstock_client.wire import frame_of


class Consuming:
    """Of one queue, one receiver at a time.

    _open     credit that was given and not used
    _held     messages that were given out and are not settled
    _settled  messages that were settled, over all connections
    """

    def __init__(self) -> None:
        self.link: Link
        self._batches: asyncio.Queue[Batch] = asyncio.Queue()
        self._prefetch = 0
        self._limit: int | None = None
        self._tags: Sequence[str] = ()
        self._open = 0
        self._held = 0
        self._settled = 0

    async def receive(
        self, prefetch: int, tags: Sequence[str], limit: int | None, idle_s: float | None
    ) -> AsyncIterator[Batch]:
        if self._prefetch:
            raise RuntimeError("the queue is being received from already")
        if not 1 <= prefetch <= self.link.limits["credit_max"]:
            raise ValueError(f"prefetch must be between 1 and {self.link.limits['credit_max']}")
        self._prefetch, self._limit, self._tags, self._settled = prefetch, limit, tags, 0
        try:
            if tags:
                await self.link.say(frame_of("filter", tags=list(tags)))
            await self._give_credit()
            while limit is None or self._settled + self._held < limit:
                batch = await self._next(idle_s)
                if batch is None:
                    return
                yield batch
        finally:
            self._prefetch = 0

    async def begin(self) -> None:
        """On a new connection: what the last one brought comes again."""
        self._open = self._held = 0
        while not self._batches.empty():
            self._batches.get_nowait()
        if self._prefetch:
            if self._tags:
                await self.link.say(frame_of("filter", tags=list(self._tags)))
            await self._give_credit()

    def arrived(self, frame: dict[str, Any]) -> None:
        rows = frame["messages"]
        self._open -= len(rows)
        self._held += len(rows)
        self._batches.put_nowait(Batch(self, self.link.connection, frame["first"], rows))

    async def settle(
        self, connection: int, kind: str, ranges: list[list[int]], count: int, more: dict[str, Any] | None = None
    ) -> bool:
        if connection != self.link.connection or not self.link.ready.is_set():
            return False
        if not count:
            return True
        self._held -= count
        self._settled += count
        sent = await self.link.say(frame_of(kind, ranges=ranges, **(more or {})))
        if self._prefetch:
            await self._give_credit()
        return sent

    async def _give_credit(self) -> None:
        """In halves of the prefetch, so that credit costs a frame now and then."""
        room = self._prefetch - self._open - self._held
        if self._limit is not None:
            room = min(room, self._limit - self._settled - self._open - self._held)
        if room > 0 and (room >= self._prefetch // 2 or not self._open):
            self._open += room
            await self.link.say(frame_of("credit", n=room))

    async def _next(self, idle_s: float | None) -> Batch | None:
        """None: nothing came for so long. Raises what ended the link."""
        if not self._batches.empty():
            return self._batches.get_nowait()
        waits = asyncio.ensure_future(self._batches.get())
        failed = asyncio.ensure_future(self.link.failed.wait())
        try:
            await asyncio.wait({waits, failed}, timeout=idle_s, return_when=asyncio.FIRST_COMPLETED)
            if waits.done():
                return waits.result()
            if self.link.failure is not None:
                raise self.link.failure
            return None
        finally:
            waits.cancel()
            failed.cancel()
