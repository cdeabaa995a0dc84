"""Does PostgreSQL answer? For the front ends, which refuse control calls at once while it does not (`/internal/alive`).
A server that takes no more connections is there: calls go on over those that the control plane has.

A connection of its own, on the event loop: neither a full pool nor threads that hang in a silent database keep it from
answering. Asked at most every DATABASE_PROBE_MS_MIN, by one at a time.
"""

from __future__ import annotations

import asyncio
import enum
import re
import time
from typing import Any

import psycopg

from api import limits

# libpq tells no SQLSTATE of a connection that was refused. These are the texts of 53300 (too_many_connections), and
# that of PgBouncer.
_FULL = re.compile(
    r"too many clients already|remaining connection slots are reserved|too many connections for (role|database)"
    r"|no more connections allowed"
)


class DatabaseState(enum.Enum):
    ANSWERS = enum.auto()
    FULL = enum.auto()
    AWAY = enum.auto()


def is_full(error: BaseException) -> bool:
    """Was a connection refused because all are in use?"""
    return isinstance(error, psycopg.OperationalError) and (
        error.sqlstate == "53300" or _FULL.search(str(error)) is not None
    )


class DatabaseProbe:
    """`parameters` as psycopg takes them."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = parameters
        self._connection: psycopg.AsyncConnection[tuple[Any, ...]] | None = None
        self._looking: asyncio.Task[DatabaseState] | None = None
        self._state = DatabaseState.AWAY
        self._looked_at_ms = -limits.DATABASE_PROBE_MS_MIN

    async def look(self) -> DatabaseState:
        if self._looking is None:
            if _now_ms() - self._looked_at_ms < limits.DATABASE_PROBE_MS_MIN:
                return self._state
            self._looking = asyncio.create_task(self._look(), name="database-probe")
        return await asyncio.shield(self._looking)

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def _look(self) -> DatabaseState:
        asking = asyncio.create_task(self._ask(), name="database-question")
        done, _ = await asyncio.wait((asking,), timeout=limits.DATABASE_PROBE_MS_MAX / 1000)
        self._state = _state_of(asking.exception()) if done else DatabaseState.AWAY
        if self._state is not DatabaseState.ANSWERS:
            await self.close()  # before the cancellation: psycopg would wait for a cancel request to the silent server
            asking.cancel()
        self._looked_at_ms = _now_ms()
        self._looking = None
        return self._state

    async def _ask(self) -> None:
        if self._connection is not None:
            try:
                await self._connection.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                await self.close()  # it may have died with an earlier server: made anew once
        self._connection = await psycopg.AsyncConnection.connect(**self._parameters, autocommit=True)


def _state_of(error: BaseException | None) -> DatabaseState:
    if error is None:
        return DatabaseState.ANSWERS
    return DatabaseState.FULL if is_full(error) else DatabaseState.AWAY


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
