"""Is the control plane able to work? Asked while calls wait for it, so that none waits for an answer that cannot come.

works    calls pass. One that takes longer than CONTROL_PATIENCE_MS has the control plane asked whether it and its
         database are there, again and again until no call is under way
full     it said that PostgreSQL takes no more connections: calls pass, over those that it has. It is asked on
away     it said that PostgreSQL does not answer, or took no connection, or was silent to CONTROL_SILENT_MAX
         questions: the calls under way are refused, and so is every other one at once. It is asked on, with
         pauses that differ, and one good answer ends this: no call has to be the probe
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

import httpx2
import structlog

from frontend.errors import unavailable
from frontend.limits import (
    CONTROL_PATIENCE_MS,
    CONTROL_PROBE_INTERVAL_MS,
    CONTROL_PROBE_MS_MAX,
    CONTROL_RETRY_AFTER_S,
    CONTROL_SILENT_MAX,
)
from frontend.readiness import ALIVE_FULL, ALIVE_PATH, Trouble

DATABASE_AWAY = "PostgreSQL does not answer the control plane."
DATABASE_FULL = "PostgreSQL takes no more connections: calls may be refused."
UNREACHABLE = "The control plane takes no connection."
SILENT = "The control plane does not answer."
T = TypeVar("T")
_log = structlog.get_logger(__name__)


class ControlWatch:
    """`with watch:` around a call and all that belongs to it; `await watch.unless_away(...)` for each wait in it."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._calls = 0
        self._silences = 0
        self._away: str | None = None
        self._away_since_ms = 0
        self._full_since_ms = 0  # 0: it is not
        self._fallen = asyncio.Event()  # set while the control plane is away
        self._suspicion = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        """Raises RequestError while the control plane is away."""
        if self._away is not None:
            raise _refused(self._away)
        self._calls += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="control-watch")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._calls -= 1

    async def unless_away(self, waiting: Awaitable[T]) -> T:
        """The result, or RequestError as soon as the control plane is found to be away."""
        task = asyncio.ensure_future(waiting)
        fall = asyncio.ensure_future(self._fallen.wait())
        try:
            await asyncio.wait((task, fall), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _refused(self._away or SILENT)
            return task.result()
        finally:
            fall.cancel()
            task.cancel()

    def suspect(self) -> None:
        """A call failed in a way that may be the control plane's: look now."""
        self._suspicion.set()

    def troubles(self) -> list[Trouble]:
        if self._away is not None:
            return [Trouble("control plane", self._away, self._away_since_ms)]
        return [Trouble("control plane", DATABASE_FULL, self._full_since_ms)] if self._full_since_ms else []

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        pause_ms = CONTROL_PATIENCE_MS
        while True:
            await self._pause(pause_ms)
            if not (self._calls or self._away or self._full_since_ms or self._suspicion.is_set()):
                return
            self._suspicion.clear()
            self._note(await self._look())
            pause_ms = CONTROL_PROBE_INTERVAL_MS

    async def _pause(self, pause_ms: int) -> None:
        try:
            async with asyncio.timeout(pause_ms * random.uniform(0.5, 1.0) / 1000):
                await self._suspicion.wait()
        except TimeoutError:
            return

    async def _look(self) -> str | None:
        """Why nothing can be done, None where all is well; silence counts only when it is repeated."""
        try:
            async with asyncio.timeout(CONTROL_PROBE_MS_MAX / 1000):
                response = await self._http.get(ALIVE_PATH)
        except (TimeoutError, httpx2.TimeoutException):
            self._silences += 1
            return SILENT if self._silences >= CONTROL_SILENT_MAX else self._away
        except httpx2.HTTPError:
            return UNREACHABLE
        self._silences = 0
        self._note_full(response.status_code == 200 and response.content == ALIVE_FULL)
        return DATABASE_AWAY if response.status_code == 503 else None

    def _note_full(self, is_full: bool) -> None:
        if is_full and not self._full_since_ms:
            self._full_since_ms = int(time.time() * 1000)
            _log.warning("database_full", reason=DATABASE_FULL)
        elif not is_full:
            self._full_since_ms = 0

    def _note(self, away: str | None) -> None:
        if away == self._away:
            return
        if self._away is None:
            self._away_since_ms = int(time.time() * 1000)
            self._fallen.set()
        self._away = away
        if away is None:
            self._fallen.clear()
            _log.info("control_plane_back", away_ms=int(time.time() * 1000) - self._away_since_ms)
        else:
            _log.warning("control_plane_away", reason=away)


def _refused(reason: str) -> Exception:
    return unavailable(f"{reason} Queues and keys cannot be changed at the moment.", CONTROL_RETRY_AFTER_S)
