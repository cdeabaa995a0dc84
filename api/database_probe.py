"""Does PostgreSQL answer? For the front ends, which refuse control calls at once while it does not (`/internal/alive`).

A connection of its own, on the event loop: neither a full pool nor threads that hang in a silent database keep it from
answering. Asked at most every DATABASE_PROBE_MS_MIN, by one at a time.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg

from api import limits


class DatabaseProbe:
    """`parameters` as psycopg takes them."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = parameters
        self._connection: psycopg.AsyncConnection[tuple[Any, ...]] | None = None
        self._looking: asyncio.Task[bool] | None = None
        self._answered = False
        self._looked_at_ms = -limits.DATABASE_PROBE_MS_MIN

    async def answers(self) -> bool:
        if self._looking is None:
            if _now_ms() - self._looked_at_ms < limits.DATABASE_PROBE_MS_MIN:
                return self._answered
            self._looking = asyncio.create_task(self._look(), name="database-probe")
        return await asyncio.shield(self._looking)

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def _look(self) -> bool:
        asking = asyncio.create_task(self._ask(), name="database-question")
        done, _ = await asyncio.wait((asking,), timeout=limits.DATABASE_PROBE_MS_MAX / 1000)
        self._answered = bool(done) and asking.exception() is None
        if not self._answered:
            await self.close()  # before the cancellation: psycopg would wait for a cancel request to the silent server
            asking.cancel()
        self._looked_at_ms = _now_ms()
        self._looking = None
        return self._answered

    async def _ask(self) -> None:
        if self._connection is not None:
            try:
                await self._connection.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                await self.close()  # it may have died with an earlier server: made anew once
        self._connection = await psycopg.AsyncConnection.connect(**self._parameters, autocommit=True)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
