"""Looks through a queue for messages, from where a cursor says, as far as one request may go.

    partitions one after the other, each in log order, page by page:  browse -> open -> match -> show

Ends when it has found what was asked for, when the queue is through, or at a bound of messages, pages, bytes or time;
then with the place to go on from. So a search over millions is many short requests, and memory holds one page at most.
Storage changes nothing when it is browsed: no lease, no count, no visibility.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from frontend.authn.principal import Principal
from frontend.crypto.places import Cursor, WordError
from frontend.desk.filters import Filter, filter_bytes, matches
from frontend.desk.seeing import Seen, see, unopened
from frontend.errors import Refusal, invalid
from frontend.limits import (
    DESK_ANSWER_BYTES_MAX,
    DESK_PAGE_MESSAGES_MAX,
    DESK_SCAN_MESSAGES_MAX,
    DESK_SCAN_PAGES_MAX,
    DESK_SCAN_S_MAX,
)
from frontend.opening import KeyNotLent
from frontend.routing.queues import Address, QueueView
from frontend.send import authorise, storage_refusal, throttle
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import BrowsedMessage, QueueBrowseReply

if TYPE_CHECKING:
    from frontend.plane import Plane


class Search(NamedTuple):
    """`cursor` is the word of an earlier answer; empty = from the start."""

    filter: Filter
    shown_max: int
    cursor: str


class Found(NamedTuple):
    """`scanned` counts the messages looked at since the start; `cursor` None: the queue is through."""

    messages: list[Seen]
    scanned: int
    cursor: str | None


async def look(plane: Plane, caller: Principal, address: Address, search: Search) -> tuple[QueueView, Found]:
    """Raises Refusal."""
    queue = authorise(plane, caller, "ReceiveMessage", address) or await plane.queues.find(address)
    throttle(plane, caller, queue)
    key = filter_bytes(search.filter)
    start = _start(plane, queue, search.cursor, key)
    with plane.desk_calls:
        scan = _Scan(plane, queue, search, start)
        try:
            await scan.run()
        except StorageError as error:
            raise await storage_refusal(plane, queue, error) from None
    cursor = None
    if scan.place is not None:
        cursor = plane.places.cursor(queue.owner, Cursor(*scan.place, scan.scanned), key)
    return queue, Found(scan.found, scan.scanned, cursor)


def _start(plane: Plane, queue: QueueView, word: str, key: bytes) -> Cursor:
    if not word:
        return Cursor(queue.partitions[0], 0, 0)
    try:
        cursor = plane.places.read_cursor(queue.owner, word, key)
    except WordError:
        raise invalid("The cursor is not one of this queue and search.") from None
    if cursor.partition not in queue.partitions:
        raise invalid("The cursor is of a partition that the queue has no longer: begin anew.")
    return cursor


class _Scan:
    """One request. `place` is where the next one goes on; None when the queue is through."""

    def __init__(self, plane: Plane, queue: QueueView, search: Search, start: Cursor) -> None:
        self._plane = plane
        self._queue = queue
        self._search = search
        self._now_ms = int(plane.now_s() * 1000)
        self._size_bytes = 0
        self.place: tuple[int, int] | None = (start.partition, start.offset)
        self.scanned = start.scanned
        self._scanned_before = start.scanned
        self.found: list[Seen] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + DESK_SCAN_S_MAX
        for _ in range(DESK_SCAN_PAGES_MAX):
            if self.place is None or self._is_full or self.scanned - self._scanned_before >= DESK_SCAN_MESSAGES_MAX:
                return
            partition, offset = self.place
            left = self._search.shown_max - len(self.found)
            count = left if self._search.filter.wants_all else DESK_PAGE_MESSAGES_MAX
            with self._plane.storage_calls:
                reply = await self._plane.storage.browse(partition, offset, count, self._search.filter.state_bits)
            await self._take(partition, reply)
            if loop.time() >= ends_s:
                return

    @property
    def _is_full(self) -> bool:
        return len(self.found) >= self._search.shown_max or self._size_bytes >= DESK_ANSWER_BYTES_MAX

    async def _take(self, partition: int, reply: QueueBrowseReply) -> None:
        for message in reply.messages:
            seen = await self._see(partition, message)
            self.scanned += 1
            if not matches(self._search.filter, seen, self._now_ms):
                continue
            self.found.append(seen)
            self._size_bytes += len(message.body)
            if self._is_full:
                self.place = (partition, message.offset + 1)
                return
        if reply.next_offset < reply.log_end:
            self.place = (partition, reply.next_offset)
            return
        at = self._queue.partitions.index(partition) + 1
        self.place = (self._queue.partitions[at], 0) if at < len(self._queue.partitions) else None

    async def _see(self, partition: int, message: BrowsedMessage) -> Seen:
        self._queue, seen = await see_now(self._plane, self._queue, partition, message)
        return seen


async def see_now(
    plane: Plane, queue: QueueView, partition: int, message: BrowsedMessage
) -> tuple[QueueView, Seen]:
    """The message, and the view of the queue that opens it: keys may have been lent a moment ago."""
    for _ in range(2):
        try:
            return queue, see(plane.message_ids, queue, partition, message)
        except KeyNotLent:
            with contextlib.suppress(Refusal):
                queue = await plane.queues.refresh(queue.address)
    return queue, unopened(partition, message)
