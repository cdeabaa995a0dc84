"""Receiving from the partitions of a queue: look, then park at all of them; and what must be handed back.

    one partition    asked, and parked at by the same call
    one level        the partition whose turn it is; if it has nothing, all are asked what they hold (which leases
                     nothing), and the first that holds something is leased from
    several levels   all are asked what they hold at once; the highest level that holds something is leased from

So a look costs one, three or two steps, whatever the number of partitions, and leases from one partition only: nothing
has to be handed back, which would count as a delivery. A partition that does not answer stops nobody: its error is
the caller's only where nothing was found elsewhere.

A poll that ends early (the client left, the process stops) is cancelled at the nodes. Messages that were leased in
the same instant are made visible again at once, and do not count as received: nobody has seen them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from frontend.errors import RequestError
from frontend.http import Disconnected
from frontend.limits import POLL_OVERDUE_MS
from frontend.routing.partitioner import PriorityLevel, Routes
from frontend.routing.storage import MessageStorage
from storage_nodes.limits import RECEIPTS_PER_CALL_MAX
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import AcquiredMessage, AcquireReply, QueueStats, VisibilityMode

T = TypeVar("T")


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A message as its partition delivered it; `epoch` and `deadline_ms` are those of the answer (AcquireReply)."""

    partition: int
    epoch: int
    message: AcquiredMessage
    deadline_ms: int = 0


class PollRequest(msgspec.Struct, frozen=True, gc=False):
    messages_max: int
    visibility_ms: int
    wait_ms: int
    attempt: bytes = b""
    tags: tuple[bytes, ...] = ()


async def poll_partitions(
    storage: MessageStorage, partitions: Sequence[int], request: PollRequest, routes: Routes | None = None
) -> list[Lease]:
    """Up to messages_max leases from the partitions of one queue. Raises StorageError."""
    if routes is None:
        reply = await storage.acquire(
            partitions[0], request.messages_max, request.visibility_ms, request.wait_ms, request.attempt, request.tags
        )
        return _leases(partitions[0], reply)
    return await _poll_routes(storage, routes, request)


async def poll_while_connected(
    storage: MessageStorage,
    partitions: Sequence[int],
    request: PollRequest,
    receive: Callable[[], Awaitable[Any]],
    parked: set[asyncio.Task[list[Lease]]],
    check_overdue: Callable[[], Awaitable[object]],
    routes: Routes | None = None,
) -> list[Lease]:
    """A long poll that ends when the client leaves (Disconnected) or when somebody cancels it in `parked` (empty). A
    client that has closed its half of the connection may be gone as well: it gets what is there, and waits no longer.
    `check_overdue` is called where it takes longer than it may, and raises RequestError where there is nothing to wait
    for any more: a queue may be deleted in the meantime, and storage looks for its partitions for long."""
    poll = asyncio.create_task(poll_partitions(storage, partitions, request, routes))
    gone = asyncio.ensure_future(receive())
    parked.add(poll)
    try:
        ends = {poll, gone}
        in_time_s = (request.wait_ms + POLL_OVERDUE_MS) / 1000
        done, _ = await asyncio.wait(ends, timeout=in_time_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            await check_overdue()
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not poll.done():
            if _is_departure(gone):
                raise Disconnected
            await asyncio.shield(_in_background(_cancel_and_release(storage, [poll])))
            look = msgspec.structs.replace(request, wait_ms=0)
            return await poll_partitions(storage, partitions, look, routes)
        return [] if poll.cancelled() else poll.result()
    except (asyncio.CancelledError, Disconnected, RequestError):
        # Also where it is done: what it leased is nobody's. A task of its own, which no second cancel ends.
        await asyncio.shield(_in_background(_cancel_and_release(storage, [poll])))
        raise
    finally:
        parked.discard(poll)
        gone.cancel()


async def has_left(receive: Callable[[], Awaitable[Any]]) -> bool:
    """Whether the client of a request is gone by now. Waits for nothing where `receive` gives a plain future, as the
    express lane's does."""
    leaving = receive()
    if isinstance(leaving, asyncio.Future):
        gone = leaving
    else:
        gone = asyncio.ensure_future(leaving)
        await asyncio.sleep(0)  # its first step
    left = gone.done() and _is_departure(gone)
    gone.cancel()
    return left


def _is_departure(said: asyncio.Future[Any]) -> bool:
    """Or has the client only ended its half?"""
    return bool(said.result()["type"] == "http.disconnect")


class LeaseName(NamedTuple):
    """What storage knows a lease by. `deadline_ms` 0: not named."""

    partition: int
    epoch: int
    deadline_ms: int
    offset: int
    delivery: int


async def release(storage: MessageStorage, leases: Sequence[Lease], mode: VisibilityMode = VisibilityMode.HELD) -> None:
    """Make leased messages visible again. UNSEEN: nobody has seen them, and their leases are as they were answered."""
    is_unseen = mode == VisibilityMode.UNSEEN
    names = [
        LeaseName(
            lease.partition,
            lease.epoch,
            lease.deadline_ms if is_unseen else 0,
            lease.message.offset,
            lease.message.delivery,
        )
        for lease in leases
    ]
    await give_back(storage, names, mode)


async def give_back(storage: MessageStorage, names: Sequence[LeaseName], mode: VisibilityMode) -> None:
    """As well as that can be done: their leases run out in any case. What another consumer has by now stays with it."""
    by_partition: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for partition, epoch, deadline_ms, offset, delivery in names:
        by_partition.setdefault((partition, epoch, deadline_ms), []).append((offset, delivery, 0))
    for (partition, epoch, deadline_ms), changes in by_partition.items():
        for some in in_calls(changes):
            with contextlib.suppress(StorageError):
                await storage.change_visibility(partition, some, mode, epoch, deadline_ms)


def in_calls(named: Sequence[T]) -> Iterator[Sequence[T]]:
    """In pieces that a node takes in one call."""
    for start in range(0, len(named), RECEIPTS_PER_CALL_MAX):
        yield named[start : start + RECEIPTS_PER_CALL_MAX]


# --- several partitions ---


async def _poll_routes(storage: MessageStorage, routes: Routes, request: PollRequest) -> list[Lease]:
    look = _Look(storage, request)
    levels = routes.receivable
    if request.attempt:
        leases = await look.known_attempt(routes.receivable_partitions())
    elif len(levels) == 1:
        level = levels[0]
        leases = await look.lease(level, level.next_to_poll())
    else:
        leases = []
    leases = leases or await look.all(levels)
    if leases:
        return leases
    if request.wait_ms:
        leases = await _park_at_all(storage, routes.receivable_partitions(), request)
        for partition in {lease.partition for lease in leases}:
            next(level for level in levels if partition in level.partitions).record_poll(partition, empty=False)
        return leases
    if look.error is not None:
        raise look.error
    return []


class _Look:
    """One look for messages; `error` is what the last partition that did not answer said."""

    __slots__ = ("_request", "_storage", "error")

    def __init__(self, storage: MessageStorage, request: PollRequest) -> None:
        self._storage = storage
        self._request = request
        self.error: StorageError | None = None

    async def known_attempt(self, partitions: Sequence[int]) -> list[Lease]:
        """The messages that an earlier try of this receive got, wherever that was. All must answer: one that does not
        may be the one that knows."""
        asked = msgspec.structs.replace(self._request, messages_max=0, wait_ms=0, tags=())
        polls = [asyncio.create_task(poll_partitions(self._storage, (one,), asked)) for one in partitions]
        try:
            found = await asyncio.gather(*polls)
        except BaseException:
            # What others have leased anew is nobody's.
            await asyncio.shield(_in_background(_cancel_and_release(self._storage, polls)))
            raise
        return [lease for leases in found for lease in leases]

    async def lease(self, level: PriorityLevel, partition: int) -> list[Lease]:
        request = self._request
        try:
            reply = await self._storage.acquire(
                partition, request.messages_max, request.visibility_ms, 0, request.attempt, request.tags
            )
        except StorageError as error:
            self.error = error
            level.record_poll(partition, empty=True)
            return []
        # What a filter passes over is still there for others.
        level.record_poll(partition, empty=not reply.messages and not request.tags)
        return _leases(partition, reply)

    async def all(self, levels: Sequence[PriorityLevel]) -> list[Lease]:
        """From the first partition that holds something, of the highest level where one does."""
        candidates = [(level, partition) for level in levels for partition in level.partitions]
        held = await settle_all([self._storage.stats(partition) for _, partition in candidates])
        waiting: dict[int, int] = {}
        for (level, partition), stats in zip(candidates, held, strict=True):
            if isinstance(stats, StorageError):
                self.error = stats
            elif isinstance(stats, QueueStats):
                waiting[partition] = stats.waiting
                if not stats.waiting:
                    level.record_poll(partition, empty=True)
        for level in levels:
            # The fullest first: it is the likeliest to have something still.
            full = sorted((one for one in level.partitions if waiting.get(one)), key=lambda one: -waiting[one])
            for partition in full:
                leases = await self.lease(level, partition)
                if leases:
                    return leases
        return []


async def _park_at_all(storage: MessageStorage, partitions: Sequence[int], request: PollRequest) -> list[Lease]:
    """The first partition to have something answers, with what others leased in the same instant if there is room for
    all of it; else that goes back, whole: half of an attempt could not be repeated. The answer does not wait for what
    goes back, since its leases run."""
    polls = [asyncio.create_task(poll_partitions(storage, (partition,), request)) for partition in partitions]
    try:
        await _first_with_something(polls)
    except BaseException:
        await _cancel_and_release(storage, polls)
        raise
    done = [poll for poll in polls if poll.done()]
    _in_background(_cancel_and_release(storage, [poll for poll in polls if poll not in done]))
    answered = [poll.result() for poll in done if poll.exception() is None]
    if not answered:
        return done[0].result()  # raises
    if request.attempt and not any(answered):
        for poll in done:
            _raise_over_limit(poll)
    given: list[Lease] = []
    surplus: list[Lease] = []
    for leases in answered:  # in the order of the partitions: the highest level first
        (given if len(given) + len(leases) <= request.messages_max else surplus).extend(leases)
    if surplus:
        _in_background(release(storage, surplus, VisibilityMode.UNSEEN))
    return given


_background: set[asyncio.Task[None]] = set()


def _in_background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Runs to its end, also where the call that began it is cancelled."""
    task = asyncio.get_running_loop().create_task(work, name="leases-back")
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


async def leases_went_back(within_s: float) -> None:
    """Waits, for so long at most, for leases that are on their way back: a process that ends would keep them."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while _background:
                await asyncio.wait(_background)


async def _first_with_something(polls: Sequence[asyncio.Task[list[Lease]]]) -> None:
    """Until one has messages or the wait is over. One that failed is no answer while others wait."""
    waiting = set(polls)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if any(poll.exception() is None for poll in done):
            return


def _raise_over_limit(poll: asyncio.Task[list[Lease]]) -> None:
    """Of a named receive: its messages are not there for it, which is not the same as none."""
    error = poll.exception()
    if isinstance(error, StorageError) and error.code == ErrorCode.OVER_LIMIT:
        raise error


async def _cancel_and_release(storage: MessageStorage, polls: Sequence[asyncio.Task[list[Lease]]]) -> None:
    """Messages that were leased in the moment of the cancel go back."""
    for poll in polls:
        poll.cancel()
    for outcome in await asyncio.gather(*polls, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            await release(storage, outcome, VisibilityMode.UNSEEN)


def _leases(partition: int, reply: AcquireReply) -> list[Lease]:
    epoch, deadline_ms = reply.epoch, reply.deadline_ms
    return [Lease(partition, epoch, message, deadline_ms) for message in reply.messages]


async def settle_all(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T | StorageError]:
    """The outcome of each, at the same time; what is no error of storage is raised."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    settled: list[T | StorageError] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, StorageError):
            raise outcome
        settled.append(outcome)
    return settled
