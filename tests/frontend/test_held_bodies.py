"""Request bodies that are not whole yet: what they may hold, who waits or is refused, and that all is given back."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from frontend import client_bytes as arriving_module
from frontend import server as server_module
from frontend.body_room import body_room, make_body_room
from frontend.express.protocol import express_config
from frontend.limits import BODY_WAITING_BYTES, REQUEST_BODY_BYTES_MAX
from frontend.server import Server
from frontend.shared_room import NoRoom
from tests.support.express_client import Client, send_request
from tests.support.frontend_plane import Installation

BYTES_MAX = 300_000
SQS_HEAD = (
    b"POST / HTTP/1.1\r\nhost: x\r\nx-amz-target: AmazonSQS.SendMessage\r\ncontent-type: application/x-amz-json-1.0\r\n"
)
QUERY_HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n"
REST_HEAD = b"POST /v1/queues/orders/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
SESSION_HEAD = b"POST /v1/session HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
HEADS = (SQS_HEAD, QUERY_HEAD, REST_HEAD, SESSION_HEAD)


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is held before a test, and nothing may be left after it."""
    held, waiting = body_room.held, body_room.waiting
    assert held.held_bytes == waiting.held_bytes == 0
    monkeypatch.setattr(held, "_bytes_max", BYTES_MAX)
    monkeypatch.setattr(body_room, "wait_s_max", 0.3)
    yield
    assert held.held_bytes == waiting.held_bytes == 0 and not held._by_holder and not body_room._waiters


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def connect(port: int, address: str = "127.0.0.1") -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))


async def begin(port: int, head: bytes, length: int, address: str = "127.0.0.1") -> Client:
    """A request without credentials, of whose body the last byte is missing; it has its place."""
    client = await connect(port, address)
    before = body_room.held.held_bytes
    client.write(head + b"content-length: %d\r\n\r\n" % length + b" " * (length - 1))
    await until(lambda: body_room.held.held_bytes == before + length)
    return client


def reset(client: Client) -> None:
    """The client leaves, and its connection is reset."""
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


@pytest.mark.parametrize("head", HEADS)
async def test_address_with_its_share_waits_is_refused_after_a_while_and_others_are_not(
    front: Installation, port: int, head: bytes
) -> None:
    holding = await begin(port, head, 140_000)
    refused = await connect(port)
    refused.write(head + b"content-length: 200000\r\n\r\n" + b" " * 20_000)
    status, headers, body = await refused.answer()
    assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
    name = "service-unavailable" if head in (REST_HEAD, SESSION_HEAD) else "ServiceUnavailable"
    assert name in body.decode() and await refused.ended() == b""
    other = await begin(port, head, 70_000, "127.0.0.2")
    for client in (other, holding):
        client.write(b" ")
        assert (await client.answer())[0] != 503
    await until(lambda: body_room.held.held_bytes == 0)
    for client in (holding, refused, other):
        client.writer.close()


async def test_refused_client_that_sends_on_reads_the_refusal(front: Installation, port: int) -> None:
    client = await connect(port)
    client.write(SQS_HEAD + b"content-length: 4000000\r\n\r\n")
    for _ in range(40):
        client.write(b" " * 100_000)
        await client.writer.drain()
    status, headers, body = await client.answer()
    assert status == 503 and headers["x-amzn-query-error"] == "ServiceUnavailable;Receiver"
    assert json.loads(body)["__type"] == "com.amazonaws.sqs#ServiceUnavailable"
    client.writer.close()


async def test_more_bodies_at_once_than_have_room_wait_and_all_are_stored(front: Installation, port: int) -> None:
    """A place is given back with an answer: twelve bodies of an address that has room for three need four rounds."""
    most = 0
    store = front.storage.send

    async def slow(*arguments: Any, **options: Any) -> Any:
        nonlocal most
        most = max(most, body_room.held.held_bytes)
        await asyncio.sleep(0.02)
        return await store(*arguments, **options)

    front.storage.send = slow  # type: ignore[method-assign]
    clients = [await connect(port) for _ in range(12)]
    data = send_request(front, "x" * 40_000)
    for client in clients:
        client.write(data[:-1])
    await until(lambda: len(body_room._waiters.get("127.0.0.1", ())) == 9)
    for client in clients:
        client.write(data[-1:])
    assert all([(await client.json())["MessageId"] for client in clients])
    assert 100_000 < most <= BYTES_MAX / 2
    await until(lambda: body_room.held.held_bytes == 0)
    for client in clients:
        client.writer.close()


async def test_bodies_that_wait_are_bounded_too_and_the_next_is_refused_at_once(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_room, "wait_s_max", 5.0)
    monkeypatch.setattr(body_room.waiting, "_bytes_max", 4 * BODY_WAITING_BYTES)  # two of one address
    holding = await begin(port, SQS_HEAD, 140_000)
    waiting = [await connect(port) for _ in range(2)]
    for client in waiting:
        client.write(SQS_HEAD + b"content-length: 90000\r\n\r\n" + b" " * 80_000)
    await until(lambda: body_room.waiting.held_bytes == 2 * BODY_WAITING_BYTES)
    refused = await connect(port)
    refused.write(SQS_HEAD + b"content-length: 90000\r\n\r\n" + b" " * 80_000)
    async with asyncio.timeout(2):
        assert (await refused.answer())[0] == 503
    holding.write(b" ")
    assert (await holding.answer())[0] != 503
    for client in waiting:
        client.write(b" " * 10_000)
        assert (await client.answer())[0] != 503
    for client in (*waiting, holding, refused):
        client.writer.close()


async def test_places_go_to_the_waiters_of_a_holder_in_their_order_and_pass_no_other_holder_by() -> None:
    room = make_body_room(100, 100 * BODY_WAITING_BYTES)
    order: list[str] = []

    async def take(holder: str, count_bytes: int) -> None:
        await room.take(holder, count_bytes)
        order.append(f"{holder}{count_bytes}")

    await take("a", 50)
    tasks = [asyncio.create_task(take(*one)) for one in (("a", 40), ("a", 1), ("b", 25), ("b", 2))]
    await asyncio.sleep(0)
    assert order == ["a50", "b25"], "a1 stands behind a40, and b is not held up by a"
    room.give_back("a", 50)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == ["a50", "b25", "b2"], "40 are more than half of what is left"
    room.give_back("b", 25)
    await asyncio.gather(*tasks)
    assert order[3:] == ["a40", "a1"]
    for holder, count_bytes in (("a", 40), ("a", 1), ("b", 2)):
        room.give_back(holder, count_bytes)
    assert room.held.held_bytes == room.waiting.held_bytes == 0 and not room._waiters


async def test_waiter_that_leaves_in_the_moment_of_its_admission_gives_its_place_to_the_next() -> None:
    room = make_body_room(100, 100 * BODY_WAITING_BYTES)
    await room.take("a", 50)
    first, second, third = [asyncio.create_task(room.take("a", count_bytes)) for count_bytes in (50, 50, 10)]
    await asyncio.sleep(0)
    room.give_back("a", 50)  # the first has its place now, and is cancelled before it hears of it
    first.cancel()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    await asyncio.wait_for(third, 1)
    assert first.cancelled() and second.cancelled() and room.held.held_bytes == 10
    room.give_back("a", 10)
    assert room.held.held_bytes == room.waiting.held_bytes == 0 and not room._waiters


async def test_waiter_that_waited_too_long_is_refused_and_the_smaller_one_behind_it_is_not() -> None:
    room = make_body_room(100, 100 * BODY_WAITING_BYTES)
    room.wait_s_max = 0.3
    await room.take("a", 30)
    large = asyncio.create_task(room.take("a", 50))
    await asyncio.sleep(0.1)
    small = asyncio.create_task(room.take("a", 20))
    with pytest.raises(NoRoom):
        await large
    await asyncio.wait_for(small, 1)
    assert room.held.held_bytes == 50 and room.waiting.held_bytes == 0 and not room._waiters


async def test_many_connections_of_one_address_hold_half_of_the_budget(front: Installation, port: int) -> None:
    most = 0
    clients = [await connect(port) for _ in range(20)]
    for client in clients:
        client.write(SQS_HEAD + b"content-length: 40000\r\n\r\n" + b" " * 39_999)
    answers = [asyncio.create_task(client.answer()) for client in clients]
    async with asyncio.timeout(5):
        while sum(answer.done() for answer in answers) < 17:
            most = max(most, body_room.held.held_bytes)
            await asyncio.sleep(0.001)
    assert 100_000 < most <= BYTES_MAX / 2
    assert {answer.result()[0] for answer in answers if answer.done()} == {503}
    for answer, client in zip(answers, clients, strict=True):
        answer.cancel()
        client.writer.close()
    await until(lambda: body_room.held.held_bytes == 0)


async def test_body_is_held_until_the_answer(front: Installation, port: int) -> None:
    """A request that waits for storage has its body still."""
    release = asyncio.Event()
    store = front.storage.send

    async def held(*arguments: Any, **options: Any) -> Any:
        await release.wait()
        return await store(*arguments, **options)

    front.storage.send = held  # type: ignore[method-assign]
    client = await connect(port)
    data = send_request(front, "x" * 100_000)
    client.write(data[:-1])
    await until(lambda: body_room.held.held_bytes > 100_000)
    client.write(data[-1:])
    await asyncio.sleep(0.05)
    assert body_room.held.held_bytes > 100_000
    release.set()
    assert (await client.json())["MessageId"]
    await until(lambda: body_room.held.held_bytes == 0)
    client.writer.close()


async def test_client_that_leaves_in_the_middle_holds_nothing(front: Installation, port: int) -> None:
    for head in HEADS:
        closed, cut = await begin(port, head, 50_000), await begin(port, head, 50_000)
        closed.writer.close()
        reset(cut)
        await until(lambda: body_room.held.held_bytes == 0)


async def test_body_that_is_late_is_given_back(front: Installation, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.2)  # how often it is looked at
    monkeypatch.setattr(arriving_module, "REQUEST_READ_S_MAX", 0.3)
    monkeypatch.setattr(server_module, "LINGER_S_MAX", 0.1)
    client = await begin(port, SQS_HEAD, 50_000)
    assert (await client.answer())[0] == 408
    await until(lambda: body_room.held.held_bytes == 0)
    client.writer.close()


async def test_body_beyond_the_limit_holds_nothing_from_there_on(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_room.held, "_bytes_max", 3 * REQUEST_BODY_BYTES_MAX)
    client = await connect(port)
    client.write(REST_HEAD + b"transfer-encoding: chunked\r\n\r\n")
    for sent in range(45):
        client.write(b"%x\r\n%b\r\n" % (100_000, b" " * 100_000))
        await client.writer.drain()
        if sent == 30:
            await until(lambda: body_room.held.held_bytes > 0)
    await until(lambda: body_room.held.held_bytes == 0)
    client.write(b"0\r\n\r\n")
    assert (await client.answer())[0] == 413
    client.writer.close()


async def test_stop_that_waits_no_longer_gives_back_what_is_held(front: Installation) -> None:
    config = express_config(front.plane, "127.0.0.1", 0)
    config.timeout_graceful_shutdown = 0
    server = Server(config, front.plane.drain)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    client = await begin(server.servers[0].sockets[0].getsockname()[1], SQS_HEAD, 50_000)
    server.should_exit = True
    await asyncio.wait_for(serving, 10)
    await until(lambda: body_room.held.held_bytes == 0)
    client.writer.close()


@pytest.mark.parametrize("head_first", [False, True], ids=["express", "head-first"])
async def test_large_body_that_comes_in_one_read_has_room_until_it_is_answered_or_waits_for_it(
    front: Installation, port: int, head_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_room.waiting, "_bytes_max", 4 * BODY_WAITING_BYTES)
    release, store = asyncio.Event(), front.storage.send

    async def held(*arguments: Any, **options: Any) -> Any:
        await release.wait()
        return await store(*arguments, **options)

    front.storage.send = held  # type: ignore[method-assign]
    data = send_request(front, "x" * 60_000)
    clients = [await connect(port) for _ in range(4)]
    for client in clients[:2]:
        at = data.index(b"\r\n\r\n") + 4 if head_first else 0
        client.write(data[:at])
        await asyncio.sleep(0.02)
        client.write(data[at:])
    await until(lambda: body_room.held.held_bytes > 120_000)
    clients[2].write(data)
    await until(lambda: body_room.waiting.held_bytes)
    status, _, body = await clients[2].answer()
    assert status == 503 and b"being read" in body, "after BODY_WAIT_S_MAX"
    clients[3].write(data)
    await until(lambda: body_room.waiting.held_bytes)
    clients[1].writer.close()  # its call goes on
    await asyncio.sleep(0.02)
    assert body_room.held.held_bytes > 120_000
    release.set()
    assert (await clients[0].json())["MessageId"] and (await clients[3].json())["MessageId"]
    await until(lambda: body_room.held.held_bytes == 0)
    for client in clients:
        client.writer.close()


async def test_small_body_that_comes_in_one_read_is_not_counted(front: Installation, port: int) -> None:
    """On neither way: the head alone first, and all of it at once."""
    client = await connect(port)
    data = send_request(front, "x" * 10_000)
    with mock.patch.object(body_room, "take", side_effect=AssertionError):
        for at in (0, data.index(b"\r\n\r\n") + 4):
            client.write(data[:at])
            await asyncio.sleep(0.02)
            client.write(data[at:])
            assert (await client.json())["MessageId"]
    client.writer.close()
