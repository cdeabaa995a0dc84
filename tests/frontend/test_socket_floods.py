"""Floods of small frames over real connections: what is parsed in one turn of the event loop, and who is cut for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import websockets

from frontend.client_bytes import held_frames
from frontend.limits import IDLE_FRAMES_AT_ONCE_MAX, SOCKET_PARSE_BYTES
from frontend.push.closing import CLOSE_BAD_FRAME, CLOSE_OVER_LIMIT
from frontend.push.connection import BoundedSocketProtocol
from tests.frontend.test_socket_frames import closed, connect, until
from tests.support.frontend_plane import Installation

MASK = bytes(4)
PING, PONG, EMPTY_TEXT = (bytes((first, 0x80)) + MASK for first in (0x89, 0x8A, 0x81))
PART = b"\x00\x81" + MASK + b"x"


async def anonymous(port: int) -> websockets.ClientConnection:
    return await websockets.connect(f"ws://127.0.0.1:{port}/v1/queues/orders/subscribe", proxy=None, ping_interval=None)


@pytest.mark.parametrize("flood", [PING, PONG, b"\x01" + PART[1:] + PART * 40_000], ids=["pings", "pongs", "parts"])
async def test_flood_of_idle_frames_is_cut_within_the_piece_that_is_parsed(
    front: Installation, port: int, flood: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = 0
    note = BoundedSocketProtocol._note_idle

    def counted(protocol: BoundedSocketProtocol) -> None:
        nonlocal handled
        handled += 1
        note(protocol)

    monkeypatch.setattr(BoundedSocketProtocol, "_note_idle", counted)
    socket = await anonymous(port)
    socket.transport.write(flood * (1 if len(flood) > 100 else 40_000))
    code, reason = await closed(socket)
    assert code == CLOSE_OVER_LIMIT and "pings" in reason
    assert IDLE_FRAMES_AT_ONCE_MAX < handled <= IDLE_FRAMES_AT_ONCE_MAX + SOCKET_PARSE_BYTES // len(PING)
    await until(lambda: front.plane.open_sockets.calls == 0 and held_frames.held_bytes == 0)


async def test_frames_that_the_application_has_not_taken_keep_the_rest_unparsed(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    note = BoundedSocketProtocol._note_held

    def noted(protocol: BoundedSocketProtocol) -> bool:
        waiting.append(protocol.queue.qsize())
        return note(protocol)

    monkeypatch.setattr(BoundedSocketProtocol, "_note_held", noted)
    socket = await anonymous(port)
    socket.transport.write(EMPTY_TEXT * 40_000)
    assert (await closed(socket))[0] == CLOSE_BAD_FRAME
    assert 1 < max(waiting) <= SOCKET_PARSE_BYTES // len(EMPTY_TEXT) + 1
    await until(lambda: held_frames.held_bytes == 0)


async def test_flood_behind_a_close_is_thrown_away(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = 0
    handle = BoundedSocketProtocol.handle_text

    def counted(protocol: BoundedSocketProtocol, event: Any) -> None:
        nonlocal parsed
        parsed += 1
        handle(protocol, event)

    monkeypatch.setattr(BoundedSocketProtocol, "handle_text", counted)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /v1/queues/orders/subscribe HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.write(EMPTY_TEXT)
    assert (await reader.readexactly(4))[:1] == b"\x88", "it is closed"
    for _ in range(20):
        writer.write(EMPTY_TEXT * 10_000)
        await asyncio.sleep(0.005)
    assert parsed <= IDLE_FRAMES_AT_ONCE_MAX + SOCKET_PARSE_BYTES // len(EMPTY_TEXT) + 1
    writer.close()


async def test_many_small_publishes_and_pings_at_once_are_all_answered(front: Installation, port: int) -> None:
    socket = await connect(front, port)
    frames = b""
    for seq in range(500):
        text = json.dumps({"type": "publish", "seq": seq, "messages": [{"body": "x"}]}).encode()
        frames += b"\x81" + bytes((0x80 | len(text),)) + MASK + text
        if seq % 10 == 0:
            frames += PING
    socket.transport.write(frames)
    answers = [json.loads(await asyncio.wait_for(socket.recv(), 5)) for _ in range(500)]
    assert sorted(one["seq"] for one in answers if one["type"] == "confirm") == list(range(500))
    assert front.storage.count() == 500
    await until(lambda: held_frames.held_bytes == 0)
    await socket.close()
    assert socket.close_code == 1000
