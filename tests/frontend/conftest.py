"""Fixtures of the front end's tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import structlog

from frontend import crowd, server, writing
from frontend.express.protocol import express_config
from frontend.flood_log import FloodGate
from frontend.push import connection
from frontend.server import Server
from tests.support.frontend_plane import Installation

FLOODS = (
    server._slow_requests, server._refused_headers, writing._slow_readers, connection._slow_frames, crowd._gave_way,
    crowd._refused,
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_flood_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test before caused is no reason to leave a warning out, nor does it say where warnings go: a logger
    keeps the configuration of its first use, and Django's has one of its own."""
    for flood in FLOODS:
        monkeypatch.setattr(flood, "_gate", FloodGate())
        monkeypatch.setattr(flood, "_log", structlog.get_logger())


@pytest.fixture
async def front() -> Installation:
    """An account with the queue `orders`, and another account with the queue `secret`."""
    return Installation()


@pytest.fixture
async def port(front: Installation) -> AsyncIterator[int]:
    """Where the real server listens."""
    front.clock.now_s = time.time()  # boto3 signs with the real clock
    serving = Server(express_config(front.plane, "127.0.0.1", 0), front.plane.drain)
    task = asyncio.create_task(serving.serve())
    while not serving.started:
        await asyncio.sleep(0.001)
    yield serving.servers[0].sockets[0].getsockname()[1]
    serving.should_exit = True
    await asyncio.wait_for(task, 10)
