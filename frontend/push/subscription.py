"""One subscription: messages to a client that names each by its receipt, in JSON frames (`frames.py`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from frontend.authn.principal import Principal
from frontend.crypto.receipts import Receipt
from frontend.errors import RequestError, invalid
from frontend.limits import SOCKET_IDS_PER_FRAME_MAX, SOCKET_VISIBILITY_S, VISIBILITY_S_MAX
from frontend.messages.receive import Received, open_leases
from frontend.messages.settle import read_receipts
from frontend.push.deliveries import CloseSocket, Deliveries, check_nack_delay_s
from frontend.push.frames import (
    AckFrame,
    CreditFrame,
    ExtendFrame,
    FilterFrame,
    NackFrame,
    error_frame,
    lost_frame,
    message_frame,
)
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from frontend.routing.poll import Lease

if TYPE_CHECKING:
    from frontend.services import FrontendServices

SendText = Callable[[str], Awaitable[bool]]  # whether it was said


class Subscription(Deliveries[str]):
    """Names are receipts."""

    def __init__(
        self, services: FrontendServices, caller: Principal, address: Address, send: SendText, close: CloseSocket
    ) -> None:
        super().__init__(services, caller, address, close)
        self._send = send

    async def handle(
        self, frame: FilterFrame | CreditFrame | AckFrame | NackFrame | ExtendFrame, size_bytes: int
    ) -> None:
        """One frame of the client, when its rate lets it in. Raises RequestError, RateExceeded."""
        if isinstance(frame, FilterFrame):
            await self._pay(0, size_bytes)
            await self._set_filter(frame.tags)
            return
        if isinstance(frame, CreditFrame):
            await self._pay(0, size_bytes)
            self._add_credit(frame.n)
            return
        await self._pay_settled(len(frame.ids), size_bytes)
        if not 1 <= len(frame.ids) <= SOCKET_IDS_PER_FRAME_MAX:
            raise invalid(f"A frame must name 1 to {SOCKET_IDS_PER_FRAME_MAX} ids.")
        if isinstance(frame, AckFrame):
            await self._ack([(receipt, None) for receipt in frame.ids])
        elif isinstance(frame, NackFrame):
            try:
                check_nack_delay_s(frame.delay_seconds)
            except RequestError as error:
                await self._tell_error(error, frame.ids)
                return
            await self._nack([(receipt, None) for receipt in frame.ids], frame.delay_seconds, frame.count)
        else:
            if not 1 <= frame.seconds <= VISIBILITY_S_MAX:
                raise invalid(f"seconds must be between 1 and {VISIBILITY_S_MAX}.")
            await self._extend(frame)

    async def _extend(self, frame: ExtendFrame) -> None:
        """For at least so long: a lease that is renewed unasked is never made shorter than that."""
        seconds = max(frame.seconds, SOCKET_VISIBILITY_S)
        refused = await self._apply([(receipt, None) for receipt in frame.ids], seconds * 1000)
        until_s = monotonic() + seconds
        for receipt in frame.ids:
            held = self._held.get(receipt)
            if held is not None and receipt not in refused:
                held.until_s = until_s

    def _read(self, queue: ResolvedQueue, name: str) -> Receipt | RequestError:
        return read_receipts(self._services, queue, (name,))[0]

    async def _require_use(self) -> ResolvedQueue:
        return await self._queue()

    async def _open(self, queue: ResolvedQueue, leases: Sequence[Lease]) -> list[tuple[str, Lease, Received]]:
        found = zip(leases, await open_leases(self._services, self._caller, queue, leases), strict=True)
        return [(message.receipt_handle, lease, message) for lease, message in found if message is not None]

    async def _send_messages(self, messages: Sequence[tuple[str, Lease, Received]]) -> None:
        for name, _, message in messages:
            if await self._send(message_frame(message)):
                self._note_sent((name,))

    async def _tell_lost(self, names: Sequence[str]) -> None:
        await self._send(lost_frame(names))

    async def _tell_error(self, error: RequestError, names: Sequence[str] = ()) -> None:
        await self._send(error_frame(error, names))
