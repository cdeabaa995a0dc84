"""The Python client against the real server: batches both ways, lost connections, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from penstock_client import (
    Batch,
    ClientError,
    ConnectionRefused,
    Message,
    NotConnected,
    PublishRefused,
    Queue,
    connect,
    publishing,
    wire,
)

from frontend.limits import BULK_BYTES_MAX, MIB
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.frontend_plane import Installation

pytestmark = pytest.mark.usefixtures("quick")
Connect = Callable[..., Queue]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "RETRY_PAUSE_S", 0.001)


@pytest.fixture(params=["msgpack", "json"])
def link(request: pytest.FixtureRequest, front: Installation, port: int, monkeypatch: pytest.MonkeyPatch) -> Connect:
    if request.param == "json":
        monkeypatch.setattr("penstock_client.queue.best_form", lambda: wire.JSON)

    def made(queue: str = "orders", token: str = "", **options: Any) -> Queue:
        endpoint = f"http://127.0.0.1:{port}"
        return connect(endpoint, token or front.key.bearer_token, queue, proxy=None, pause_s_max=0.2, **options)

    return made


async def received(queue: Queue, count: int, **options: Any) -> list[str]:
    bodies: list[str] = []
    async for batch in queue.receive(limit=count, **options):
        bodies += batch.bodies()
        await batch.ack()
    return bodies


async def test_what_is_published_is_received_and_gone(front: Installation, link: Connect) -> None:
    bodies = [f"größe {n}" for n in range(1_200)]
    async with link() as queue:
        published = await queue.publish(bodies, ids=True)
        assert published.count == 1_200 and not published.failed
        assert published.sent is not None and len({one["id"] for one in published.sent if one}) == 1_200
        async with asyncio.timeout(10):
            assert sorted(await received(queue, 1_200, prefetch=700)) == sorted(bodies)
    assert front.storage.count() == 0


async def test_members_of_a_message_arrive(front: Installation, link: Connect) -> None:
    front.add_queue("orders.fifo", (2,))
    async with link("orders.fifo") as queue:
        message = Message("x", group="g", deduplication_id="d", attributes={"a": "1", "b": ("Number", "2")})
        await queue.publish([message])
        async for batch in queue.receive(limit=1):
            (got,) = batch
            assert (got.body, got.group, got.delivery_count, got.number) == ("x", "g", 1, 1)
            assert got.attributes == {"a": ("String", "1"), "b": ("Number", "2")}
            assert got.sequence_number and got.id and batch[0].id == got.id and batch[-1:][0].body == "x"
            await batch.ack()


async def test_frames_keep_within_what_the_service_takes(link: Connect) -> None:
    async with link() as queue:
        published = await queue.publish(["x" * MIB] * 9)
        assert not published.failed
        with pytest.raises(PublishRefused, match="larger than a frame"):
            await queue.publish(["x" * (BULK_BYTES_MAX + 1)])
        assert len(await received(queue, 9)) == 9


async def test_entries_that_are_refused_are_told_by_their_place(link: Connect) -> None:
    async with link() as queue:
        published = await queue.publish([*["ok"] * 700, "", "ok"])
        assert [(one.index, one.code) for one in published.failed] == [(700, "missing-required-parameter")]


async def test_part_of_a_batch_is_acknowledged_and_part_given_back(front: Installation, link: Connect) -> None:
    async with link() as queue:
        await queue.publish(["a", "b", "c", "d"])
        batches: AsyncIterator[Batch] = queue.receive(prefetch=4)
        batch = await anext(batches)
        await batch.ack([batch[0], batch[2]])
        await batch.nack([batch[1]])
        assert await batch.ack()
        again = await anext(batches)
        assert (again.bodies(), again[0].delivery_count, again[0].number) == (["b"], 2, 5)
        await again.ack()
    assert front.storage.count() == 0


async def test_receive_ends_when_nothing_comes(link: Connect) -> None:
    async with link() as queue:
        assert await received(queue, 10, idle_s=0.05) == []
        await queue.publish(["x"])
        assert await received(queue, 10, idle_s=0.3) == ["x"]


async def test_limit_takes_all_that_came_while_work_was_done(front: Installation, link: Connect) -> None:
    bodies: list[str] = []
    async with link() as queue:
        await queue.publish(["x"] * 1_000)
        async with asyncio.timeout(10):
            async for batch in queue.receive(limit=1_000):
                await asyncio.sleep(0.1)  # the next one arrives
                bodies += batch.bodies()
                await batch.ack()
    assert len(bodies) == 1_000 and front.storage.count() == 0


async def test_first_receive_chooses_the_tags(link: Connect) -> None:
    async with link() as queue:
        await queue.publish([Message("a", tag="red"), Message("b", tag="blue"), Message("c", tag="red")])
        for body in ("a", "c"):
            assert await received(queue, 1, tags=["red"]) == [body]
        with pytest.raises(ValueError, match="chooses the tags"):
            await received(queue, 1)


async def test_receive_that_begins_before_the_connection_is_ready_asks_once(
    link: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    async def say(frame: dict[str, Any]) -> bool:
        said.append(frame["type"])
        return True

    async with link() as queue:
        monkeypatch.setattr(queue._link, "say", say)
        queue._link.ready.clear()
        receive = asyncio.create_task(received(queue, 1, tags=["red"]))
        await asyncio.sleep(0.01)
        assert not said
        await queue._consuming.begin()
        assert said == ["filter", "credit"]
        receive.cancel()
        await asyncio.wait({receive})


async def test_failed_frame_of_a_fifo_queue_holds_back_those_behind_it(front: Installation, link: Connect) -> None:
    front.add_queue("orders.fifo", (2,))
    send, has_failed = front.storage.send, False

    async def failing_once(*arguments: Any) -> Any:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            raise StorageError(ErrorCode.NO_QUORUM, "no majority")
        return await send(*arguments)

    front.storage.send = failing_once  # type: ignore[method-assign]
    async with link("orders.fifo", deduplicate=True) as queue:
        bodies = [f"{n}" for n in range(1_200)]
        async with asyncio.timeout(10):
            assert not (await queue.publish([Message(body, group="g") for body in bodies])).failed
            assert await received(queue, 1_200) == bodies
        front.storage.send = send  # type: ignore[method-assign]
        front.storage.fail_with = ErrorCode.NO_QUORUM
        failed = (await queue.publish([Message(body, group="g") for body in bodies])).failed
        assert [one.index for one in failed] == list(range(1_200))


async def test_publish_that_is_cancelled_is_not_repeated(link: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stuck(raw: bytes | str) -> bool:
        await asyncio.sleep(3600)
        return True

    async with link() as queue:
        monkeypatch.setattr(queue._link, "send", stuck)
        publish = asyncio.create_task(queue.publish(["x"]))
        while not queue._publishing._waiting:
            await asyncio.sleep(0)
        publish.cancel()
        await asyncio.wait({publish})
        assert not queue._publishing._waiting


async def test_lost_connection_repeats_what_was_not_confirmed(front: Installation, link: Connect) -> None:
    """And what was stored already is not stored twice, where messages have ids to be known by."""
    front.add_queue("orders.fifo", (2,))
    send = front.storage.send
    lost = asyncio.Event()

    async def confirm_is_lost(*arguments: Any) -> Any:
        reply = await send(*arguments)
        if not lost.is_set():
            lost.set()
            cut(queue)
        return reply

    front.storage.send = confirm_is_lost  # type: ignore[method-assign]
    async with link("orders.fifo", deduplicate=True) as queue:
        async with asyncio.timeout(10):
            published = await queue.publish([Message(f"{n}", group="g") for n in range(10)])
        assert lost.is_set() and not published.failed
        async with asyncio.timeout(10):
            assert await received(queue, 10) == [f"{n}" for n in range(10)]
    assert front.storage.count() == 0


async def test_messages_of_a_lost_connection_come_again(front: Installation, link: Connect) -> None:
    async with link() as queue:
        await queue.publish(["a", "b"])
        batches = queue.receive()
        batch = await anext(batches)
        cut(queue)
        async with asyncio.timeout(10):
            again = await anext(batches)
        assert await batch.ack() is False, "settling what was lost has no effect"
        assert sorted(again.bodies()) == ["a", "b"] and await again.ack()
    assert front.storage.count() == 0


async def test_failure_that_passes_is_tried_again(front: Installation, link: Connect) -> None:
    async with link() as queue:
        front.storage.fail_with = ErrorCode.NO_QUORUM
        publish = asyncio.create_task(queue.publish(["x"]))
        while not front.storage.calls:
            await asyncio.sleep(0.001)
        front.storage.fail_with = None
        assert not (await publish).failed
        front.storage.fail_with = ErrorCode.NO_QUORUM
        assert [one.code for one in (await queue.publish(["x"])).failed] == ["service-unavailable"]


@pytest.mark.parametrize(
    ("queue", "token", "code"), [("orders", "pstk_wrong", 401), ("absent", "", 4404), ("secret", "", 4404)]
)
async def test_what_is_refused_for_good_is_raised(link: Connect, queue: str, token: str, code: int) -> None:
    with pytest.raises(ConnectionRefused) as caught:
        async with link(queue, token):
            pass
    assert caught.value.code == code and caught.value.reason


async def test_deduplication_is_refused_where_the_queue_has_no_window(link: Connect) -> None:
    async with link(deduplicate=True) as queue:
        (failure,) = (await queue.publish(["x"])).failed
        assert failure.code == "invalid-parameter-value" and "deduplication_id" in failure.detail


async def test_end_of_the_link_ends_all_that_waits(front: Installation, link: Connect) -> None:
    gate = asyncio.Event()
    send = front.storage.send

    async def slow(*arguments: Any) -> Any:
        await gate.wait()
        return await send(*arguments)

    front.storage.send = slow  # type: ignore[method-assign]
    async with link() as queue:
        publish = asyncio.create_task(queue.publish(["x"]))
        receive = asyncio.create_task(received(queue, 1))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(queue.close())
        for task in (publish, receive):
            with pytest.raises(ClientError):
                await asyncio.wait_for(task, 5)
        gate.set()
        await closing


async def test_absent_service_is_told_in_time(unused_port: int) -> None:
    with pytest.raises(NotConnected):
        async with connect(f"http://127.0.0.1:{unused_port}", "t", "q", open_timeout_s=0.1, proxy=None):
            pass


async def test_endpoint_that_is_none_is_told_at_once() -> None:
    with pytest.raises(ClientError, match="InvalidURI") as caught:
        async with asyncio.timeout(5), connect("ftp://127.0.0.1", "t", "q", proxy=None):
            pass
    assert not isinstance(caught.value, NotConnected)


async def test_open_that_is_cancelled_leaves_no_task(unused_port: int) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), connect(f"http://127.0.0.1:{unused_port}", "t", "q", proxy=None):
            pass
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def cut(queue: Queue) -> None:
    socket = queue._link._socket
    assert socket is not None
    socket.transport.abort()
