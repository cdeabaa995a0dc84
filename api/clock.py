"""The time that stands in rows: the clock of the database, one for all processes.

Claims, retries and ticks of schedules compare times that different processes wrote. A process whose own clock is wrong
would take work that is not due, or put it off for days; so none of them asks its own. Rows that carry
`next_attempt_at` are due by it, too (`due_rows`). Times that people write are read here as well (`parse_time`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Min, QuerySet

from api import limits

WRITTEN_TIME = "a time like 2026-12-01T06:30, in UTC where it names no offset"


def now() -> datetime:
    """The time of this moment, not of the transaction's begin. Costs a round trip to the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        read: datetime = cursor.fetchone()[0]
    return read


def ticking_ms() -> Callable[[], int]:
    """The time in milliseconds for a while: read here once, advanced by the monotonic clock. May be asked anywhere."""
    began_ms = round(now().timestamp() * 1000)
    began_s = time.monotonic()
    return lambda: began_ms + int((time.monotonic() - began_s) * 1000)


def due_rows(pending: QuerySet[Any], age_ms: int) -> tuple[list[int], datetime | None]:
    """(rows that have been due for longer than age_ms, oldest first; when the next of the others is due)."""
    due = now() - timedelta(milliseconds=age_ms)
    found = pending.filter(next_attempt_at__lte=due).order_by("next_attempt_at").values_list("pk", flat=True)
    coming = pending.filter(next_attempt_at__gt=due).aggregate(at=Min("next_attempt_at"))
    return list(found[: limits.RESYNC_HINTS_MAX]), coming["at"]


def parse_time(text: str) -> datetime:
    """What a person wrote in a command, a form or a query, in UTC. Raises ValueError, also for a time that lies in no
    year of UTC: a row that holds it could not be read."""
    at = datetime.fromisoformat(text)
    try:
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None
