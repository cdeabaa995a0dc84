"""The database is away: what that looks like here, and what is told."""

from __future__ import annotations

from django.db import InterfaceError, OperationalError

# No connection, a broken one, none free in time; also a deadlock or a refused lock: asking again helps.
DATABASE_AWAY = (OperationalError, InterfaceError)
DATABASE_AWAY_TEXT = "The database does not answer: nothing can be changed or listed at the moment."
