"""Django with a real PostgreSQL, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.control_plane import Caller, new_caller, set_up, stop_threads
from tests.support.scripted_storage import ScriptedStorage

set_up()


@pytest.fixture
def caller(db: None) -> Caller:
    """An account of its own, with a key."""
    return new_caller()


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> ScriptedStorage:
    """Queues are reconciled in it as soon as their desired state is committed."""
    from api.queues import actions, spreading
    from workers.lifecycle.reconciling import reconcile_queue

    scripted = ScriptedStorage()
    monkeypatch.setattr(spreading, "scheduled_count", scripted.scheduled_count)
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    return scripted


@pytest.fixture(scope="session", autouse=True)
def threads_end_before_the_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    yield
    with django_db_blocker.unblock():
        stop_threads()
