"""Connections that end: by a reset, and by a client that says only that it will send no more."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref

import pytest

from tests.support.express_client import Client, protocol_of, rest_request, until
from tests.support.frontend_plane import Installation

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


async def connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


@pytest.mark.parametrize("is_hot", [True, False])
async def test_reset_connection_is_freed_at_once(front: Installation, port: int, is_hot: bool) -> None:
    """Not with its keep-alive time."""
    client = await connect(port)
    client.write(rest_request(front, "/v1/queues/orders/messages", {"body": "a"}) if is_hot else HEALTH)
    assert (await client.answer())[0] == 200
    protocol = protocol_of(client)
    left, connections = weakref.ref(protocol), protocol.connections
    del protocol
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()
    await until(lambda: not connections)
    await asyncio.sleep(0.05)
    gc.collect()
    assert left() is None
