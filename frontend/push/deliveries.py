"""What a websocket has of a queue: credit in, messages out, leases renewed until they are settled.

    pump     while there is credit: lease from the queue, send; waits for the client's socket, and for nothing else's
    renew    every SOCKET_RENEW_S: leases about to run out are extended; the key is looked at again
    settle   acks gather while the previous delete is under way, so that one call carries many

What is bounded: credit, leases, acks waiting. What the client holds when it goes is made visible again at once.

How a client names a delivery is for the wire: a subscription by its receipt (`subscription.py`), a bulk socket by its
number (`bulk_session.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import structlog

from frontend.authn.principal import Principal
from frontend.crypto.receipts import Receipt
from frontend.errors import RequestError, invalid, unavailable
from frontend.limits import (
    SOCKET_ACKS_PENDING_MAX,
    SOCKET_CREDIT_MAX,
    SOCKET_FETCH_AHEAD_S,
    SOCKET_FETCH_MESSAGES_MAX,
    SOCKET_IDS_PER_FRAME_MAX,
    SOCKET_LEASES_MAX,
    SOCKET_PAUSE_S_MAX,
    SOCKET_RECHECK_S,
    SOCKET_RENEW_S,
    SOCKET_RETRY_S,
    SOCKET_VISIBILITY_S,
    SOCKET_WAIT_MS,
    VISIBILITY_S_MAX,
)
from frontend.messages.admission import also, messages_left, pay, pay_later, still_caller
from frontend.messages.receive import Received
from frontend.messages.settle import apply_receipts, give_back_mode
from frontend.messages.tags import check_filter, filter_finds_nothing
from frontend.metadata.interface import MetadataUnavailable
from frontend.push.closing import CLOSE_INTERNAL, close_code_of
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from frontend.routing.poll import Lease, LeaseName, PollRequest, give_back, poll_partitions, release
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import VisibilityMode

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_log = structlog.get_logger("frontend.push")

_body = attrgetter("message.body")  # of a lease
# How a client names a delivery.
Name = TypeVar("Name", str, int)
# A delivery that is settled; its receipt, where it is at hand.
Settled = tuple[Name, Receipt | None]
CloseSocket = Callable[[int, str], Awaitable[None]]  # the code and the reason


class RateExceeded(Exception):
    """Frames came faster than the quota allows, for longer than they can wait. The text is for the client."""


class _Held:
    """A lease the client has: what storage knows it by, not its message, and when it runs out (monotonic clock). A
    client may hold SOCKET_LEASES_MAX of them. `is_sent`: else the client has never seen it."""

    __slots__ = ("is_sent", "receipt", "until_s")

    def __init__(self, receipt: Receipt, until_s: float) -> None:
        self.receipt = receipt
        self.until_s = until_s
        self.is_sent = False

    @property
    def name(self) -> LeaseName:
        receipt = self.receipt
        return LeaseName(receipt.partition, receipt.epoch, 0, receipt.offset, receipt.delivery)


class _Fetched(NamedTuple):
    """Leases on their way to the client, and when they run out."""

    leases: list[Lease]
    until_s: float


class Deliveries(ABC, Generic[Name]):
    """Started once, closed once. Frames may be handled in between."""

    credit_max = SOCKET_CREDIT_MAX
    fetch_messages_max = SOCKET_FETCH_MESSAGES_MAX

    def __init__(self, services: FrontendServices, caller: Principal, address: Address, close: CloseSocket) -> None:
        self._services = services
        self._caller = caller
        self._address = address
        self._close_socket = close
        self._tags: tuple[bytes, ...] = ()
        self._may_filter = True  # nothing was asked for yet
        self._credit = 0
        self._unpaid = 0  # frames about messages that the client has, which wait for the rate
        self._message_bytes = 1.0  # of one, in the last fetch
        self._held: dict[Name, _Held] = {}
        self._acks: list[Settled[Name]] = []
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._settling: asyncio.Task[None] | None = None

    # --- of the wire ---

    @abstractmethod
    def _read(self, queue: ResolvedQueue, name: Name) -> Receipt | RequestError:
        """What the client means."""

    @abstractmethod
    async def _open(self, queue: ResolvedQueue, leases: Sequence[Lease]) -> list[tuple[Name, Lease, Received]]:
        """The messages of the leases that open, with the names by which the client will know them."""

    @abstractmethod
    async def _send_messages(self, messages: Sequence[tuple[Name, Lease, Received]]) -> None:
        """What has left is noted (`_note_sent`)."""

    @abstractmethod
    async def _tell_lost(self, names: Sequence[Name]) -> None: ...

    @abstractmethod
    async def _tell_error(self, error: RequestError, names: Sequence[Name] = ()) -> None: ...

    @abstractmethod
    async def _require_use(self) -> ResolvedQueue:
        """The queue that the key may use for something that the wire is for. Raises RequestError."""

    async def _finish(self) -> None:
        """The service is about to end the socket: what is under way is answered first."""

    async def _goes_on_without(self, error: RequestError) -> bool:
        """Whether the socket lives on where messages are refused to it."""
        return False

    # --- life ---

    async def start(self) -> None:
        """Raises RequestError if the caller may have none of this queue."""
        pay(self._services, self._caller, self._address)
        await self._require_use()
        self._tasks = [asyncio.create_task(self._guard(self._pump())), asyncio.create_task(self._guard(self._renew()))]

    async def close(self) -> None:
        """Finish the acks that came, stop, give back what is still held."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._settling is not None:
            await asyncio.gather(self._settling, return_exceptions=True)
        # A lease that ran out may be another consumer's by now.
        now_s = monotonic()
        held = [one for one in self._held.values() if one.until_s > now_s]
        self._held.clear()
        unseen = [one.name for one in held if not one.is_sent]
        await give_back(self._services.storage, unseen, VisibilityMode.UNSEEN)
        await give_back(self._services.storage, [one.name for one in held if one.is_sent], VisibilityMode.HELD)

    async def _pay_settled(self, messages: int, size_bytes: int) -> None:
        """What the client has done with messages is heard, however long its rate lets that wait: until then its leases
        are renewed, and nothing more is fetched. A stop waits for nothing. Raises RequestError for what no wait
        helps."""
        self._unpaid += 1
        try:
            while True:
                try:
                    pay(self._services, self._caller, self._address, messages, size_bytes)
                    return
                except RequestError as error:
                    if error.retry_after_s is None:
                        raise
                    wait_s = float(error.retry_after_s)
                if await self._stopping_within(wait_s):
                    pay_later(self._services, self._caller, self._address, messages, size_bytes)
                    return
        finally:
            self._unpaid -= 1

    async def _pay(self, messages: int, size_bytes: int = 0, is_send: bool = False) -> None:
        """A client over its rate is not read for a while. Raises RateExceeded if that does not help, RequestError for
        what no wait helps."""
        waits_until_s = monotonic() + SOCKET_PAUSE_S_MAX
        while True:
            try:
                pay(self._services, self._caller, self._address, messages, size_bytes, is_send)
                return
            except RequestError as error:
                if error.retry_after_s is None:
                    raise
                wait_s = float(error.retry_after_s)
                if monotonic() + wait_s > waits_until_s:
                    raise RateExceeded(error.message) from None
                await asyncio.sleep(wait_s)

    # --- credit and messages ---

    async def _set_filter(self, tags: list[str]) -> None:
        if not self._may_filter:
            raise invalid("A filter is set before the first credit is given.")
        self._tags = check_filter(tags, (await self._queue()).fifo is not None)

    def _add_credit(self, n: int) -> None:
        if not 1 <= n <= self.credit_max - self._credit:
            raise invalid(f"Credit must be positive and stay within {self.credit_max}.")
        self._credit += n
        self._may_filter = False
        self._wake.set()

    async def _pump(self) -> None:
        while not self._services.stopping.is_set():
            room = self._room()
            if room <= 0:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._move(room)
            except RequestError as error:
                if not await self._goes_on_without(error):
                    raise

    async def _move(self, room: int) -> None:
        """Some messages to the client. A call of its own: between two of them nothing of a fetch is kept."""
        fetched = await self._fetch(room)
        if len(fetched.leases) < self.fetch_messages_max:
            await self._deliver(fetched)
        else:
            await self._deliver_a_backlog(fetched)

    def _room(self, fetched: int = 0) -> int:
        """How many messages may be asked for, with so many that are on their way to the client."""
        left = min(self._credit, SOCKET_LEASES_MAX - len(self._held)) - fetched
        return min(left, self.fetch_messages_max)

    async def _deliver_a_backlog(self, fetched: _Fetched) -> None:
        """As long as there is more than is fetched at a time, the next messages are fetched while these are sent."""
        while True:
            room = self._room(len(fetched.leases))
            if room <= 0:
                await self._deliver(fetched)
                return
            is_ready = asyncio.Event()
            coming = asyncio.create_task(self._fetch_ahead(room, is_ready))
            try:
                await self._deliver(fetched)
                is_ready.set()
                fetched = await coming
            except BaseException:
                coming.cancel()
                (came,) = await asyncio.gather(coming, return_exceptions=True)
                if isinstance(came, _Fetched):
                    await release(self._services.storage, came.leases, VisibilityMode.UNSEEN)
                raise
            if not fetched.leases:
                return

    async def _fetch_ahead(self, room: int, is_ready: asyncio.Event) -> _Fetched:
        """What the client is not ready for within SOCKET_RENEW_S goes back, uncounted: these leases are not renewed."""
        fetched = await self._fetch(room, 0)
        try:
            async with asyncio.timeout(SOCKET_RENEW_S):
                await is_ready.wait()
        except TimeoutError:
            await release(self._services.storage, fetched.leases, VisibilityMode.UNSEEN)
            return _Fetched([], 0.0)
        except asyncio.CancelledError:
            await release(self._services.storage, fetched.leases, VisibilityMode.UNSEEN)
            raise
        return fetched

    async def _fetch(self, room: int, wait_ms: int = SOCKET_WAIT_MS) -> _Fetched:
        """Leases of up to so many messages; none after a failure that passes, and a pause. Raises RequestError for one
        that does not."""
        queue = await self._queue()
        if self._unpaid:
            await asyncio.sleep(SOCKET_RETRY_S)
            return _Fetched([], 0.0)
        try:
            pay(self._services, self._caller, self._address)
            left = messages_left(self._services, self._caller, self._address, SOCKET_FETCH_AHEAD_S, self._message_bytes)
            ask = PollRequest(min(room, left), SOCKET_VISIBILITY_S * 1000, wait_ms, tags=self._tags)
            leases = await poll_partitions(self._services.storage, queue.partitions, ask, queue.routes)
            return _Fetched(leases, monotonic() + SOCKET_VISIBILITY_S)
        except StorageError as error:
            if self._tags and error.code == ErrorCode.OVER_LIMIT:
                raise filter_finds_nothing(error.message) from None
            await asyncio.sleep(SOCKET_RETRY_S)
        except RequestError as error:  # over a rate
            await asyncio.sleep(max(SOCKET_RETRY_S, error.retry_after_s or 0.0))
        return _Fetched([], 0.0)

    async def _deliver(self, fetched: _Fetched) -> None:
        leases = fetched.leases
        if not leases:
            return
        try:
            queue = await self._queue()
        except (RequestError, asyncio.CancelledError):
            # The key was revoked or restricted while this waited, or the socket has ended: it gets nothing more.
            await release(self._services.storage, leases, VisibilityMode.UNSEEN)
            raise
        opened = await self._open(queue, leases)
        for name, lease, _ in opened:
            # Held before it is sent: an ack may come back before the send is done.
            self._held[name] = _Held(_receipt_of(lease), fetched.until_s)
        size_bytes = sum(map(len, map(_body, leases)))
        self._message_bytes = size_bytes / len(leases)
        pay_later(self._services, self._caller, self._address, len(leases), size_bytes)
        self._credit -= len(opened)
        self._services.meters.count("messages_pushed", len(opened))
        await self._send_messages(opened)

    def _note_sent(self, names: Iterable[Name]) -> None:
        for name in names:
            held = self._held.get(name)  # else it was settled already
            if held is not None:
                held.is_sent = True

    # --- settling ---

    async def _ack(self, receipts: Sequence[Settled[Name]]) -> None:
        if len(self._acks) + len(receipts) > SOCKET_ACKS_PENDING_MAX and self._settling is not None:
            await asyncio.wait({self._settling})
        for name, _ in receipts:
            self._held.pop(name, None)
        self._acks += receipts
        self._wake.set()
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._guard(self._settle()))

    async def _settle(self) -> None:
        while self._acks:
            receipts, self._acks = self._acks[:SOCKET_IDS_PER_FRAME_MAX], self._acks[SOCKET_IDS_PER_FRAME_MAX:]
            await self._apply(receipts, None)

    async def _nack(self, receipts: Sequence[Settled[Name]], delay_seconds: int | None, counts: bool) -> None:
        for name, _ in receipts:
            self._held.pop(name, None)
        self._wake.set()
        await self._apply(receipts, (delay_seconds or 0) * 1000, give_back_mode(delay_seconds, counts))

    async def _apply(
        self,
        receipts: Sequence[Settled[Name]],
        visibility_ms: int | None,
        mode: VisibilityMode = VisibilityMode.SET,
    ) -> set[Name]:
        """Delete (None) or change visibility; tells the client what was refused, and returns it."""
        try:
            queue = await self._queue("DeleteMessage" if visibility_ms is None else "ChangeMessageVisibility")
            changes = None if visibility_ms is None else [visibility_ms] * len(receipts)
            found = [receipt or self._read(queue, name) for name, receipt in receipts]
            outcomes = await apply_receipts(self._services, queue, found, changes, mode)
        except RequestError as error:
            outcomes = [error] * len(receipts)
        if not any(outcomes):
            return set()
        by_code: dict[str, tuple[RequestError, list[Name]]] = {}
        for (name, _), outcome in zip(receipts, outcomes, strict=True):
            if outcome is not None and not (visibility_ms is None and outcome.code == "MessageNotInflight"):
                by_code.setdefault(outcome.code, (outcome, []))[1].append(name)
        for outcome, refused in by_code.values():
            await self._tell_error(outcome, refused)
        return {name for _, refused in by_code.values() for name in refused}

    # --- leases ---

    async def _renew(self) -> None:
        checked_s = monotonic()
        # A stop of the process is told by the connection, behind the frames that came before it.
        while not await self._stopping_within(SOCKET_RENEW_S):
            now_s = monotonic()
            if now_s - checked_s >= SOCKET_RECHECK_S:
                checked_s = now_s
                refusal = await self._key_refused()
                if refusal is not None:
                    await self._end(*refusal)
                    return
            try:
                await self._renew_held(now_s)
            except RequestError as error:
                if not await self._goes_on_without(error):
                    raise

    async def _renew_held(self, now_s: float) -> None:
        # A lease that ran out would be taken from who received the message since: it is not renewed.
        lost = [name for name, held in self._held.items() if held.until_s <= now_s]
        for name in lost:
            del self._held[name]
        due = {
            name: held
            for name, held in self._held.items()
            if held.until_s - now_s < SOCKET_VISIBILITY_S - SOCKET_RENEW_S / 2
        }
        if due:
            lost += await self._renew_all(due, now_s)
        if lost:
            self._wake.set()
            await self._tell_lost(lost)

    async def _renew_all(self, due: Mapping[Name, _Held], now_s: float) -> list[Name]:
        """Those that cannot be held any more."""
        queue = await self._queue()
        lost: list[Name] = []
        names = list(due)
        for start in range(0, len(names), SOCKET_IDS_PER_FRAME_MAX):
            # What was acked or given back during an earlier call is another consumer's to have.
            some = [name for name in names[start : start + SOCKET_IDS_PER_FRAME_MAX] if name in self._held]
            found = [due[name].receipt for name in some]
            outcomes = await apply_receipts(self._services, queue, found, [SOCKET_VISIBILITY_S * 1000] * len(found))
            for name, outcome in zip(some, outcomes, strict=True):
                if outcome is None:
                    due[name].until_s = now_s + SOCKET_VISIBILITY_S
                elif outcome.kind.status < 500 and self._held.pop(name, None) is not None:
                    lost.append(name)
        return lost

    async def _stopping_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._services.stopping.wait()
        return self._services.stopping.is_set()

    async def _key_refused(self) -> tuple[int, str] | None:
        """The code and the reason that end it all; None for a key that may go on."""
        try:
            await self._require_use()
        except RequestError as error:
            return close_code_of(error.kind.rest_status), error.message
        return None

    async def _queue(self, action: str = "ReceiveMessage") -> ResolvedQueue:
        """The queue, as the key may use it now. Raises RequestError."""
        try:
            return await also(self._services, await self._renewed_caller(), action, self._address)
        except MetadataUnavailable:
            raise unavailable("Queues cannot be looked up at the moment.") from None

    async def _renewed_caller(self) -> Principal:
        """With the rights that it has now. Raises RequestError."""
        try:
            self._caller = await still_caller(self._services, self._caller)
        except MetadataUnavailable:
            raise unavailable("Keys cannot be looked up at the moment.") from None
        return self._caller

    async def _end(self, code: int, reason: str) -> None:
        await self._finish()
        await self._close_socket(code, reason)

    async def _guard(self, work: Awaitable[None]) -> None:
        """A task of the socket ends with it: the client left (OSError, RuntimeError), the queue did, or the filter was
        refused."""
        try:
            await work
        except RequestError as error:
            with contextlib.suppress(OSError, RuntimeError):
                await self._tell_error(error)
                await self._end(close_code_of(error.kind.rest_status), error.message)
        except (OSError, RuntimeError):
            return
        except Exception:
            _log.exception("subscription_failed", account_id=self._caller.account_id)
            with contextlib.suppress(OSError, RuntimeError):
                await self._end(CLOSE_INTERNAL, "The subscription failed inside the service.")


def _receipt_of(lease: Lease) -> Receipt:
    """Needs no proof: the lease was made here."""
    message = lease.message
    return Receipt(lease.partition, message.offset, message.delivery, lease.epoch)


def check_nack_delay_s(delay_seconds: int | None) -> None:
    """Raises RequestError."""
    if not 0 <= (delay_seconds or 0) <= VISIBILITY_S_MAX:
        raise invalid(f"delay_seconds must be between 0 and {VISIBILITY_S_MAX}.")
