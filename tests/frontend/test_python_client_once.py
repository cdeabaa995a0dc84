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


async def test_failure_of_the_service_is_no_refusal_for_good(front: Installation, link: Connect) -> None:
    send = front.storage.send

    async def broken(*arguments: Any) -> Any:
        await send(*arguments)
        raise RuntimeError("a bug")

    front.storage.send = broken  # type: ignore[method-assign]
    async with link() as queue:
        assert [one.code for one in (await queue.publish(["x"])).failed] == ["internal-failure"]
    assert front.storage.count() == 1, "it may be stored, and is not sent again"


async def test_pause_before_another_attempt_is_as_long_as_the_service_asks_for(
    link: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    async with link() as queue:
        answers = [{"type": "refuse", "code": "request-throttled", "detail": "", "retry_after_s": 7}, {"failed": []}]

        async def answer(_: object) -> dict[str, Any]:
            return {"type": "confirm", **answers.pop(0)}

        monkeypatch.setattr(queue._publishing, "_answer", answer)
        with monkeypatch.context() as patched:
            patched.setattr(publishing.asyncio, "sleep", noted)
            assert not (await queue.publish(["x"])).failed
    assert 7 in pauses


async def test_message_of_an_earlier_batch_is_not_settled_by_a_later_one(front: Installation, link: Connect) -> None:
    async with link() as queue:
        await queue.publish(["a", "b"])
        batches = queue.receive()
        first = await anext(batches)
        cut(queue)
        second = await anext(batches)
        for settle in (second.ack, second.nack):
            with pytest.raises(ValueError, match="another batch"):
                await settle([first[0]])
        assert front.storage.count() == 2 and await second.ack(list(second))
        await until(lambda: front.storage.count() == 0)


async def test_receive_that_was_left_is_followed_by_another_at_once(link: Connect) -> None:
    async with link() as queue:
        await queue.publish(["a", "b"])
        bodies = []
        for _ in range(2):
            async for batch in queue.receive(prefetch=1):
                bodies += batch.bodies()
                await batch.ack()
                break
        assert sorted(bodies) == ["a", "b"]
        held = queue.receive(idle_s=0.01)
        with pytest.raises(StopAsyncIteration):
            await anext(held)
        held = queue.receive()
        waiting = asyncio.ensure_future(anext(held))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already"):
            await anext(queue.receive())
        waiting.cancel()
        await asyncio.wait({waiting})
        await queue.publish(["c"])
        assert (await anext(queue.receive())).bodies() == ["c"]


@pytest.mark.parametrize("wait_for_next", [False, True])
async def test_ack_that_was_not_sent_does_not_count_for_the_limit(link: Connect, wait_for_next: bool) -> None:
    async with link() as queue:
        await queue.publish(["a"])
        say = queue._link.say
        bodies: list[str] = []

        async def not_sent(frame: dict[str, Any]) -> bool:
            if frame["type"] != "ack" or bodies[1:]:
                return await say(frame)
            cut(queue)
            if wait_for_next:
                await until(lambda: queue._link.connection == 2 and queue._link.ready.is_set())
            return False

        queue._link.say = not_sent  # type: ignore[method-assign]
        async with asyncio.timeout(10):
            async for batch in queue.receive(limit=1):
                bodies += batch.bodies()
                await batch.ack()
        assert bodies == ["a", "a"]
