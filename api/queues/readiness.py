"""Waiting for a queue to become usable, woken by the change feed.

One thread per process holds one LISTEN connection and wakes the waiters of the queue that was announced. It starts
with the first waiter. What was missed while the connection was down is made good by a look at the row every
QUEUE_READY_POLL_MS.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import structlog
from django.db import connection

from api import limits
from api.call_places import release_while_waiting
from api.changes import CHANNEL
from frontend.metadata.records import RecordKind

_log = structlog.get_logger(__name__)


class Announcements:
    """Fans announcements out to waiters: thread on one side, event loops on the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        # One byte here ends the thread's select.
        self._stop_reader, self._stop_writer = socket.socketpair()

    def enter(self, key: str) -> tuple[asyncio.AbstractEventLoop, asyncio.Event]:
        """A waiter for announcements about `key`; give it back to `leave`."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiters.setdefault(key, set()).add(waiter)
            self._start_once()
        return waiter

    def hear_all(self, heard: Callable[[], None]) -> None:
        """From now on `heard` is called at every announcement about a queue, and whenever the connection stands anew
        (something may have been missed). On the thread of the connection: it must return at once."""
        with self._lock:
            self._listeners.append(heard)
            self._start_once()

    def _start_once(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen_forever, name="announcements", daemon=True)
            self._thread.start()

    def leave(self, key: str, waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with self._lock:
            waiters = self._waiters[key]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[key]

    def wake(self, key: str) -> None:
        with self._lock:
            for loop, event in self._waiters.get(key, ()):
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)
        self._call_listeners()

    def _call_listeners(self) -> None:
        for heard in self._listeners:
            heard()

    def stop(self) -> None:
        """Ends the thread and its connection; waiters then only have their own looks at the row."""
        self._stopping.set()
        self._stop_writer.send(b"x")
        if self._thread is not None:
            self._thread.join()

    def _listen_forever(self) -> None:
        backoff_ms = limits.LISTEN_BACKOFF_MS_MIN
        while not self._stopping.is_set():
            try:
                with psycopg.connect(**connection_parameters(), autocommit=True) as listening:
                    listening.execute(f"LISTEN {CHANNEL}")
                    backoff_ms = limits.LISTEN_BACKOFF_MS_MIN
                    self._call_listeners()
                    self._wake_as_announced(listening)
                    continue
            except (psycopg.Error, OSError) as error:
                _log.warning("announcements_interrupted", error=type(error).__name__)
            self._stopping.wait(backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, limits.LISTEN_BACKOFF_MS_MAX)

    def _wake_as_announced(self, listening: psycopg.Connection[tuple[object, ...]]) -> None:
        """Until stopped; raises when the connection ends. Sleeps in select: psycopg's own wait polls."""
        while not self._stopping.is_set():
            select.select([listening.fileno(), self._stop_reader], [], [])
            for notify in listening.notifies(timeout=0):
                change = json.loads(notify.payload)
                if change["kind"] == RecordKind.QUEUE:
                    self.wake(change["key"])


# What Django adds for its own wrapper, over what libpq knows.
_DJANGO_ONLY = ("cursor_factory", "context", "prepare_threshold", "pool")


def connection_parameters() -> dict[str, Any]:
    """Of Django's database, for a connection beside its pool."""
    given = connection.get_connection_params()
    return {name: value for name, value in given.items() if name not in _DJANGO_ONLY} | limits.LISTEN_KEEPALIVES


announcements = Announcements()


async def wait_until(key: str, reached: Callable[[], Awaitable[bool]], wait_ms: int) -> bool:
    """Looks with `reached` now, at every announcement about `key`, and now and then. False when the time is over.
    Meanwhile the call holds neither a place nor a connection (`call_places.py`)."""
    deadline = time.monotonic() + wait_ms / 1000
    waiter = announcements.enter(key)
    event = waiter[1]
    try:
        while True:
            event.clear()  # before looking: an announcement during the look is not lost
            if await reached():
                return True
            await release_while_waiting()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            try:
                async with asyncio.timeout(min(left_s, limits.QUEUE_READY_POLL_MS / 1000)):
                    await event.wait()
            except TimeoutError:
                continue
    finally:
        announcements.leave(key, waiter)
