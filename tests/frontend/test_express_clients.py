"""Clients of the express lane: those that leave, that do not read, that are idle, and one that a stop waits for."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from frontend import server as server_module
from frontend.express.protocol import express_config
from frontend.server import Server
from frontend.writing import paused_clients
from tests.support.express_client import Client, Ways, hold_sends, protocol_of, request, send_request, until
from tests.support.express_client import client as client
from tests.support.express_client import ways as ways
from tests.support.frontend_plane import QUEUE_URL, Installation


async def test_long_poll_of_a_client_that_left_is_given_up(front: Installation, port: int, ways: Ways) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    client.write(request(front, "ReceiveMessage", {"QueueUrl": QUEUE_URL, "WaitTimeSeconds": 20}))
    await until(lambda: front.plane.polls.calls == 1)
    client.writer.close()
    await until(lambda: front.plane.polls.calls == 0)
    front.plane.drain()
    assert ways.express == 1
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "kept"})
    reply = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "AttributeNames": ["All"]})
    (message,) = reply.json["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def _chunked(front: Installation, action: str, params: dict[str, Any]) -> bytes:
    """A request that the lane does not take."""
    body = json.dumps(params).encode()
    head = request(front, action, params, "Transfer-Encoding: chunked", head_only=True)
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize("make", [request, _chunked], ids=["express", "asgi"])
@pytest.mark.parametrize("behind", [0, 2])
async def test_long_poll_of_a_client_that_left_is_given_up_with_requests_behind_it(
    front: Installation, port: int, make: Any, behind: int
) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    poll = make(front, "ReceiveMessage", {"QueueUrl": QUEUE_URL, "WaitTimeSeconds": 20})
    client.write(poll + behind * send_request(front))
    await until(lambda: front.plane.polls.calls == 1)
    client.writer.transport.abort()
    await until(lambda: front.plane.polls.calls == 0)


@pytest.mark.parametrize("make", [request, _chunked], ids=["express", "asgi"])
@pytest.mark.parametrize("behind", [0, 1])
async def test_short_poll_of_a_client_that_left_gives_back_what_it_got(
    front: Installation, port: int, make: Any, behind: int
) -> None:
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "kept"})
    acquire, gate, given_back = front.storage.acquire, asyncio.Event(), asyncio.Event()
    leased = asyncio.Event()
    change = front.storage.change_visibility

    async def held(*arguments: Any, **options: Any) -> Any:
        reply = await acquire(*arguments, **options)
        leased.set()
        await gate.wait()
        return reply

    async def changed(*arguments: Any, **options: Any) -> Any:
        given_back.set()
        return await change(*arguments, **options)

    front.storage.acquire = held  # type: ignore[method-assign]
    front.storage.change_visibility = changed  # type: ignore[method-assign]
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    poll = make(front, "ReceiveMessage", {"QueueUrl": QUEUE_URL})
    client.write(poll + behind * request(front, "GetQueueUrl", {"QueueName": "orders"}))
    await leased.wait()
    client.writer.transport.abort()
    await asyncio.sleep(0.05)
    gate.set()
    async with asyncio.timeout(5):
        await given_back.wait()
    front.storage.acquire = acquire  # type: ignore[method-assign]
    reply = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "AttributeNames": ["All"]})
    (message,) = reply.json["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


async def test_send_of_a_client_that_left_is_stored(front: Installation, port: int, ways: Ways) -> None:
    release = hold_sends(front)
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    client.write(send_request(front, "stored"))
    await until(lambda: ways.express == 1)
    client.writer.close()
    await asyncio.sleep(0.02)
    release.set()
    await until(lambda: front.storage.count() == 1)


async def test_stop_waits_for_a_call_under_way(front: Installation, ways: Ways) -> None:
    front.clock.now_s = time.time()
    server = Server(express_config(front.plane, "127.0.0.1", 0), front.plane.drain)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    release = hold_sends(front)
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    client.write(send_request(front))
    await until(lambda: ways.express == 1)
    server.should_exit = True
    await asyncio.sleep(0.3)
    assert not task.done()
    release.set()
    status, headers, _ = await client.answer()
    assert status == 200 and headers["connection"] == "close"
    await asyncio.wait_for(task, 10)


async def test_answer_waits_for_a_client_that_does_not_read(front: Installation, port: int, ways: Ways) -> None:
    for _ in range(2):
        await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "z" * 900_000})
    receive = request(
        front, "ReceiveMessage", {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
    )
    client = Client(*await asyncio.open_connection("127.0.0.1", port, limit=2**16))

    async def ask() -> None:
        asked = front.storage.calls.count(("acquire", 1))
        client.write(receive)
        await until(lambda: front.storage.calls.count(("acquire", 1)) > asked)
        await asyncio.sleep(0.02)

    answers = 0
    while not paused_clients.held_bytes:  # the system takes some answers
        await ask()
        answers += 1
        assert answers < 100
    held_bytes = protocol_of(client).transport._transport.get_write_buffer_size()
    await ask()
    assert protocol_of(client).transport._transport.get_write_buffer_size() <= held_bytes, (
        "the next answer is not held on top of the one that waits"
    )
    for _ in range(answers + 1):
        assert len((await client.json())["Messages"]) == 2
    client.writer.close()


async def test_idle_connection_is_closed(front: Installation, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.2)  # how often it is looked at
    idle = Client(*await asyncio.open_connection("127.0.0.1", port))
    idle.write(send_request(front))
    await idle.json()
    protocol_of(idle).timeout_keep_alive = 0.1
    assert await idle.ended() == b""
