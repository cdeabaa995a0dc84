"""Long polls at several partitions: who gets what was leased in the same instant, and what goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec
import pytest

from frontend.errors import RequestError, queue_does_not_exist
from frontend.http import Disconnected
from frontend.routing.partitioner import Routes
from frontend.routing.poll import Lease, PollRequest, leases_went_back, poll_while_connected
from frontend.routing.storage import MessageStorage
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import AcquiredMessage, AcquireReply, QueueStats, VisibilityMode
from tests.support.frontend_plane import ACCOUNT, QUEUE_URL, Installation

PARTITIONS = (1, 2)
REQUEST = PollRequest(10, 43_200_000, 20_000)


class FullAtOnce:
    """Two partitions that hold nothing, until `filled`: then each leases ten messages at once. What goes back takes
    until `settled`."""

    def __init__(self) -> None:
        self.filled, self.settled = asyncio.Event(), asyncio.Event()
        self.leased: list[tuple[int, int]] = []
        self.given_back: list[tuple[int, int]] = []

    async def acquire(self, partition: int, max_messages: int, visibility_ms: int, wait_ms: int = 0, *_: Any) -> Any:
        if wait_ms:
            await self.filled.wait()
        found = [AcquiredMessage(offset, 1, 0, 0, b"") for offset in range(max_messages)] if wait_ms else []
        self.leased += [(partition, message.offset) for message in found]
        return AcquireReply(1, found, 9)

    async def stats(self, partition: int) -> QueueStats:
        return QueueStats(0, 0, 0, 0)

    async def change_visibility(
        self,
        partition: int,
        changes: Sequence[tuple[int, int, int]],
        mode: VisibilityMode,
        epoch: int,
        deadline_ms: int,
    ) -> list[ErrorCode]:
        assert (mode, epoch, deadline_ms) == (VisibilityMode.UNSEEN, 1, 9), "of the answer that brought the leases"
        await self.settled.wait()
        self.given_back += [(partition, offset) for offset, _, _ in changes]
        return []


class OneLevel:
    partitions = PARTITIONS

    def next_to_poll(self) -> int:
        return PARTITIONS[0]

    def record_poll(self, partition: int, empty: bool) -> None:
        pass


class TwoPartitions:
    receivable = (OneLevel(),)

    def receivable_partitions(self) -> tuple[int, ...]:
        return PARTITIONS


async def still_there() -> None:
    pass


async def parked(
    storage: FullAtOnce,
    leaves: asyncio.Event,
    polls: set[asyncio.Task[list[Lease]]] | None = None,
    request: PollRequest = REQUEST,
    check_overdue: Callable[[], Awaitable[None]] = still_there,
) -> asyncio.Task[list[Lease]]:
    async def receive() -> dict[str, str]:
        await leaves.wait()
        return {"type": "http.disconnect"}

    routes = cast(Routes, TwoPartitions())
    poll = poll_while_connected(
        cast(MessageStorage, storage),
        PARTITIONS,
        request,
        receive,
        set() if polls is None else polls,
        check_overdue,
        routes,
    )
    task = asyncio.create_task(poll)
    await asyncio.sleep(0.02)
    return task


async def until_back(storage: FullAtOnce, partitions: Sequence[int]) -> None:
    storage.settled.set()
    async with asyncio.timeout(5):
        while len(storage.given_back) < 10 * len(partitions):
            await asyncio.sleep(0.005)
    assert sorted(storage.given_back) == [(partition, offset) for partition in partitions for offset in range(10)]


async def test_answer_does_not_wait_for_what_goes_back() -> None:
    storage = FullAtOnce()
    poll = await parked(storage, asyncio.Event())
    storage.filled.set()
    async with asyncio.timeout(1):
        leases = await poll
    assert [lease.partition for lease in leases] == [1] * 10 and not storage.given_back
    await until_back(storage, [2])


async def test_process_that_stops_waits_a_moment_for_what_goes_back() -> None:
    storage = FullAtOnce()
    poll = await parked(storage, asyncio.Event())
    storage.filled.set()
    await poll
    await leases_went_back(0.02)
    assert not storage.given_back, "not for ever"
    asyncio.get_running_loop().call_later(0.02, storage.settled.set)
    await leases_went_back(5)
    assert len(storage.given_back) == 10


async def test_client_that_left_in_the_instant_of_the_messages_keeps_none() -> None:
    storage, leaves = FullAtOnce(), asyncio.Event()
    poll = await parked(storage, leaves)
    leaves.set()
    await asyncio.sleep(0)  # its departure is known, and its polls are not cancelled yet
    storage.filled.set()
    storage.settled.set()
    with pytest.raises(Disconnected):
        await poll
    assert sorted(storage.given_back) == sorted(storage.leased)


async def test_call_that_is_cancelled_when_its_poll_is_done_gives_all_back() -> None:
    storage, polls = FullAtOnce(), set[asyncio.Task[list[Lease]]]()
    call = await parked(storage, asyncio.Event(), polls)
    (poll,) = polls
    poll.add_done_callback(lambda _: call.cancel())  # before the call hears of it
    storage.filled.set()
    storage.settled.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(poll.result()) == 10
    await until_back(storage, PARTITIONS)


async def test_poll_that_is_overdue_ends_where_its_queue_is_gone() -> None:
    polls = set[asyncio.Task[list[Lease]]]()
    asked: list[int] = []

    async def gone() -> None:
        asked.append(1)
        raise queue_does_not_exist()

    call = await parked(FullAtOnce(), asyncio.Event(), polls, msgspec.structs.replace(REQUEST, wait_ms=50), gone)
    assert not asked, "within its time nobody is asked"
    async with asyncio.timeout(5):
        with pytest.raises(RequestError, match="QueueDoesNotExist"):
            await call
    assert asked == [1] and not polls


async def test_poll_that_is_overdue_goes_on_where_its_queue_is_there() -> None:
    storage, asked = FullAtOnce(), asyncio.Event()

    async def there() -> None:
        asked.set()

    call = await parked(storage, asyncio.Event(), None, msgspec.structs.replace(REQUEST, wait_ms=50), there)
    async with asyncio.timeout(5):
        await asked.wait()
        storage.filled.set()
        assert len(await call) == 10


async def test_long_poll_of_a_deleted_queue_says_so_when_its_time_is_over(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def look_for_its_partition(*_: Any) -> None:
        asked.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(front.storage, "acquire", look_for_its_partition)
    params = {"QueueUrl": QUEUE_URL, "WaitTimeSeconds": 1}
    polls = [asyncio.create_task(front.sqs("ReceiveMessage", params)) for _ in range(2)]
    await asked.wait()
    del front.metadata.queues[(ACCOUNT, "orders")]
    async with asyncio.timeout(5):
        assert {(await poll).error for poll in polls} == {"QueueDoesNotExist"}
    assert not front.plane.parked


class HalfKnown(FullAtOnce):
    """The first partition knows the attempt, and the second one does not answer, or not yet."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.settled.set()

    async def acquire(self, partition: int, max_messages: int, visibility_ms: int, wait_ms: int = 0, *_: Any) -> Any:
        assert (max_messages, wait_ms) == (0, 0), "it is only asked whether the attempt is known"
        if partition == 2:
            if self.fails:
                raise StorageError(ErrorCode.UNAVAILABLE, "away")
            await asyncio.Event().wait()
        self.leased.append((partition, 5))
        return AcquireReply(1, [AcquiredMessage(5, 1, 0, 0, b"")], 9)


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "left"])
async def test_leases_of_a_repeated_receive_of_which_one_partition_does_not_answer_go_back(fails: bool) -> None:
    storage, leaves = HalfKnown(fails), asyncio.Event()
    call = await parked(storage, leaves, request=PollRequest(10, 30_000, 20_000, b"attempt"))
    leaves.set()
    with pytest.raises(StorageError if fails else Disconnected):
        await call
    assert storage.leased == storage.given_back == [(1, 5)]


class Forgetful(FullAtOnce):
    """The first partition can remember no more receives, and the second one has nothing."""

    async def acquire(self, partition: int, max_messages: int, visibility_ms: int, wait_ms: int = 0, *_: Any) -> Any:
        if partition == 1 and max_messages:
            raise StorageError(ErrorCode.OVER_LIMIT, "too many")
        return AcquireReply(1, [], 9)


async def test_named_receive_hears_of_the_partition_that_cannot_remember_it() -> None:
    with pytest.raises(StorageError, match="too many"):
        await (await parked(Forgetful(), asyncio.Event(), request=PollRequest(10, 30_000, 20_000, b"attempt")))
