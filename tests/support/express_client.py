"""A client of the express lane over a real socket, and what its tests share."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from uvicorn.protocols.http import httptools_impl

from frontend.express.call import ExpressCall
from frontend.express.protocol import ExpressProtocol
from tests.support.frontend_plane import HOST, QUEUE_URL, Installation, sign

TARGET = "AmazonSQS."


class Ways:
    """How many requests each way has served."""

    def __init__(self) -> None:
        self.express = 0
        self.unmodified = 0


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ways]:
    counted = Ways()
    begin, run_asgi = ExpressCall.begin, httptools_impl.RequestResponseCycle.run_asgi

    def begun(call: ExpressCall, answering: Any) -> None:
        counted.express += 1
        begin(call, answering)

    async def run(cycle: Any, app: Any) -> None:
        counted.unmodified += 1
        await run_asgi(cycle, app)

    monkeypatch.setattr(ExpressCall, "begin", begun)
    monkeypatch.setattr(httptools_impl.RequestResponseCycle, "run_asgi", run)
    yield counted


def request(front: Installation, action: str, params: dict[str, Any], *more: str, head_only: bool = False) -> bytes:
    """The bytes of a signed request; `more` are lines of its head."""
    body = json.dumps(params).encode()
    headers = sign(front.key, "POST", "/", body, f"{TARGET}{action}", front.clock.now_s)
    lines = ["POST / HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), *more]
    if not any(line.lower().startswith("transfer-encoding") for line in more):
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return head if head_only else head + body


def send_request(front: Installation, text: str = "x", *more: str) -> bytes:
    return request(front, "SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": text}, *more)


def rest_request(front: Installation, path: str, params: dict[str, Any], method: str = "POST") -> bytes:
    body = json.dumps(params).encode()
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {front.key.bearer_token}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


class Client:
    """A connection that reads one answer at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(10):
            head = "HTTP/1.1 100 "
            while head.startswith("HTTP/1.1 100 "):
                head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])}
            return int(lines[0].split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def json(self) -> Any:
        status, _, body = await self.answer()
        assert status == 200, body
        return json.loads(body)

    async def ended(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.read()


@pytest.fixture
async def client(port: int) -> AsyncIterator[Client]:
    connected = Client(*await asyncio.open_connection("127.0.0.1", port))
    yield connected
    connected.writer.close()


def protocol_of(client: Client) -> ExpressProtocol:
    # By `type`: `isinstance` would ask lazy objects of other tests for their class, and so make them.
    protocols = [one for one in gc.get_objects() if issubclass(type(one), ExpressProtocol)]
    (protocol,) = [one for one in protocols if one.client == client.writer.get_extra_info("sockname")]
    return protocol


def hold_sends(front: Installation) -> asyncio.Event:
    """Sends are stored when the event is set."""
    release = asyncio.Event()
    store = front.storage.send

    async def held(*arguments: Any, **options: Any) -> Any:
        await release.wait()
        return await store(*arguments, **options)

    front.storage.send = held  # type: ignore[method-assign]
    return release


async def received_bodies(front: Installation) -> list[str]:
    reply = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10})
    return [message["Body"] for message in reply.json.get("Messages", [])]


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)
