"""Request bodies that are not whole yet: what they may hold of memory, who is refused, and that all is given back."""

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
from frontend.client_bytes import held_bodies
from frontend.express.protocol import express_config
from frontend.limits import REQUEST_BODY_BYTES_MAX
from frontend.server import Server
from tests.frontend.test_express import Client, send_request
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
    assert held_bodies.held_bytes == 0
    monkeypatch.setattr(held_bodies, "_bytes_max", BYTES_MAX)
    yield
    assert held_bodies.held_bytes == 0 and not held_bodies._by_holder


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def connect(port: int, address: str = "127.0.0.1") -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))


async def begin(port: int, head: bytes, length: int, address: str = "127.0.0.1") -> Client:
    """A request without credentials, of whose body the last byte is missing; it is held whole."""
    client = await connect(port, address)
    before = held_bodies.held_bytes
    client.write(head + b"content-length: %d\r\n\r\n" % length + b" " * (length - 1))
    await until(lambda: held_bodies.held_bytes == before + length - 1)
    return client


def reset(client: Client) -> None:
    """The client leaves, and its connection is reset."""
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


@pytest.mark.parametrize("head", HEADS)
async def test_address_with_its_share_is_refused_before_its_body_is_whole_and_others_are_not(
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
    await until(lambda: held_bodies.held_bytes == 0)
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


async def test_many_connections_of_one_address_hold_half_of_the_budget(front: Installation, port: int) -> None:
    most = 0
    clients = [await connect(port) for _ in range(20)]
    for client in clients:
        client.write(SQS_HEAD + b"content-length: 40000\r\n\r\n" + b" " * 39_999)
    answers = [asyncio.create_task(client.answer()) for client in clients]
    async with asyncio.timeout(5):
        while sum(answer.done() for answer in answers) < 17:
            most = max(most, held_bodies.held_bytes)
            await asyncio.sleep(0.001)
    assert 100_000 < most <= BYTES_MAX / 2
    assert {answer.result()[0] for answer in answers if answer.done()} == {503}
    for answer, client in zip(answers, clients, strict=True):
        answer.cancel()
        client.writer.close()
    await until(lambda: held_bodies.held_bytes == 0)


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
    await until(lambda: held_bodies.held_bytes > 100_000)
    client.write(data[-1:])
    await asyncio.sleep(0.05)
    assert held_bodies.held_bytes > 100_000
    release.set()
    assert (await client.json())["MessageId"]
    await until(lambda: held_bodies.held_bytes == 0)
    client.writer.close()


async def test_client_that_leaves_in_the_middle_holds_nothing(front: Installation, port: int) -> None:
    for head in HEADS:
        closed, cut = await begin(port, head, 50_000), await begin(port, head, 50_000)
        closed.writer.close()
        reset(cut)
        await until(lambda: held_bodies.held_bytes == 0)


async def test_body_that_is_late_is_given_back(front: Installation, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.2)  # how often it is looked at
    monkeypatch.setattr(arriving_module, "REQUEST_READ_S_MAX", 0.3)
    monkeypatch.setattr(server_module, "LINGER_S_MAX", 0.1)
    client = await begin(port, SQS_HEAD, 50_000)
    assert (await client.answer())[0] == 408
    await until(lambda: held_bodies.held_bytes == 0)
    client.writer.close()


async def test_body_beyond_the_limit_holds_nothing_from_there_on(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_bodies, "_bytes_max", 3 * REQUEST_BODY_BYTES_MAX)
    client = await connect(port)
    client.write(REST_HEAD + b"transfer-encoding: chunked\r\n\r\n")
    for sent in range(45):
        client.write(b"%x\r\n%b\r\n" % (100_000, b" " * 100_000))
        await client.writer.drain()
        if sent == 30:
            await until(lambda: held_bodies.held_bytes > 0)
    await until(lambda: held_bodies.held_bytes == 0)
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
    await until(lambda: held_bodies.held_bytes == 0)
    client.writer.close()


async def test_body_that_comes_in_one_read_is_not_counted(front: Installation, port: int) -> None:
    """On neither way: the head alone first, and all of it at once."""
    client = await connect(port)
    data = send_request(front, "x" * 10_000)
    with mock.patch.object(held_bodies, "change", side_effect=AssertionError):
        for at in (0, data.index(b"\r\n\r\n") + 4):
            client.write(data[:at])
            await asyncio.sleep(0.02)
            client.write(data[at:])
            assert (await client.json())["MessageId"]
    client.writer.close()
