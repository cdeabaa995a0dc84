"""Rows that carry `next_attempt_at`: which are due, and when the next one will be."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min, QuerySet

from api import clock, limits


def due_rows(pending: QuerySet[Any], age_ms: int) -> tuple[list[int], datetime | None]:
    """(rows that have been due for longer than age_ms, oldest first; when the next of the others is due)."""
    due = clock.now() - timedelta(milliseconds=age_ms)
    found = pending.filter(next_attempt_at__lte=due).order_by("next_attempt_at").values_list("pk", flat=True)
    coming = pending.filter(next_attempt_at__gt=due).aggregate(at=Min("next_attempt_at"))
    return list(found[: limits.RESYNC_HINTS_MAX]), coming["at"]
