"""One page of the scheduled messages of a queue, by due time over all its partitions.

    ask    every partition for a few messages, two of them at a time
    take   the earliest of all; a partition whose messages are all taken is asked for more, twice as many

So what is in memory has a bound, however many partitions there are and however long their messages: of what does not
fit, the latest messages are dropped again, and read again when their turn comes. A page ends with as many messages as
were asked for, at BROWSER_ANSWER_BYTES_MAX, or after BROWSER_SCAN_S_MAX if it goes on from elsewhere than it began.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from frontend.limits import BROWSER_ANSWER_BYTES_MAX, BROWSER_SCAN_S_MAX
from storage_nodes.protocol.messages import ScheduledMessage

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_ASKED_AT_ONCE = 2
_HELD_BYTES_MAX = BROWSER_ANSWER_BYTES_MAX
_OFFSET_MAX = 2**63 - 1

# Where a page ends: (due_ms, partition, offset), which is the order over all partitions.
Position = tuple[int, int, int]


class _Source:
    """One partition. Everything up to `shown` (due_ms, offset) was taken or is not there; behind it comes what is held,
    up to `read`; and behind that more, or nothing."""

    __slots__ = ("count", "has_more", "held", "partition", "read", "shown")

    def __init__(self, partition: int, shown: tuple[int, int], count: int) -> None:
        self.partition = partition
        self.shown = self.read = shown
        self.count = count
        self.held: deque[ScheduledMessage] = deque()
        self.has_more = True

    @property
    def head(self) -> Position:
        return (self.held[0].due_ms, self.partition, self.held[0].offset)

    @property
    def position(self) -> Position:
        return (self.shown[0], self.partition, self.shown[1])

    def take(self) -> ScheduledMessage:
        message = self.held.popleft()
        self.shown = (message.due_ms, message.offset) if self.held else self.read
        return message

    def drop(self) -> int:
        """How many bytes that sets free. They are read again."""
        size_bytes = sum(len(message.body) for message in self.held)
        self.held.clear()
        self.read, self.has_more, self.count = self.shown, True, 1
        return size_bytes


class ScheduledPage:
    """`found` are the messages with their partitions; `end` is where the next page goes on, None: nowhere.

    read, read_bytes  what storage gave, and what it costs
    _heads            the first message of each partition that has one, those that were dropped too
    _unknown          partitions of which that is not known
    """

    def __init__(
        self,
        services: FrontendServices,
        partitions: Sequence[int],
        count_max: int,
        after: Position | None,
        until_ms: int,
    ) -> None:
        self._services = services
        self._count_max = count_max
        self._after = after
        self._until_ms = until_ms
        count = -(-count_max // len(partitions))
        self._sources = {one: _Source(one, _after_in(one, after), count) for one in partitions}
        self._unknown = list(self._sources.values())
        self._heads: list[Position] = []
        self._held_bytes = 0
        self._found_bytes = 0
        self._last: Position | None = None
        self.read = self.read_bytes = 0
        self.found: list[tuple[int, ScheduledMessage]] = []

    async def run(self) -> None:
        """Raises StorageError."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + BROWSER_SCAN_S_MAX
        while len(self.found) < self._count_max and self._found_bytes < BROWSER_ANSWER_BYTES_MAX:
            if self._unknown:
                if loop.time() >= ends_s and self._has_gone_on:
                    return
                await self._ask_unknown()
            elif self._heads:
                self._take_first()
            else:
                return

    @property
    def end(self) -> Position | None:
        if not (self._heads or self._unknown):
            return None
        if self._last is not None:
            return self._last
        left = {position[1] for position in self._heads}.union(source.partition for source in self._unknown)
        reached = min(self._sources[partition].position for partition in left)
        if reached[2] < 0:  # nothing of it was taken or passed over yet
            return self._after
        return reached if self._after is None else max(reached, self._after)

    @property
    def _has_gone_on(self) -> bool:
        end = self.end
        return end is not None and end > (self._after or (0, 0, 0))

    async def _ask_unknown(self) -> None:
        asked, self._unknown = self._unknown[:_ASKED_AT_ONCE], self._unknown[_ASKED_AT_ONCE:]
        await asyncio.gather(*map(self._ask, asked))
        while self._held_bytes > _HELD_BYTES_MAX:
            holding = [source for source in self._sources.values() if source.held]
            if len(holding) < 2:
                return
            self._held_bytes -= max(holding, key=lambda source: source.head).drop()

    async def _ask(self, source: _Source) -> None:
        with self._services.storage_calls:
            reply = await self._services.storage.scheduled(source.partition, source.count, source.read, self._until_ms)
        size_bytes = sum(len(message.body) for message in reply.messages)
        self.read += len(reply.messages)
        self.read_bytes += size_bytes
        self._held_bytes += size_bytes
        source.held.extend(reply.messages)
        source.read, source.has_more = (reply.last_due_ms, reply.last_offset), reply.more
        source.count = min(2 * source.count, self._count_max)
        self._note(source)

    def _note(self, source: _Source) -> None:
        if source.held:
            heapq.heappush(self._heads, source.head)
            return
        source.shown = source.read
        if source.has_more:
            self._unknown.append(source)

    def _take_first(self) -> None:
        position = heapq.heappop(self._heads)
        source = self._sources[position[1]]
        if not source.held:  # it was dropped
            self._unknown.append(source)
            return
        message = source.take()
        self._held_bytes -= len(message.body)
        self._found_bytes += len(message.body)
        self.found.append((source.partition, message))
        self._last = position
        self._note(source)


def _after_in(partition: int, after: Position | None) -> tuple[int, int]:
    if after is None:
        return (-1, -1)
    due_ms, at, offset = after
    return (due_ms, offset if partition == at else _OFFSET_MAX - 1 if partition < at else -1)
