"""The LISTEN connection: hears every committed change, says when it can hear and when it cannot.

Sleeps in the event loop's selector: psycopg's own wait for notifications wakes ten times a second. Looks at the log of
changes now and then all the same: a database that has stopped without closing its connections is found by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Protocol

import msgspec
import psycopg
import structlog

from api import limits
from api.metadata.store import Connection, StoreFull, StoreUnavailable, TooManyConnections, connect
from frontend.metadata.messages import Change

CHANNEL = "penstock_changes"
_log = structlog.get_logger(__name__)


class _Payload(msgspec.Struct):
    kind: str
    key: str
    version: int


_decode = msgspec.json.Decoder(_Payload).decode


class Follower(Protocol):
    async def catch_up(self) -> None:
        """LISTEN stands, or it is time to look again. Changes are heard when this has returned."""

    def heard(self, change: Change) -> None: ...

    async def lost(self) -> None:
        """LISTEN fell."""

    def reached(self) -> None:
        """A connection stands: changes may be made."""

    def unreachable(self) -> None:
        """No connection could be made: nobody is there."""

    def refused(self) -> None:
        """PostgreSQL is there, and takes no more connections: changes may be made that nobody here hears of."""


async def follow_forever(database_url: str, follower: Follower) -> None:
    """Runs until cancelled. Comes back to a database that was away after a wait that differs from one to the next."""
    backoff_ms = limits.LISTEN_BACKOFF_MS_MIN
    away = False
    while True:
        try:
            try:
                connection = await connect(database_url, "penstock-metadata-listen")
            except TooManyConnections:
                raise
            except Exception:
                follower.unreachable()
                raise
            try:
                follower.reached()
                await _listen(connection)
                await follower.catch_up()
                backoff_ms, away = limits.LISTEN_BACKOFF_MS_MIN, False
                _log.info("feed_live")
                await _hear(connection, follower)
            finally:
                await connection.close()
                await follower.lost()
        except (psycopg.Error, StoreUnavailable, OSError) as error:
            if isinstance(error, TooManyConnections | StoreFull):
                follower.refused()
            if not away:
                _log.warning("feed_lost", error=type(error).__name__, reason=str(error))
            away = True
        await asyncio.sleep(random.uniform(0.5, 1.0) * backoff_ms / 1000)
        backoff_ms = min(backoff_ms * 2, limits.LISTEN_BACKOFF_MS_MAX)


async def _listen(connection: Connection) -> None:
    listening = asyncio.ensure_future(connection.execute(f"LISTEN {CHANNEL}"))
    done, _ = await asyncio.wait((listening,), timeout=limits.METADATA_READ_MS_MAX / 1000)
    if not done:
        # Before the cancellation: psycopg would wait for a cancel request to the silent server.
        await connection.close()
        listening.cancel()
        raise StoreUnavailable("PostgreSQL does not answer in time")
    listening.result()


async def _hear(connection: Connection, follower: Follower) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    descriptor = connection.fileno()
    look_at_s = loop.time() + limits.METADATA_POLL_MS / 1000
    while True:
        # The reader is taken away while psycopg reads: it registers the same descriptor itself.
        async for notify in connection.notifies(timeout=0):
            payload = _decode(notify.payload)
            follower.heard(Change(payload.kind, payload.key, payload.version))
        if loop.time() >= look_at_s:
            with contextlib.suppress(StoreFull):  # LISTEN stands: changes are heard all the same
                await follower.catch_up()
            look_at_s = loop.time() + limits.METADATA_POLL_MS / 1000
        readable.clear()
        loop.add_reader(descriptor, readable.set)
        timer = loop.call_at(look_at_s, readable.set)
        try:
            await readable.wait()
        finally:
            timer.cancel()
            loop.remove_reader(descriptor)
