"""Requests to upgrade over real connections: those that are none, and those that come behind other requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import websockets
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from frontend import server as server_module
from frontend.client_bytes import held_headers
from frontend.express.protocol import express_config
from frontend.push.closing import CLOSE_RESTART
from frontend.push.connection import BoundedSocketProtocol
from frontend.server import BoundedHttpProtocol, Server
from tests.support.bulk_socket import gate_storage
from tests.support.express_client import Client, protocol_of, until
from tests.support.frontend_plane import Installation

UPGRADE = (
    b"host: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def upgrade(path: bytes = b"/v1/queues/orders/subscribe", more: bytes = b"", method: bytes = b"GET") -> bytes:
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, path, UPGRADE, more)


async def connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


# --- what is no handshake ---


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (upgrade(more=b"cookie: a=%b\r\n" % (b"c" * 8_200)), 431),
        (upgrade(more=b"x: 1\r\n" * 130), 431),
        (upgrade(path=b"/" + b"q" * 9_000), 414),
        (upgrade(more=b"content-length: 1\r\n"), 400),
        (upgrade(more=b"content-length: 2\r\n") + b"{}", 400),
        (upgrade(more=b"content-length: 100000000\r\n") + b"{}", 400),
        (upgrade(more=b"content-length: 00\r\n"), 400),
        (upgrade(more=b"transfer-encoding: chunked\r\n"), 400),
        (upgrade(more=b"transfer-encoding: chunked\r\n") + b"2\r\n{}\r\n0\r\n\r\n", 400),
        (upgrade(more=b"content-length: 2\r\n", method=b"POST") + b"{}", 400),
        (upgrade(more=b"content-length: 2\r\n", method=b"PUT") + b"{}", 400),
        (upgrade(method=b"POST"), 405),
    ],
)
async def test_upgrade_that_is_no_handshake_is_answered_and_closed_at_once(
    front: Installation, port: int, request_bytes: bytes, status: int
) -> None:
    client = await connect(port)
    client.write(request_bytes)
    reader = client.reader
    async with asyncio.timeout(2):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert (await reader.read()).endswith(b".\n"), "the end follows the text"
    client.writer.close()
    await until(lambda: held_headers.held_bytes == 0)


async def test_refused_upgrades_leave_no_connection_behind(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "LINGER_S_MAX", 0.1)
    first = await connect(port)
    first.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await first.answer())[0] == 200
    connections = protocol_of(first).connections
    clients = [await connect(port) for _ in range(20)]
    for client in clients:
        client.write(upgrade(more=b"x: %b\r\n" % (b"a" * 60_000)))
        assert b" 431 " in await asyncio.wait_for(client.reader.readuntil(b"\r\n"), 2)
    # They do not close, and are not waited for.
    await until(lambda: len(connections) == 1)
    assert all(isinstance(one, BoundedHttpProtocol) for one in connections)
    for client in (first, *clients):
        client.writer.close()


# --- the stop of the process ---


@pytest.mark.parametrize("kind", ["socket", "http", "no handshake"])
async def test_stop_ends_every_connection_though_some_fail(
    front: Installation, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A publish that is being stored is confirmed all the same (decision 0035)."""
    server = Server(express_config(front.plane, "127.0.0.1", 0), front.plane.drain)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    said = {"socket": upgrade(), "http": b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"}
    wrong = [await connect(port) for _ in range(3)]
    for client in wrong:
        client.write(said.get(kind, upgrade(more=b"x: %b\r\n" % (b"a" * 9_000))))
        await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 2)
    gate = gate_storage(front)
    token = {"Authorization": f"Bearer {front.key.bearer_token}"}
    socket = await websockets.connect(
        f"ws://127.0.0.1:{port}/v1/queues/orders/bulk", additional_headers=token, proxy=None
    )
    assert json.loads(await socket.recv())["type"] == "ready"
    await socket.send(json.dumps({"type": "publish", "seq": 1, "messages": [{"body": "x"}]}))
    await until(lambda: front.plane.bulk_sends.calls == 1)
    ask_to_end = BoundedSocketProtocol._ask_to_end

    def fail(connection: Any, *_: Any) -> None:
        if connection.scope["path"].endswith("/subscribe"):
            raise AssertionError("for a test")
        ask_to_end(connection, *_)

    monkeypatch.setattr(BoundedSocketProtocol, "_ask_to_end", fail)
    monkeypatch.setattr(HttpToolsProtocol, "shutdown", fail_always)
    server.should_exit = True
    await until(front.plane.stopping.is_set)
    await asyncio.sleep(0.1)
    gate.set()
    assert json.loads(await asyncio.wait_for(socket.recv(), 5))["type"] == "confirm"
    with pytest.raises(websockets.ConnectionClosed) as caught:
        await asyncio.wait_for(socket.recv(), 5)
    assert caught.value.rcvd is not None and caught.value.rcvd.code == CLOSE_RESTART
    await asyncio.wait_for(serving, 10)
    for client in wrong:
        client.writer.close()


def fail_always(_: Any) -> None:
    raise AssertionError("for a test")
