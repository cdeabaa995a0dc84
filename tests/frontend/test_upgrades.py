"""Requests to upgrade over real connections: those that are none, and those that come behind other requests."""

from __future__ import annotations

import asyncio

import pytest

from frontend import server as server_module
from frontend.client_bytes import held_headers
from frontend.server import BoundedHttpProtocol
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
