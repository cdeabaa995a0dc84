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
from tests.support.express_client import Client, protocol_of, received_bodies, rest_request, until
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
        (upgrade().replace(b"version: 13", b"version: 12"), 426),
        (upgrade(more=b"sec-websocket-version: 8\r\n"), 426),
        (upgrade().replace(b"A==", b"=="), 400),
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
        assert head.startswith(b"HTTP/1.1 %d " % status) and b"\r\nx-request-id: " in head
        assert (b"\r\nsec-websocket-version: 13\r\n" in head) == (status == 426)
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


# --- to other protocols ---


TO_HTTP2 = b"upgrade: h2c\r\nconnection: Upgrade, http2-settings , keep-alive\r\nhttp2-settings: AA\r\n"
ASKING = b"GET /healthz HTTP/1.1\r\nhost: x\r\n%b\r\n" % TO_HTTP2
PLAIN = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


def asking(request: bytes) -> bytes:
    head, _, rest = request.partition(b"\r\n")
    return b"%b\r\n%b%b" % (head, TO_HTTP2, rest)


@pytest.mark.parametrize("cut", [0, 10, 60, 100])
async def test_request_for_another_protocol_is_answered_as_any(front: Installation, port: int, cut: int) -> None:
    """Clients of Java ask so at first, for HTTP/2: with bodies, in pieces, and with requests behind them."""
    client = await connect(port)
    sends = [rest_request(front, "/v1/queues/orders/messages", {"body": body}) for body in "abc"]
    whole = asking(sends[0]) + ASKING + ASKING + PLAIN + asking(sends[1]) + sends[2] + ASKING
    at = len(asking(sends[0])) - cut
    client.write(whole[:at])
    await asyncio.sleep(0.05)
    client.write(whole[at:])
    assert [(await client.answer())[0] for _ in range(7)] == [200] * 7
    assert sorted(await received_bodies(front)) == ["a", "b", "c"]
    client.write(asking(poll(front, is_hot=False)) + PLAIN)
    await answer_polls(front, client, 1)
    assert (await client.answer())[0] == 200
    client.writer.close()


async def test_older_version_has_no_websockets(front: Installation, port: int) -> None:
    """RFC 9110, 7.8: what asks for another protocol in HTTP/1.0 is not heard."""
    client = await connect(port)
    client.write(upgrade().replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (await client.answer())[0] == 401 and await client.ended() == b""
    client.writer.close()


async def test_tunnel_is_refused_once(front: Installation, port: int) -> None:
    for head in (b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n", b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n" + TO_HTTP2):
        client = await connect(port)
        client.write(head + b"\r\n")
        assert (await client.answer())[0] in (400, 404, 405)
        client.writer.close()


# --- behind other requests ---


def poll(front: Installation, is_hot: bool = True) -> bytes:
    """Waits for a message; chunked, it takes the unmodified path."""
    whole = rest_request(front, "/v1/queues/orders/messages/receive", {"wait_seconds": 20})
    if is_hot:
        return whole
    head, _, body = whole.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    return b"%b\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (b"\r\n".join(lines), len(body), body)


async def answer_polls(front: Installation, client: Client, count: int) -> None:
    """Nothing is said before the answers to the polls, and these come whole."""
    for text in range(count):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.readexactly(1), 0.1)
        await front.rest("/v1/queues/orders/messages", {"body": str(text)})
        (message,) = (await client.json())["messages"]
        assert message["body"] == str(text)


@pytest.mark.parametrize("is_hot", [True, False])
@pytest.mark.parametrize("count", [1, 2])
async def test_upgrade_waits_for_the_answers_before_it(
    front: Installation, port: int, is_hot: bool, count: int
) -> None:
    client = await connect(port)
    client.write(poll(front, is_hot) * count + upgrade())
    await answer_polls(front, client, count)
    head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 5)
    assert head.startswith(b"HTTP/1.1 101 ")
    frame = json.dumps({"type": "auth", "token": front.key.bearer_token}).encode()
    client.write(b"\x81\xfe" + len(frame).to_bytes(2, "big") + bytes(4) + frame)
    assert (await asyncio.wait_for(client.reader.readexactly(18), 5))[2:] == b'{"type":"ready"}'
    client.writer.close()


@pytest.mark.parametrize("is_hot", [True, False])
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (upgrade(path=b"/nowhere"), 404),
        (upgrade(more=b"content-length: 2\r\n") + b"{}", 400),
        (upgrade(more=b"x: %b\r\n" % (b"a" * 9_000)), 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", 400),
    ],
)
async def test_refused_upgrade_is_answered_behind_the_answers_before_it(
    front: Installation, port: int, is_hot: bool, request_bytes: bytes, status: int
) -> None:
    client = await connect(port)
    client.write(poll(front, is_hot) + request_bytes)
    await answer_polls(front, client, 1)
    assert (await client.answer())[0] == status and await client.ended() == b""
    client.writer.close()


@pytest.mark.parametrize("is_hot", [True, False])
async def test_client_that_does_not_wait_for_its_upgrade_is_refused_in_order(
    front: Installation, port: int, is_hot: bool
) -> None:
    client = await connect(port)
    client.write(poll(front, is_hot) + upgrade())
    await asyncio.sleep(0.05)
    client.write(b"\x81\x80" + bytes(4))
    await answer_polls(front, client, 1)
    status, _, body = await client.answer()
    assert status == 400 and b"waits for the answer" in body and await client.ended() == b""
    client.writer.close()


def frame(said: dict[str, Any]) -> bytes:
    text = json.dumps(said).encode()
    return b"\x81\xfe" + len(text).to_bytes(2, "big") + bytes(4) + text


async def test_frame_in_one_piece_with_the_upgrade_is_heard(front: Installation, port: int) -> None:
    """As one is that comes in a piece of its own, before the answer."""
    client = await connect(port)
    key = b"authorization: Bearer %b\r\n" % front.key.bearer_token.encode()
    publish = frame({"type": "publish", "seq": 1, "messages": [{"body": "early"}]})
    client.write(upgrade(b"/v1/queues/orders/bulk", key) + publish[:20])
    await asyncio.sleep(0.05)
    client.write(publish[20:])
    await until(front.storage.count)
    assert b" 101 " in await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 5)
    client.writer.close()


@pytest.mark.parametrize("is_hot", [True, False])
async def test_frame_in_one_piece_with_an_upgrade_that_waits_is_refused_in_order(
    front: Installation, port: int, is_hot: bool
) -> None:
    client = await connect(port)
    client.write(poll(front, is_hot) + upgrade() + b"\x81\x80" + bytes(4))
    await answer_polls(front, client, 1)
    status, _, body = await client.answer()
    assert status == 400 and b"waits for the answer" in body and await client.ended() == b""
    client.writer.close()


async def test_frame_behind_a_refused_upgrade_is_no_more_than_that(front: Installation, port: int) -> None:
    for request in (upgrade(b"/nowhere"), upgrade(b"/v1/queues/orders/bulk"), upgrade(method=b"POST")):
        client = await connect(port)
        client.write(request + frame({"type": "publish", "seq": 1, "messages": [{"body": "early"}]}))
        assert (await client.answer())[0] >= 400 and await client.ended() == b""
        client.writer.close()
    assert not front.storage.count()


async def test_client_that_leaves_before_its_upgrade_ends_its_poll(front: Installation, port: int) -> None:
    client = await connect(port)
    client.write(poll(front) + upgrade())
    await asyncio.sleep(0.05)
    client.writer.close()
    await asyncio.sleep(0.05)
    await front.rest("/v1/queues/orders/messages", {"body": "x"})
    assert await received_bodies(front) == ["x"], "nobody has it"


async def test_deadline_of_headers_does_not_end_an_upgrade_that_waits(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.1)
    for request_bytes, status in ((upgrade(path=b"/nowhere"), 404), (upgrade(more=b"content-length: 2\r\n"), 400)):
        client = await connect(port)
        client.write(poll(front) + request_bytes)
        await asyncio.sleep(0.4)
        await answer_polls(front, client, 1)
        assert (await client.answer())[0] == status
        client.writer.close()


# --- what strangers write into the log ---

BAD_TEXT = b"\x81\x82" + bytes(4) + b"\xff\xfe"
PING, CLOSE = b"\x89\x80" + bytes(4), b"\x88\x80" + bytes(4)
PONG = b"\x8a\x00"


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    "said",
    [
        BAD_TEXT,
        BAD_TEXT + PING,
        BAD_TEXT + CLOSE,
        BAD_TEXT + BAD_TEXT,
        b"\x01\x81" + bytes(4) + b"\xff" + b"\x80\x81" + bytes(4) + b"\xfe",
    ],
)
async def test_text_that_is_not_utf8_closes_and_is_no_error(
    front: Installation, port: int, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    client = await connect(port)
    client.write(upgrade())
    assert b" 101 " in await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 5)
    client.write(said)
    told = await client.ended()
    told = told.removeprefix(PONG)
    assert told[:1] == b"\x88" and (CLOSE in said or told[2:4] == (1007).to_bytes(2, "big"))
    assert errors(caplog) == []
    client.writer.close()


@pytest.mark.parametrize("path", [b"/nowhere", b"/v1/queues/orders/bulk"])
async def test_refused_upgrade_is_no_error(
    front: Installation, port: int, caplog: pytest.LogCaptureFixture, path: bytes
) -> None:
    client = await connect(port)
    client.write(upgrade(path=path))
    assert (await client.answer())[0] in (401, 404) and await client.ended() == b""
    await asyncio.sleep(0.05)
    assert errors(caplog) == []
    client.writer.close()


@pytest.mark.parametrize("said", [PING, b"\xff" * 20, BAD_TEXT, CLOSE])
async def test_what_comes_before_the_answer_to_an_upgrade_is_looked_at_behind_it(
    front: Installation, port: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    gate = asyncio.Event()
    bearer = front.plane.authenticator.bearer

    async def slow(*arguments: Any) -> Any:
        await gate.wait()
        return await bearer(*arguments)

    monkeypatch.setattr(front.plane.authenticator, "bearer", slow)
    client = await connect(port)
    client.write(upgrade(more=f"authorization: Bearer {front.key.bearer_token}\r\n".encode()))
    await asyncio.sleep(0.05)
    client.write(said)
    await asyncio.sleep(0.05)
    gate.set()
    assert (await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 5)).startswith(b"HTTP/1.1 101 ")
    if said == PING:
        assert (await asyncio.wait_for(client.reader.readexactly(2), 5)) == PONG
    else:
        assert (await client.ended())[:1] == b"\x88"
    client.writer.close()
    await asyncio.sleep(0.05)
    assert errors(caplog) == []


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
