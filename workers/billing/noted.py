"""Rounds of work that leave a row of how they went, which operators read in the console."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import structlog
from django.db import Error as DatabaseError

from api.billing.work_notes import Work, note_round

_log = structlog.get_logger(__name__)


def noted_round(name: str, work: Callable[[], int], trouble: Callable[[], str] = lambda: "") -> None:
    """`trouble`: asked after the work, why it did not do all. What the work raises is noted, and goes on."""
    began_s, done = monotonic(), 0
    try:
        done = work()
    except Exception as error:
        _note(name, began_s, done, f"{type(error).__name__}: {error}")
        raise
    _note(name, began_s, done, trouble())


def _note(name: str, began_s: float, done: int, trouble: str) -> None:
    try:
        note_round(Work(name), int((monotonic() - began_s) * 1000), done, trouble)
    except DatabaseError as error:
        _log.warning("work_not_noted", work=name, error=type(error).__name__)
