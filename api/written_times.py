"""Times that people write: in commands, forms and queries."""

from __future__ import annotations

from datetime import UTC, datetime

WRITTEN_TIME = "a time like 2026-12-01T06:30, in UTC where it names no offset"


def parse_time(text: str) -> datetime:
    """In UTC. Raises ValueError, also for one that lies in no year of UTC: a row that holds it could not be read."""
    at = datetime.fromisoformat(text)
    try:
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None
