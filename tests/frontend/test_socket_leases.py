"""What a socket keeps of the messages that its client has, and what becomes of those that the client never got."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from storage_nodes.protocol.messages import MessageState
from tests.support.bulk_socket import sockets as sockets
from tests.support.frontend_plane import Installation
from tests.support.message_browser import MESSAGES
from tests.support.push_socket import Socket
from tests.support.settling import settle


def subscribe(front: Installation) -> Socket:
    return Socket(front, "orders", {"authorization": f"Bearer {front.key.bearer_token}"})


async def send(front: Installation, *bodies: str) -> None:
    assert (await front.rest(MESSAGES, {"messages": [{"body": body} for body in bodies]})).status == 200


@pytest.mark.parametrize("wire", ["bulk", "subscribe"])
async def test_socket_keeps_no_body_of_what_its_client_holds(front: Installation, sockets: Any, wire: str) -> None:
    count, body_bytes = 40, 100_000
    real = front.storage.acquire

    async def copied(*arguments: Any) -> Any:
        """As from a node: not the bytes that this storage holds itself."""
        reply = await real(*arguments)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(reply), type=type(reply))

    front.storage.acquire = copied  # type: ignore[method-assign]
    for _ in range(count // 10):
        await send(front, *["x" * body_bytes] * 10)
    socket = sockets() if wire == "bulk" else subscribe(front)
    await settle(lambda: bool(socket.of("ready")))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    socket.say({"type": "credit", "n": count})
    await settle(lambda: all(one.state != MessageState.WAITING for one in front.storage.messages(1)), 5_000)
    await asyncio.sleep(0.05)
    socket.sent.clear()
    gc.collect()
    held_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held_bytes < body_bytes, "some hundred bytes of each"
    await socket.leave()
    assert all(one.state == MessageState.WAITING for one in front.storage.messages(1))
