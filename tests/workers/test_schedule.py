"""The schedule's lock: one holder at a time, and it falls with its holder."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest

from workers import limits
from workers.schedule import ScheduleLock


def test_lock_has_one_holder_and_passes_on_when_it_falls() -> None:
    first, second = ScheduleLock(os.environ["DATABASE_URL"]), ScheduleLock(os.environ["DATABASE_URL"])
    try:
        assert first.hold() and first.hold()
        assert not second.hold()
        first.release()
        assert second.hold()
        assert not first.hold()
    finally:
        first.release()
        second.release()


def test_lock_of_a_host_that_is_gone_falls_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default the server looks after two hours; until then nothing would be scheduled, metered or settled."""
    real, given = psycopg.connect, []

    def connect(url: str, **settings: Any) -> Any:
        given.append(settings)
        return real(url, **settings)

    monkeypatch.setattr(psycopg, "connect", connect)
    lock = ScheduleLock(os.environ["DATABASE_URL"])
    try:
        assert lock.hold() and lock._session is not None
        (settings,) = given
        holder_s = max(
            settings["keepalives_idle"] + settings["keepalives_interval"] * settings["keepalives_count"],
            settings["tcp_user_timeout"] / 1000,
        )
        # What was set for the session; a socket of Unix shows no value of its own.
        rows = lock._session.execute("SELECT name FROM pg_settings WHERE name LIKE 'tcp_keep%' AND source = 'session'")
        assert {str(name) for (name,) in rows} == set(limits.LOCK_SERVER_KEEPALIVES)
        idle_s, interval_s, count = limits.LOCK_SERVER_KEEPALIVES.values()
        assert holder_s < idle_s and idle_s + interval_s * count <= 60
    finally:
        lock.release()


def test_lock_without_a_database_is_not_held() -> None:
    assert not ScheduleLock("postgresql://u@/d?host=/nonexistent").hold()
