"""Django with a real PostgreSQL, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.control_plane import Caller, new_caller, set_up, stop_threads

set_up()


@pytest.fixture
def caller(db: None) -> Caller:
    """An account of its own, with a key."""
    return new_caller()


@pytest.fixture(scope="session", autouse=True)
def threads_end_before_the_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    yield
    with django_db_blocker.unblock():
        stop_threads()
