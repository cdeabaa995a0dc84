"""The schedule's lock: one holder at a time, and it falls with its holder."""

from __future__ import annotations

import os

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


def test_lock_without_a_database_is_not_held() -> None:
    assert not ScheduleLock("postgresql://u@/d?host=/nonexistent").hold()
