"""Looks through a queue for messages, from where a cursor says, as far as one request may go.

    partitions one after the other, each in log order, page by page:  browse -> open -> match -> show

Ends when it has found what was asked for, when the queue is through, or at a bound of messages, pages, bytes or time;
then with the position to go on from. So a search over millions is many short requests, and memory holds one page at
most. Storage changes nothing when it is browsed: no lease, no count, no visibility.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from frontend.authn.principal import Principal
from frontend.crypto.message_tokens import InvalidToken, SearchCursor
from frontend.errors import RequestError, invalid
from frontend.limits import (
    BROWSER_ANSWER_BYTES_MAX,
    BROWSER_PAGE_MESSAGES_MAX,
    BROWSER_SCAN_MESSAGES_MAX,
    BROWSER_SCAN_PAGES_MAX,
    BROWSER_SCAN_S_MAX,
    BROWSER_TURN_MESSAGES_MAX,
)
from frontend.message_browser.filters import MessageFilter, filter_bytes, matches
from frontend.message_browser.view import BrowsedView, see, unopened
from frontend.messages.admission import admit, pay_later
from frontend.messages.opening import KeyNotGranted
from frontend.messages.storage_errors import explain_storage_error
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import BrowsedMessage, QueueBrowseReply

if TYPE_CHECKING:
    from frontend.services import FrontendServices


class Search(NamedTuple):
    """`cursor` is that of an earlier answer; empty = from the start."""

    filter: MessageFilter
    shown_max: int
    cursor: str


class SearchResult(NamedTuple):
    """`scanned` counts the messages looked at since the start; `cursor` None: the queue is through."""

    messages: list[BrowsedView]
    scanned: int
    cursor: str | None


async def look(
    services: FrontendServices, caller: Principal, address: Address, search: Search
) -> tuple[ResolvedQueue, SearchResult]:
    """Raises RequestError."""
    queue = await admit(services, caller, "peek", address)
    key = filter_bytes(search.filter)
    start = _start(services, queue, search.cursor, key)
    searches_max = services.quotas.limits(caller.account_id, caller.name).browser_searches
    with services.browser_calls.place(caller.account_id, searches_max):
        scan = _Scan(services, queue, search, start)
        try:
            await scan.run()
        except StorageError as error:
            raise await explain_storage_error(services, queue, error) from None
    pay_later(services, caller, address, scan.read, scan.read_bytes)
    cursor = None
    if scan.position is not None:
        cursor = services.message_tokens.cursor(queue.owner, SearchCursor(*scan.position, scan.scanned), key)
    return queue, SearchResult(scan.found, scan.scanned, cursor)


def _start(services: FrontendServices, queue: ResolvedQueue, text: str, key: bytes) -> SearchCursor:
    if not text:
        return SearchCursor(queue.partitions[0], 0, 0)
    try:
        cursor = services.message_tokens.read_cursor(queue.owner, text, key)
    except InvalidToken:
        raise invalid("The cursor is not one of this queue and search.") from None
    if cursor.partition not in queue.partitions:
        raise invalid("The cursor is of a partition that the queue has no longer: begin anew.")
    return cursor


class _Scan:
    """One request. `position` is where the next one goes on; None when the queue is through."""

    def __init__(self, services: FrontendServices, queue: ResolvedQueue, search: Search, start: SearchCursor) -> None:
        self._services = services
        self._queue = queue
        self._search = search
        self._now_ms = int(services.now_s() * 1000)
        self.size_bytes = 0
        # What it costs: all that storage gave, and that was opened, found or not.
        self.read = self.read_bytes = 0
        self.position: tuple[int, int] | None = (start.partition, start.offset)
        self.scanned = start.scanned
        self._scanned_before = start.scanned
        self.found: list[BrowsedView] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + BROWSER_SCAN_S_MAX
        for _ in range(BROWSER_SCAN_PAGES_MAX):
            if (
                self.position is None
                or self._is_full
                or self.scanned - self._scanned_before >= BROWSER_SCAN_MESSAGES_MAX
            ):
                return
            partition, offset = self.position
            left = self._search.shown_max - len(self.found)
            count = left if self._search.filter.wants_all else BROWSER_PAGE_MESSAGES_MAX
            with self._services.storage_calls:
                reply = await self._services.storage.browse(partition, offset, count, self._search.filter.state_bits)
            self.read += len(reply.messages)
            self.read_bytes += sum(len(message.body) for message in reply.messages)
            await self._take(partition, reply)
            if loop.time() >= ends_s:
                return

    @property
    def _is_full(self) -> bool:
        return len(self.found) >= self._search.shown_max or self.size_bytes >= BROWSER_ANSWER_BYTES_MAX

    async def _take(self, partition: int, reply: QueueBrowseReply) -> None:
        for number, message in enumerate(reply.messages, 1):
            if number % BROWSER_TURN_MESSAGES_MAX == 0:
                await asyncio.sleep(0)  # searches of one account must not make the turns of all others long
            seen = await self._see(partition, message)
            self.scanned += 1
            if not matches(self._search.filter, seen, self._now_ms):
                continue
            self.found.append(seen)
            self.size_bytes += len(message.body)
            if self._is_full:
                self.position = (partition, message.offset + 1)
                return
        if reply.next_offset < reply.log_end:
            self.position = (partition, reply.next_offset)
            return
        at = self._queue.partitions.index(partition) + 1
        self.position = (self._queue.partitions[at], 0) if at < len(self._queue.partitions) else None

    async def _see(self, partition: int, message: BrowsedMessage) -> BrowsedView:
        self._queue, seen = await see_now(self._services, self._queue, partition, message)
        return seen


async def see_now(
    services: FrontendServices, queue: ResolvedQueue, partition: int, message: BrowsedMessage
) -> tuple[ResolvedQueue, BrowsedView]:
    """The message, and the view of the queue that opens it: keys may have been granted a moment ago."""
    with contextlib.suppress(KeyNotGranted):
        return queue, see(services.message_ids, queue, partition, message)
    with contextlib.suppress(RequestError):
        queue = await services.queues.refresh(queue.address)
        try:
            return queue, see(services.message_ids, queue, partition, message)
        except KeyNotGranted as error:
            queue.note_lost_key(error.names)
    return queue, unopened(partition, message)
