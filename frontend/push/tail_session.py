"""One live tail: looks at what comes into a queue, and shows it. It leases nothing and changes nothing.

    look    every TAIL_LOOK_S: each partition from where the last look ended (`tail_positions.py`), as the message
            browser does; the newest TAIL_SHOWN_MAX go to the page, the others are counted
    hold    while the right to look is not fresh (`tail_rights.py`), storage does not answer, or the account is over its
            rates or its share of browsing: nothing is shown, and the page is told why
    end     when the right is gone, or the queue is

A look pays for a request and for the messages that it opens. The client's socket is waited for before the next look, so
a page that is slow makes the tail look less often, and nothing is kept for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import structlog

from frontend.errors import RequestError
from frontend.limits import (
    BROWSER_PAGE_MESSAGES_MAX,
    TAIL_IDLE_LOOKS,
    TAIL_LOOK_BYTES_MAX,
    TAIL_LOOK_IDLE_S,
    TAIL_LOOK_MESSAGES_MAX,
    TAIL_LOOK_S,
    TAIL_SHOWN_MAX,
)
from frontend.message_browser.filters import EVERYTHING, MessageFilter, matches
from frontend.message_browser.search import see_now
from frontend.message_browser.view import BrowsedView
from frontend.messages.admission import also, count_request, pay, pay_later
from frontend.messages.storage_errors import explain_storage_error
from frontend.push.closing import CLOSE_FORBIDDEN, CLOSE_INTERNAL, CLOSE_TRY_LATER, CLOSE_UNAUTHENTICATED, close_code_of
from frontend.push.connection import FrameExpired
from frontend.push.tail_frames import LIVE, held_frame, tail_messages
from frontend.push.tail_positions import TailPositions
from frontend.push.tail_rights import OpenedTail, TailRights
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import BrowsedMessage, QueueBrowseReply

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_log = structlog.get_logger("frontend.push")
# Beyond the end of every log: a look there tells where that is, and reads nothing.
_FAR_OFFSET = 2**62
_CHUNK = 100
_ENDS = {
    "session-ended": (CLOSE_UNAUTHENTICATED, "The session has ended."),
    "unconfirmed": (CLOSE_TRY_LATER, "The right to look could not be confirmed. Connect again."),
}
_RIGHT_GONE = (CLOSE_FORBIDDEN, "The right to read messages of this queue is gone.")
_TRANSIENT = (429, 503)

CloseTail = Callable[[int, str], Awaitable[None]]
# A frame, and whether it may still be shown when the client can take it. Raises FrameExpired.
ShowFrame = Callable[[str, Callable[[], bool]], Awaitable[None]]


class _Glance(NamedTuple):
    """What one look found: the messages with their partitions, and their bytes."""

    messages: list[tuple[int, BrowsedMessage]]
    size_bytes: int


class TailSession:
    """Started once, closed once."""

    def __init__(
        self,
        services: FrontendServices,
        rights: TailRights,
        tail: OpenedTail,
        say: Callable[[str], Awaitable[None]],
        show: ShowFrame,
        close: CloseTail,
    ) -> None:
        self._services = services
        self._rights = rights
        self._tail = tail
        self._address = Address(tail.caller.account_id, tail.queue)
        self._say = say
        self._show_frame = show
        self._close = close
        self.filter: MessageFilter = EVERYTHING
        self._goes = asyncio.Event()
        self._goes.set()
        self._held = ""
        self._idle_looks = 0
        self._positions = TailPositions({})
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises RequestError."""
        pay(self._services, self._tail.caller, self._address)
        queue = await self._queue()
        count_request(self._services, self._tail.caller, queue)
        try:
            ends = {partition: await self._end_of(partition) for partition in queue.partitions}
        except StorageError as error:
            raise await explain_storage_error(self._services, queue, error) from None
        self._positions = TailPositions(ends)
        self._rights.watch(self._tail)
        self._tasks = [asyncio.create_task(self._guard(self._run())), asyncio.create_task(self._guard(self._watch()))]

    async def close(self) -> None:
        self._rights.forget(self._tail)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def pay_for_frame(self) -> None:
        """Raises RequestError."""
        pay(self._services, self._tail.caller, self._address)

    def pause(self) -> None:
        self._goes.clear()

    def resume(self) -> None:
        self._goes.set()

    # --- looking ---

    async def _run(self) -> None:
        await self._say(LIVE)
        while True:
            await asyncio.sleep(TAIL_LOOK_S if self._idle_looks < TAIL_IDLE_LOOKS else TAIL_LOOK_IDLE_S)
            await self._goes.wait()
            if not self._rights.is_fresh(self._tail):
                await self._hold("The right to look is being confirmed.")
                continue
            try:
                queue = await self._queue()
                glance = await self._look(queue)
            except RequestError as error:
                if error.kind.rest_status not in _TRANSIENT:
                    raise
                await self._hold(error.message)
                continue
            await self._show(queue, glance)

    async def _look(self, queue: ResolvedQueue) -> _Glance:
        """Raises RequestError."""
        services, caller = self._services, self._tail.caller
        pay(services, caller, self._address)
        self._positions.follow(queue.partitions)
        searches_max = services.quotas.limits(caller.account_id, caller.name).browser_searches
        with services.browser_calls.place(caller.account_id, searches_max):
            try:
                return await self._look_around(list(queue.partitions))
            except StorageError as error:
                raise await explain_storage_error(services, queue, error) from None

    async def _look_around(self, partitions: list[int]) -> _Glance:
        """All partitions once, then again those that have more, as far as one look goes. What was found before one of
        them does not answer is shown: the next look asks that one again. Raises RequestError, StorageError."""
        found: list[tuple[int, BrowsedMessage]] = []
        size_bytes = 0
        while partitions:
            more = []
            for partition in partitions:
                left = TAIL_LOOK_MESSAGES_MAX - len(found)
                if left <= 0 or size_bytes >= TAIL_LOOK_BYTES_MAX:
                    return _Glance(found, size_bytes)
                try:
                    reply = await self._browse(partition, min(left, BROWSER_PAGE_MESSAGES_MAX))
                except (RequestError, StorageError):
                    if not found:
                        raise
                    return _Glance(found, size_bytes)
                found += [(partition, message) for message in reply.messages]
                size_bytes += sum(len(message.body) for message in reply.messages)
                if self._positions.looked(partition, reply.next_offset, reply.log_end):
                    more.append(partition)
            partitions = more
        return _Glance(found, size_bytes)

    async def _browse(self, partition: int, messages_max: int) -> QueueBrowseReply:
        """Raises RequestError, StorageError."""
        with self._services.storage_calls:
            return await self._services.storage.browse(partition, self._positions.of(partition), messages_max)

    async def _show(self, queue: ResolvedQueue, glance: _Glance) -> None:
        found = sorted(glance.messages, key=lambda one: (one[1].sent_ms, one[0], one[1].offset))
        wanted = self.filter
        opened = found if wanted.reads_content else found[-TAIL_SHOWN_MAX:]
        seen = await self._open(queue, opened, wanted)
        pay_later(self._services, self._tail.caller, self._address, len(opened), glance.size_bytes)
        count = len(seen) if wanted.reads_content else len(found)
        passed = self._positions.take_passed()
        self._idle_looks = 0 if found else self._idle_looks + 1
        await self._tell(tail_messages(seen[-TAIL_SHOWN_MAX:], count, passed) if count or passed else "")

    async def _tell(self, frame: str) -> None:
        """Under a fresh right: what was looked at may have taken long to open, and its reader may be slow."""
        while True:
            while not self._rights.is_fresh(self._tail):
                await self._hold("The right to look is being confirmed.")
                await asyncio.sleep(TAIL_LOOK_S)
            if self._held:
                self._held = ""
                await self._say(LIVE)
            if not frame:
                return
            with contextlib.suppress(FrameExpired):
                await self._show_frame(frame, lambda: self._rights.is_fresh(self._tail))
                return

    async def _open(
        self, queue: ResolvedQueue, messages: list[tuple[int, BrowsedMessage]], wanted: MessageFilter
    ) -> list[BrowsedView]:
        now_ms = int(self._services.now_s() * 1000)
        views = []
        for place, (partition, message) in enumerate(messages, 1):
            queue, seen = await see_now(self._services, queue, partition, message)
            if matches(wanted, seen, now_ms):
                views.append(seen)
            if place % _CHUNK == 0:
                await asyncio.sleep(0)  # others have their turn
        return views

    async def _end_of(self, partition: int) -> int:
        with self._services.storage_calls:
            return (await self._services.storage.browse(partition, _FAR_OFFSET, 1)).log_end

    async def _queue(self) -> ResolvedQueue:
        """As it is now, if its policy allows. Raises RequestError."""
        return await also(self._services, self._tail.caller, "peek", self._address)

    async def _hold(self, detail: str) -> None:
        if self._held != detail:
            self._held = detail
            await self._say(held_frame(detail))

    # --- the end ---

    async def _watch(self) -> None:
        await self._tail.ended.wait()
        await self._close(*_ENDS.get(self._tail.why, _RIGHT_GONE))

    async def _guard(self, work: Awaitable[None]) -> None:
        """A task of the socket ends with it: the client left (OSError, RuntimeError), or the queue did."""
        try:
            await work
        except RequestError as error:
            with contextlib.suppress(OSError, RuntimeError):
                await self._close(close_code_of(error.kind.rest_status), error.message)
        except (OSError, RuntimeError):
            return
        except Exception:
            _log.exception("tail_failed", account_id=self._tail.caller.account_id)
            with contextlib.suppress(OSError, RuntimeError):
                await self._close(CLOSE_INTERNAL, "The tail failed inside the service.")
