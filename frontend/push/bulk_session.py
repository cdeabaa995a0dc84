"""One bulk socket: publishes with confirms, and deliveries that are settled by number (`bulk_frames.py`).

    publish   paid for, then a place among the front end's BULK_SENDS_MAX, which accounts share; while that is waited
              for, and while SOCKET_PUBLISHES_MAX frames are being stored (FIFO: one), no further frame is read
    confirm   when storage has acknowledged all of a frame, or said why not
    deliver   numbered from 1 on; the leases stay here, so no receipt is made, sent or proved

A key that may send only, or receive only, may open one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING

import structlog

from frontend.authn.principal import Principal
from frontend.crypto.receipts import Receipt
from frontend.errors import RequestError, invalid
from frontend.limits import (
    BULK_BYTES_MAX,
    BULK_MESSAGES_MAX,
    SEQUENCE_MAX,
    SOCKET_FINISH_S_MAX,
    SOCKET_LEASES_MAX,
    SOCKET_PLACE_RETRY_S,
    SOCKET_PUBLISHES_MAX,
)
from frontend.messages.outgoing import OutgoingMessage
from frontend.messages.receive import Received, open_leases
from frontend.messages.send import send_paid
from frontend.push import bulk_frames
from frontend.push.bulk_frames import AckRangesFrame, BulkFrame, NackRangesFrame, PublishFrame, Ranges
from frontend.push.deliveries import CloseSocket, Deliveries, check_nack_delay_s
from frontend.push.frames import CreditFrame, FilterFrame, FrameRefused
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from frontend.rest.call import error_json
from frontend.rest.message_form import MessageJson, check_message, read_message
from frontend.rest.messages import sent_json
from frontend.routing.bulkhead import Place
from frontend.routing.poll import Lease

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_log = structlog.get_logger("frontend.push")
SendFrame = Callable[[object], Awaitable[bool]]  # whether it was said


class BulkSession(Deliveries[int]):
    """Names are numbers."""

    credit_max = SOCKET_LEASES_MAX
    fetch_messages_max = BULK_MESSAGES_MAX

    def __init__(
        self, services: FrontendServices, caller: Principal, address: Address, send: SendFrame, close: CloseSocket
    ) -> None:
        super().__init__(services, caller, address, close)
        self._send = send
        self._delivered = 0
        self._publishes: set[asyncio.Task[None]] = set()
        self._has_published = self._is_ending = False

    async def close(self) -> None:
        """What is being stored is stored; its confirm is lost. Leases do not wait for that."""
        try:
            await super().close()
        finally:
            if self._publishes:
                await asyncio.wait(self._publishes)

    async def finish_publishes(self) -> None:
        """Returns when what is being stored is confirmed: a client that does not hear of it sends it again. No further
        publish is taken."""
        self._is_ending = True
        publishes = self._publishes - {asyncio.current_task()}
        if publishes:
            await asyncio.wait(publishes, timeout=SOCKET_FINISH_S_MAX)

    async def _finish(self) -> None:
        await self.finish_publishes()

    async def handle(self, frame: BulkFrame, size_bytes: int) -> None:
        """One frame of the client, when its rate lets it in. Raises RequestError, RateExceeded, FrameRefused."""
        if isinstance(frame, PublishFrame):
            await self._publish(frame, size_bytes)
        elif isinstance(frame, FilterFrame):
            await self._pay(0, size_bytes)
            await self._set_filter(frame.tags)
        elif isinstance(frame, CreditFrame):
            await self._pay(0, size_bytes)
            self._add_credit(frame.n)
        else:
            await self._settle_ranges(frame, size_bytes)

    # --- publishing ---

    async def _publish(self, frame: PublishFrame, size_bytes: int) -> None:
        if not 0 <= frame.seq <= SEQUENCE_MAX:
            raise FrameRefused(f"seq must be between 0 and {SEQUENCE_MAX}.")
        self._has_published = True
        count = len(frame.messages)
        try:
            await self._pay(min(count, BULK_MESSAGES_MAX), size_bytes, True)
            if not 1 <= count <= BULK_MESSAGES_MAX:
                raise RequestError(
                    "TooManyEntriesInBatchRequest" if count else "EmptyBatchRequest",
                    f"A frame must have 1 to {BULK_MESSAGES_MAX} messages. You have sent {count}.",
                )
            is_fifo = self._address.name.endswith(".fifo")
            while len(self._publishes) >= (1 if is_fifo else SOCKET_PUBLISHES_MAX):
                await asyncio.wait(self._publishes, return_when=asyncio.FIRST_COMPLETED)
            place = await self._place()
        except RequestError as error:
            await self._send(bulk_frames.refuse(frame.seq, error))
            return
        if self._is_ending:  # it is not confirmed, so it is not stored
            place.close()
            return
        task = asyncio.create_task(self._guard(self._store(frame, size_bytes, place)))
        self._publishes.add(task)
        task.add_done_callback(self._publishes.discard)

    async def _place(self) -> ExitStack:
        """Waits until the account has one: other accounts keep theirs. Of the sockets of an account one looks at a
        time, in the order in which they came."""
        account_id = self._caller.account_id
        turn = self._services.bulk_turns.setdefault(account_id, asyncio.Lock())
        async with turn:
            while True:
                entered = ExitStack()
                place: Place = self._services.bulk_sends.place(account_id)
                try:
                    entered.enter_context(place)
                    return entered
                except RequestError:
                    await asyncio.sleep(SOCKET_PLACE_RETRY_S)

    async def _store(self, frame: PublishFrame, size_bytes: int, place: ExitStack) -> None:
        def read(given: MessageJson) -> OutgoingMessage:
            return read_message(check_message(given, frame.acks))

        with place:
            try:
                caller = await self._renewed_caller()
                outcomes = await send_paid(
                    self._services, caller, self._address, frame.messages, read, size_bytes, BULK_BYTES_MAX
                )
            except RequestError as error:
                await self._send(bulk_frames.refuse(frame.seq, error))
                return
            except Exception:
                # Our bug. The socket goes on: a client that were cut would send the same frame again.
                _log.exception("publish_failed", account_id=self._caller.account_id)
                failure = RequestError("InternalFailure", "The publish could not be completed.")
                await self._send(bulk_frames.refuse(frame.seq, failure))
                return
        failed: list[dict[str, object]] = [
            {"index": index, **error_json(one)} for index, one in enumerate(outcomes) if isinstance(one, RequestError)
        ]
        sent = None
        if frame.ids:
            sent = [None if isinstance(one, RequestError) else sent_json(one) for one in outcomes]
        await self._send(bulk_frames.confirm(frame.seq, failed, sent))

    # --- settling ---

    async def _settle_ranges(self, frame: AckRangesFrame | NackRangesFrame, size_bytes: int) -> None:
        try:
            count = _count(frame.ranges, self._delivered)
        except RequestError:
            await self._pay_settled(0, size_bytes)
            raise
        await self._pay_settled(count, size_bytes)
        is_ack, now_s = isinstance(frame, AckRangesFrame), monotonic()
        named: dict[int, Receipt | None] = {}  # each once, whatever the ranges
        for first, last in frame.ranges:
            for number in range(first, last + 1):
                held = self._held.get(number)
                # Else it was settled before, or lost: what is given back may be another consumer's by then.
                if held is not None and (is_ack or held.until_s > now_s):
                    named[number] = held.receipt
        if isinstance(frame, AckRangesFrame):
            await self._ack(list(named.items()))
        else:
            try:
                check_nack_delay_s(frame.delay_seconds)
            except RequestError as error:
                await self._tell_error(error, list(named))
                return
            await self._nack(list(named.items()), frame.delay_seconds, frame.count)

    # --- deliveries ---

    def _read(self, queue: ResolvedQueue, name: int) -> Receipt | RequestError:
        raise AssertionError("the receipt of what is held is at hand")

    async def _goes_on_without(self, error: RequestError) -> bool:
        """On a socket that publishes, messages without the right to them are refused as any other frame is."""
        if error.code != "AccessDeniedException" or not self._has_published:
            return False
        try:
            await self._queue("SendMessage")
        except RequestError:
            return False
        self._credit = 0
        await self._tell_error(error)
        return True

    async def _require_use(self) -> ResolvedQueue:
        try:
            return await self._queue()
        except RequestError as error:
            if error.code != "AccessDeniedException":
                raise
            return await self._queue("SendMessage")

    async def _open(self, queue: ResolvedQueue, leases: Sequence[Lease]) -> list[tuple[int, Lease, Received]]:
        opened = await open_leases(self._services, self._caller, queue, leases, with_receipts=False)
        found = [(lease, message) for lease, message in zip(leases, opened, strict=True) if message is not None]
        first = self._delivered + 1
        self._delivered += len(found)
        return [(number, lease, message) for number, (lease, message) in enumerate(found, first)]

    async def _send_messages(self, messages: Sequence[tuple[int, Lease, Received]]) -> None:
        if not messages:
            return
        if await self._send(bulk_frames.messages(messages[0][0], [message for _, _, message in messages])):
            self._note_sent(number for number, _, _ in messages)

    async def _tell_lost(self, names: Sequence[int]) -> None:
        await self._send(bulk_frames.lost(names))

    async def _tell_error(self, error: RequestError, names: Sequence[int] = ()) -> None:
        await self._send(bulk_frames.error(error, names))


def _count(ranges: Ranges, delivered: int) -> int:
    """How many numbers are named. Raises RequestError for ranges that are none, or of messages that never came."""
    count = 0
    for first, last in ranges:
        if not 1 <= first <= last <= delivered:
            raise invalid("A range must be [first, last] of messages that were delivered on this socket.")
        count += last - first + 1
        if count > SOCKET_LEASES_MAX:
            break
    if not 1 <= count <= SOCKET_LEASES_MAX:
        raise invalid(f"A frame must name 1 to {SOCKET_LEASES_MAX} messages.")
    return count
