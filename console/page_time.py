"""The time from which a page tells ages. It is read once for each page: a list has a hundred ages, and each reading of
the database's clock costs a round trip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

from api import clock

_readings: ContextVar[list[datetime] | None] = ContextVar("readings", default=None)


@contextmanager
def one_page() -> Iterator[None]:
    token = _readings.set([])
    try:
        yield
    finally:
        _readings.reset(token)


def page_now() -> datetime:
    """The first reading of the page; outside of a page, the time of this moment."""
    readings = _readings.get()
    if readings is None:
        return clock.now()
    if not readings:
        readings.append(clock.now())
    return readings[0]
