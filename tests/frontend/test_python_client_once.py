"""The Python client repeats no more than it must: frames that are slowed, frames that are sent once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from penstock_client import Message, Queue, connect, publishing
from penstock_client import link as penstock_link

from frontend.limits import SOCKET_PUBLISHES_MAX
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.frontend_plane import Installation

Connect = Callable[..., Queue]


@pytest.fixture
def link(front: Installation, port: int, monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setattr(publishing, "RETRY_PAUSE_S", 0.001)

    def made(queue: str = "orders", **options: Any) -> Queue:
        url = f"http://127.0.0.1:{port}"
        return connect(url, front.key.bearer_token, queue, proxy=None, pause_s_max=0.2, **options)

    return made


def hold_storage(front: Installation) -> asyncio.Event:
    """Sends are stored at once, and answered when the event is set."""
    send, gate = front.storage.send, asyncio.Event()

    async def held(*arguments: Any) -> Any:
        reply = await send(*arguments)
        await gate.wait()
        return reply

    front.storage.send = held  # type: ignore[method-assign]
    return gate


def cut(queue: Queue) -> None:
    socket = queue._link._socket
    assert socket is not None
    socket.transport.abort()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_no_more_frames_are_under_way_than_the_service_stores_at_a_time(
    front: Installation, link: Connect
) -> None:
    gate = hold_storage(front)
    async with link() as queue:
        publishes = [asyncio.create_task(queue.publish([f"{n}"])) for n in range(3 * SOCKET_PUBLISHES_MAX)]
        await until(lambda: front.storage.count() == SOCKET_PUBLISHES_MAX)
        assert len(queue._publishing._waiting) == SOCKET_PUBLISHES_MAX
        gate.set()
        assert not any(one.failed for one in await asyncio.gather(*publishes))


async def test_late_pong_cuts_nothing_while_confirms_are_due_but_a_dead_peer_is_noticed(
    front: Installation, link: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_pong(_: object) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(penstock_link, "_pong", no_pong)
    monkeypatch.setattr(penstock_link, "PING_S", 0.02)
    monkeypatch.setattr(penstock_link, "HELD_PONG_S", 0.8)
    gate = hold_storage(front)
    async with link() as queue:
        publish = asyncio.create_task(queue.publish(["x"]))
        await until(lambda: front.storage.count() == 1)
        await asyncio.sleep(0.3)
        assert queue._link.connection == 1, "held back is not dead"
        await until(lambda: queue._link.connection == 2)
        gate.set()
        await publish
        await until(lambda: queue._link.connection == 3)  # nothing is due: as soon as a pong is


async def test_frame_that_went_over_the_new_connection_is_not_sent_on_it_again(
    front: Installation, link: Connect
) -> None:
    gate = hold_storage(front)
    async with link() as queue:
        publish = asyncio.create_task(queue.publish(["x"]))
        await until(lambda: front.storage.count() == 1)
        await queue._publishing.resend()
        await asyncio.sleep(0.05)  # what was sent would be stored by then
        gate.set()
        await publish
    assert front.storage.count() == 1


@pytest.mark.parametrize("is_attribute", [False, True])
async def test_acks_none_is_not_sent_again_after_a_lost_connection(
    front: Installation, link: Connect, is_attribute: bool
) -> None:
    gate = hold_storage(front)
    async with link() as queue:
        message = Message("x", attributes={"Penstock.Acks": "none"} if is_attribute else None)
        publish = asyncio.create_task(queue.publish([message], acks=None if is_attribute else "none"))
        await until(lambda: front.storage.count() == 1)
        cut(queue)
        async with asyncio.timeout(10):
            (failure,) = (await publish).failed
        assert (failure.index, failure.code) == (0, "outcome-unknown") and "lost" in failure.detail
        gate.set()
        # One that was not sent at all goes over the next connection.
        cut(queue)
        await until(lambda: not queue._link.is_open)
        assert not (await queue.publish(["y"], acks="none")).failed
    assert front.storage.count() == 2


async def test_acks_none_is_not_sent_again_where_the_outcome_is_unknown(front: Installation, link: Connect) -> None:
    send = front.storage.send

    async def unsure(*arguments: Any) -> Any:
        await send(*arguments)
        raise StorageError(ErrorCode.OUTCOME_UNKNOWN, "the answer was lost")

    front.storage.send = unsure  # type: ignore[method-assign]
    async with link() as queue:
        assert [one.code for one in (await queue.publish(["x"], acks="none")).failed] == ["outcome-unknown"]
    assert front.storage.count() == 1
