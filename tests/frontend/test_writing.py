"""Clients that do not read what they asked for: cut by time and by size, with a reason, and nobody else is affected."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest
import structlog
import uvicorn
import uvloop

from frontend import writing
from frontend.http import Receive, Scope, Send, answer
from frontend.ports import public_config
from frontend.routing.bulkhead import Bulkhead
from frontend.server import Server
from frontend.writing import ClientTransport, paused_clients
from tests.support.frontend_plane import Installation

ANSWER = b"x" * (24 * 1024 * 1024)
ASK = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, 200, (), ANSWER)


@pytest.fixture
async def large_port() -> AsyncIterator[int]:
    """A server whose every answer is larger than what the kernel holds."""
    server = Server(public_config(uvicorn.Config, large, "127.0.0.1", 0))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await asyncio.wait_for(task, 15)


def connect(port: int) -> socket.socket:
    """A client with small buffers that reads only when it is told to."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.setblocking(False)
    return client


async def until(condition: Callable[[], Any], timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


async def read(client: socket.socket, size: int) -> int:
    """Bytes read: `size`, or less where the connection ended."""
    count = 0
    while count < size:
        try:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 256 * 1024), 5)
        except ConnectionError:
            break
        if not data:
            break
        count += len(data)
    return count


@pytest.mark.parametrize("ask", [ASK, ASK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")])
async def test_client_that_does_not_read_is_cut_with_a_reason(
    large_port: int, monkeypatch: pytest.MonkeyPatch, ask: bytes
) -> None:
    """Also one whose connection is to be closed after the answer."""
    monkeypatch.setattr(writing, "WRITE_WINDOW_S", 0.1)
    client = connect(large_port)
    with structlog.testing.capture_logs() as logs:
        await asyncio.get_running_loop().sock_sendall(client, ask)
        await until(lambda: paused_clients.held_bytes > 10_000_000)
        await until(lambda: not paused_clients.held_bytes)
    (line,) = [line for line in logs if line["event"] == "slow_reader_cut"]
    assert "the client took 0 bytes in 0.1 s" in line["reason"] and line["held_bytes"] > 10_000_000
    assert await read(client, len(ANSWER)) < len(ANSWER)
    client.close()


def test_watch_ends_with_the_connection_on_the_loop_that_front_ends_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop says of a connection that was cut that it holds bytes still."""
    monkeypatch.setattr(writing, "WRITE_WINDOW_S", 0.1)
    before = paused_clients.cut

    async def run() -> None:
        server = Server(public_config(uvicorn.Config, large, "127.0.0.1", 0))
        task = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        client = connect(server.servers[0].sockets[0].getsockname()[1])
        await asyncio.get_running_loop().sock_sendall(client, ASK)
        await until(lambda: paused_clients.cut == before + 1)
        await until(lambda: not server.server_state.connections)
        assert not paused_clients.held_bytes
        client.close()
        server.should_exit = True
        await asyncio.wait_for(task, 15)

    uvloop.run(run())


def test_answer_to_a_pipelining_client_that_is_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """On the loop that front ends run on: it takes a write to a lost connection for an error of the caller. The request
    under way is told that its client left, and not only the one behind it."""
    told: list[str] = []

    async def run() -> None:
        begun, ended, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            assert (await receive())["type"] == "http.request"
            begun.set()
            told.append((await receive())["type"])
            await go_on.wait()
            await answer(send, 200, (), b"too late")
            ended.set()

        server = Server(public_config(uvicorn.Config, slow, "127.0.0.1", 0))
        task = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        client = connect(server.servers[0].sockets[0].getsockname()[1])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await asyncio.get_running_loop().sock_sendall(client, ASK + ASK)
        await asyncio.wait_for(begun.wait(), 5)
        client.close()
        await until(lambda: not server.server_state.connections)
        go_on.set()
        await asyncio.wait_for(ended.wait(), 5)
        server.should_exit = True
        await asyncio.wait_for(task, 15)

    uvloop.run(run())
    assert told == ["http.disconnect"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_write_to_a_lost_connection_is_thrown_away() -> None:
    written: list[bytes] = []
    later: list[Callable[[], None]] = []

    class Transport:
        def write(self, data: bytes) -> None:
            written.append(data)

        def is_closing(self) -> bool:
            return False

    class Loop:
        def call_soon(self, call: Callable[[], None]) -> None:
            later.append(call)

        call_later = call_soon

    client = ClientTransport(Transport(), Loop(), lambda: False)  # type: ignore[arg-type]
    client.write(b"first")
    client.write(b"HTTP/1.1 200 OK\r\n\r\n")
    client.ended()
    for flush in later:
        flush()
    client.write(b"HTTP/1.1 200 OK\r\n\r\n")
    client.write(b"body")
    client.flush()
    assert later and written == [b"first"]


async def test_client_that_reads_slowly_but_reads_gets_everything(
    large_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far less in each window than the kernel lets go of at once."""
    monkeypatch.setattr(writing, "WRITE_WINDOW_S", 0.25)
    client = connect(large_port)
    await asyncio.get_running_loop().sock_sendall(client, ASK)
    got = 0
    for _ in range(50):
        got += await read(client, 20_000)
        await asyncio.sleep(0.02)
    assert got >= 50 * 20_000 and paused_clients.held_bytes
    while got < len(ANSWER) and (rest := await read(client, len(ANSWER) - got)):
        got += rest
    assert got >= len(ANSWER)
    await until(lambda: not paused_clients.held_bytes)
    client.close()


async def test_client_that_takes_less_than_the_least_rate_is_cut(
    large_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "WRITE_WINDOW_S", 0.1)
    monkeypatch.setattr(writing, "WRITE_BYTES_PER_S_MIN", 1024**4)
    client = connect(large_port)
    await asyncio.get_running_loop().sock_sendall(client, ASK)
    assert await read(client, 10_000) > 0
    await until(lambda: paused_clients.held_bytes == 0)
    assert await read(client, len(ANSWER)) < len(ANSWER)
    client.close()


async def test_beyond_the_memory_for_all_the_longest_paused_is_cut(
    large_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ANSWERS_HELD_BYTES_MAX", 2 * len(ANSWER) + 1000)
    loop = asyncio.get_running_loop()
    clients = []
    cut = paused_clients.cut
    for _ in range(3):
        clients.append(connect(large_port))
        paused = len(paused_clients._held)
        await loop.sock_sendall(clients[-1], ASK)
        await until(lambda paused=paused: len(paused_clients._held) != paused or paused_clients.cut > cut)
    if paused_clients.cut == cut:  # the kernel took so much that a third one fitted
        monkeypatch.setattr(writing, "ANSWERS_HELD_BYTES_MAX", paused_clients.held_bytes)
        clients.append(connect(large_port))
        await loop.sock_sendall(clients[-1], ASK)
        await until(lambda: paused_clients.cut > cut)
    assert await read(clients[0], len(ANSWER)) < len(ANSWER)
    assert await read(clients[-1], len(ANSWER)) >= len(ANSWER)
    for client in clients:
        client.close()
    await until(lambda: not paused_clients.held_bytes)


def test_one_connection_holds_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "CONNECTION_HELD_BYTES_MAX", 1000)
    calls: list[str] = []

    class Transport:
        held_bytes = 1000

        def get_write_buffer_size(self) -> int:
            return self.held_bytes

        def get_extra_info(self, name: str) -> None:
            return None

        def abort(self) -> None:
            calls.append("abort")

        def is_closing(self) -> bool:
            return False

    class Loop:
        def call_later(self, delay_s: float, call: Callable[[], None]) -> Any:
            return type("Handle", (), {"cancel": lambda self: calls.append("cancel")})()

        call_soon = call_later

    for held_bytes, expected in ((1000, []), (1001, ["cancel", "abort"])):
        client = ClientTransport(Transport(), Loop(), lambda: False)  # type: ignore[arg-type]
        Transport.held_bytes = held_bytes
        client.paused()
        assert calls == expected
        client.ended()
        calls.clear()
    assert paused_clients.held_bytes == 0


async def test_subscriber_that_does_not_read_is_cut_and_its_leases_are_given_back(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "WRITE_WINDOW_S", 0.1)
    for _ in range(40):
        assert (await front.rest("/v1/queues/orders/messages", {"body": "x" * 900_000})).status == 200
    client = connect(port)
    loop = asyncio.get_running_loop()
    head = "GET /v1/queues/orders/subscribe HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    keys = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
    await loop.sock_sendall(client, f"{head}{keys}authorization: Bearer {front.key.bearer_token}\r\n\r\n".encode())
    assert await read(client, 100)
    credit = json.dumps({"type": "credit", "n": 40}).encode()
    await loop.sock_sendall(client, bytes((0x81, 0x80 | len(credit), 0, 0, 0, 0)) + credit)  # masked by zeros
    with structlog.testing.capture_logs() as logs:
        await until(lambda: paused_clients.held_bytes)
        await until(lambda: not paused_clients.held_bytes)
        await until(lambda: front.plane.sockets.calls == 0)
    assert [line["event"] for line in logs].count("slow_reader_cut") == 1
    assert (await front.storage.stats(1)).waiting == 40, "visible at once"
    client.close()


async def test_reader_of_a_page_of_the_control_plane_holds_no_place_of_it(front: Installation) -> None:
    """It does not read; the bulkhead has one place, and the next one gets it."""
    front.plane.control._calls = Bulkhead("control plane", 1)
    front.control_answer = lambda request: httpx2.Response(200, content=b"page" * 1000)
    stuck, go = asyncio.Event(), asyncio.Event()

    async def never_read(message: dict[str, Any]) -> None:
        stuck.set()
        await go.wait()

    reading = asyncio.create_task(ask_page(front, never_read))
    await asyncio.wait_for(stuck.wait(), 5)
    assert front.plane.control._calls.calls == 0
    assert (await front.rest("/v1/account", method="GET")).status == 200
    go.set()
    await reading


@pytest.mark.parametrize("size", [1, 100, 5_000])
async def test_answer_larger_than_what_is_held_is_passed_on_whole(
    front: Installation, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("frontend.control.CONTROL_ANSWER_BYTES_MAX", 100)
    body = bytes(range(256)) * 20
    front.control_answer = lambda request: httpx2.Response(200, content=body[:size])
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await ask_page(front, send)
    assert b"".join(one.get("body", b"") for one in sent) == body[:size]
    assert (b"content-length", str(size).encode()) in sent[0]["headers"]
    assert [one.get("more_body", False) for one in sent][-1] is False


async def ask_page(front: Installation, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    scope = {
        "type": "http", "method": "GET", "path": "/static/x.css", "raw_path": b"/static/x.css", "query_string": b"",
        "headers": [(b"host", b"x")], "scheme": "http",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    await front.application(scope, receive, send)
