"""What the machine can do without us: the figures that ours are read against."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from typing import cast

from storage_nodes.client.connection import ClientConnection
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.frames import FLAG_ANSWER, FrameDecoder, encode_frame

YARDSTICK_SECONDS = 2.0
BODY_BYTES = 1024


def fdatasync_rate(directory: str | None = None) -> float:
    """fdatasyncs per second of 1 KiB written in place into a file that was filled before."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        os.pwrite(descriptor, bytes(16 * 1024 * 1024), 0)
        os.fdatasync(descriptor)
        block = os.urandom(BODY_BYTES)
        count = 0
        ends = time.perf_counter() + YARDSTICK_SECONDS
        started = time.perf_counter()
        while time.perf_counter() < ends:
            os.pwrite(descriptor, block, (count * BODY_BYTES) % (16 * 1024 * 1024))
            os.fdatasync(descriptor)
            count += 1
        return count / (time.perf_counter() - started)


class _Echo(asyncio.Protocol):
    def __init__(self) -> None:
        self._decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        frames = self._decoder.feed(data)
        self._transport.write(b"".join([encode_frame(op, FLAG_ANSWER, number, b"") for op, _, number, _ in frames]))


async def echo_rate(in_flight: int = 256) -> float:
    """Framed 1 KiB requests per second, answered empty, one process on both ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, connection = await loop.create_connection(lambda: ClientConnection(loop), "127.0.0.1", port)
    payload = os.urandom(BODY_BYTES)
    count = 0
    started = time.perf_counter()
    ends = started + YARDSTICK_SECONDS
    finished = loop.create_future()
    open_calls = in_flight

    def done(result: bytes | StorageError) -> None:
        nonlocal count, open_calls
        count += 1
        if time.perf_counter() < ends:
            connection.ask(10, payload, done)
            return
        open_calls -= 1
        if not open_calls:
            finished.set_result(None)

    for _ in range(in_flight):
        connection.ask(10, payload, done)
    await finished
    seconds = time.perf_counter() - started
    connection.close()
    server.close()
    return count / seconds
