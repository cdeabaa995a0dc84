"""The LISTEN connection: hears every committed change, says when it can hear and when it cannot.

Sleeps in the event loop's selector: psycopg's own wait for notifications wakes ten times a second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import psycopg
import structlog

from api import limits
from frontend.metadata.messages import Change

CHANNEL = "penstock_changes"
_log = structlog.get_logger(__name__)


class _Payload(msgspec.Struct):
    kind: str
    key: str
    version: int


_decode = msgspec.json.Decoder(_Payload).decode


async def listen_forever(
    database_url: str, on_live: Callable[[], None], on_change: Callable[[Change], None], on_lost: Callable[[], None]
) -> None:
    """Runs until cancelled. `on_live` is called when LISTEN stands, `on_lost` when it fell."""
    backoff_ms = limits.LISTEN_BACKOFF_MS_MIN
    while True:
        try:
            connection = await psycopg.AsyncConnection.connect(
                database_url,
                autocommit=True,
                connect_timeout=limits.DATABASE_CONNECT_TIMEOUT_S,
                application_name="penstock-metadata-listen",
                **limits.LISTEN_KEEPALIVES,
            )
        except psycopg.OperationalError as error:
            _log.warning("database_unreachable", error=type(error).__name__)
        else:
            try:
                await connection.execute(f"LISTEN {CHANNEL}")
                backoff_ms = limits.LISTEN_BACKOFF_MS_MIN
                on_live()
                await _hear(connection, on_change)
            except psycopg.OperationalError as error:
                _log.warning("listen_interrupted", error=type(error).__name__)
            finally:
                on_lost()
                await connection.close()
        await asyncio.sleep(random.uniform(0.5, 1.0) * backoff_ms / 1000)
        backoff_ms = min(backoff_ms * 2, limits.LISTEN_BACKOFF_MS_MAX)


async def _hear(connection: psycopg.AsyncConnection[Any], on_change: Callable[[Change], None]) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    descriptor = connection.fileno()
    while True:
        # The reader is taken away while psycopg reads: it registers the same descriptor itself.
        async for notify in connection.notifies(timeout=0):
            payload = _decode(notify.payload)
            on_change(Change(payload.kind, payload.key, payload.version))
        readable.clear()
        loop.add_reader(descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)
