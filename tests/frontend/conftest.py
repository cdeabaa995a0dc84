"""Fixtures of the front end's tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from frontend.express.protocol import express_config
from frontend.server import Server
from tests.support.frontend_plane import Installation


@pytest.fixture
async def front() -> Installation:
    """An account with the queue `orders`, and another account with the queue `secret`."""
    return Installation()


@pytest.fixture
async def port(front: Installation) -> AsyncIterator[int]:
    """Where the real server listens."""
    front.clock.now_s = time.time()  # boto3 signs with the real clock
    server = Server(express_config(front.plane, "127.0.0.1", 0), front.plane.drain)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await asyncio.wait_for(task, 10)
