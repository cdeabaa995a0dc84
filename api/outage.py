"""The database is away: what that looks like here, and what is told."""

from __future__ import annotations

from django.db import InterfaceError, OperationalError
from psycopg_pool import PoolTimeout

# No connection, a broken one, none free in time; also a deadlock or a refused lock: asking again helps.
DATABASE_AWAY = (OperationalError, InterfaceError)
DATABASE_AWAY_TEXT = "The database does not answer: nothing can be changed or listed at the moment."
NO_CONNECTION_TEXT = "No connection to the database was free in time. Repeat the request."


def outage_text(error: BaseException) -> str:
    """Of one of DATABASE_AWAY. Whether the database is there, a pool that gave no connection cannot say."""
    causes = (error, error.__cause__)
    return NO_CONNECTION_TEXT if any(isinstance(one, PoolTimeout) for one in causes) else DATABASE_AWAY_TEXT
