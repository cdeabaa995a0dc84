"""One schedule, however many schedulers run: the one that holds a PostgreSQL advisory lock ticks, the others stand by.

The lock belongs to a database session: it falls with the process, the host or the connection, and another one takes it.
Nothing is stored: after a change of hands every entry is due once its interval has passed, and entries are safe to run
twice.
"""

from __future__ import annotations

import contextlib

import psycopg
import structlog
from celery.beat import Scheduler

from api.settings.server_urls import DATABASE_URL, server_url
from workers import limits

_log = structlog.get_logger(__name__)


class ScheduleLock:
    """An advisory lock, and the session that holds it."""

    def __init__(self, database_url: str, key: int = limits.SCHEDULE_LOCK_KEY) -> None:
        self._database_url = database_url
        self._key = key
        self._session: psycopg.Connection[tuple[object, ...]] | None = None
        self.held = False

    def hold(self) -> bool:
        """Takes the lock, or makes sure that it is still held. Never raises, never waits for another holder."""
        try:
            if self._session is None:
                self._session = _session(self._database_url)
            if self.held:
                self._session.execute("SELECT 1")
            else:
                row = self._session.execute("SELECT pg_try_advisory_lock(%s)", (self._key,)).fetchone()
                self.held = row is not None and bool(row[0])
        except psycopg.Error as error:
            _log.warning("schedule_lock_lost", error=type(error).__name__)
            self.release()
        return self.held

    def release(self) -> None:
        held, self.held = self.held, False
        session, self._session = self._session, None
        if session is not None:
            if held:
                # The end of the session would do it too, but a moment after this returns.
                with contextlib.suppress(psycopg.Error):
                    session.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
            session.close()


def _session(database_url: str) -> psycopg.Connection[tuple[object, ...]]:
    """One whose end both sides notice. Over a socket of Unix the settings say nothing: its ends fall together."""
    session = psycopg.connect(database_url, autocommit=True, connect_timeout=5, **limits.LOCK_SESSION_KEEPALIVES)
    for name, value in limits.LOCK_SERVER_KEEPALIVES.items():
        session.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
    return session


class LockedScheduler(Scheduler):
    """Ticks while it holds the lock."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.lock = ScheduleLock(server_url(DATABASE_URL))
        self._broker_away = False
        super().__init__(*args, **kwargs)

    def tick(self, *args: object, **kwargs: object) -> float:
        """Seconds until the next tick."""
        if not self.lock.hold():
            return limits.SCHEDULE_LOCK_RETRY_S
        return min(float(super().tick(*args, **kwargs)), limits.SCHEDULE_LOCK_RETRY_S)

    def apply_entry(self, entry: object, producer: object = None) -> None:
        """A tick that the broker does not take is left out: workers look by themselves (workers/watcher.py)."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except Exception as error:  # whatever the broker's client raises
            if not self._broker_away:
                _log.warning("broker_away", error=type(error).__name__)
            self._broker_away = True
        else:
            if self._broker_away:
                _log.info("broker_back")
            self._broker_away = False

    def close(self) -> None:
        self.lock.release()
        super().close()
