"""Small questions of `status` and `doctor` to the database. Without Django, whose start takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from deploy import limits
from deploy.installation import Installation
from deploy.state import State

T = TypeVar("T")


def ask_database(installation: Installation, state: State, read: Callable[[Any], T]) -> T | None:
    """What `read` makes of a cursor. None: the database does not answer within DATABASE_LOOK_DEADLINE_S."""
    import psycopg

    deadline_s = limits.DATABASE_LOOK_DEADLINE_S
    try:
        with psycopg.connect(
            installation.settings(state)["DATABASE_URL"],
            connect_timeout=deadline_s,
            options=f"-c statement_timeout={deadline_s * 1_000}",
        ) as connection:
            return read(connection.cursor())
    except psycopg.Error:
        return None
