"""Receiving from the partitions of a queue: sweep, then park at all of them; and what must be handed back.

A poll that ends early (the client left, the process stops) is cancelled at the nodes. Messages that were leased in
the same instant are made visible again at once, and do not count as received: nobody has seen them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from frontend.http import Disconnected
from frontend.routing.partitioner import search_order
from frontend.routing.storage import Storage
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import AcquiredMessage, AcquireReply, VisibilityMode


class Lease(NamedTuple):
    """A message as its partition delivered it."""

    partition: int
    epoch: int
    message: AcquiredMessage


class PollAsk(NamedTuple):
    messages_max: int
    visibility_ms: int
    wait_ms: int
    attempt: bytes = b""
    tags: tuple[bytes, ...] = ()


async def poll_partitions(storage: Storage, partitions: Sequence[int], ask: PollAsk) -> list[Lease]:
    """Up to messages_max leases from the partitions of one queue. Raises StorageError."""
    if len(partitions) == 1:
        reply = await storage.acquire(
            partitions[0], ask.messages_max, ask.visibility_ms, ask.wait_ms, ask.attempt, ask.tags
        )
        return _leases(partitions[0], reply)
    leases: list[Lease] = []
    for partition in search_order(partitions):
        room = ask.messages_max - len(leases)
        reply = await storage.acquire(partition, room, ask.visibility_ms, 0, tags=ask.tags)
        leases += _leases(partition, reply)
        if len(leases) >= ask.messages_max:
            break
    if leases or not ask.wait_ms:
        return leases
    return await _park_at_all(storage, partitions, ask)


async def poll_while_connected(
    storage: Storage,
    partitions: Sequence[int],
    ask: PollAsk,
    receive: Callable[[], Awaitable[Any]],
    parked: set[asyncio.Task[list[Lease]]],
) -> list[Lease]:
    """A long poll that ends when the client leaves (Disconnected) or when somebody cancels it in `parked` (empty)."""
    poll = asyncio.create_task(poll_partitions(storage, partitions, ask))
    gone = asyncio.ensure_future(receive())
    parked.add(poll)
    try:
        await asyncio.wait({poll, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not poll.done():
            raise Disconnected
        return [] if poll.cancelled() else poll.result()
    finally:
        parked.discard(poll)
        gone.cancel()
        if not poll.done():
            await _cancel_and_release(storage, [poll])


async def release(storage: Storage, leases: Sequence[Lease], mode: VisibilityMode = VisibilityMode.SET) -> None:
    """Make leased messages visible again, as well as that can be done: their leases run out in any case."""
    by_partition: dict[int, list[tuple[int, int, int]]] = {}
    for lease in leases:
        changes = by_partition.setdefault(lease.partition, [])
        changes.append((lease.message.offset, lease.message.delivery, 0))
    for partition, changes in by_partition.items():
        try:
            await storage.change_visibility(partition, changes, mode)
        except StorageError:
            continue


async def _park_at_all(storage: Storage, partitions: Sequence[int], ask: PollAsk) -> list[Lease]:
    """The first partition to have something answers; what others leased meanwhile fills up or goes back."""
    polls = [asyncio.create_task(poll_partitions(storage, (partition,), ask)) for partition in partitions]
    try:
        await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
    except BaseException:
        await _cancel_and_release(storage, polls)
        raise
    done = [poll for poll in polls if poll.done()]
    await _cancel_and_release(storage, [poll for poll in polls if poll not in done])
    leases = [lease for poll in done if poll.exception() is None for lease in poll.result()]
    if not leases:
        return done[0].result()  # raises what it raised
    await release(storage, leases[ask.messages_max :], VisibilityMode.UNCOUNTED)
    return leases[: ask.messages_max]


async def _cancel_and_release(storage: Storage, polls: Sequence[asyncio.Task[list[Lease]]]) -> None:
    for poll in polls:
        poll.cancel()
    for outcome in await asyncio.gather(*polls, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            await release(storage, outcome, VisibilityMode.UNCOUNTED)


def _leases(partition: int, reply: AcquireReply) -> list[Lease]:
    epoch = reply.epoch
    return [Lease(partition, epoch, message) for message in reply.messages]
