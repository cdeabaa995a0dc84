"""Times of a page: the moment from which it tells ages, the month that its address asks for, and where a list goes on.

The moment is read once for each page: a list has a hundred ages, and each reading of the database's clock costs a round
trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from django.http import HttpRequest

from api import clock
from api.billing.pricing.periods import BillingPeriod, parse_period, period_before, period_of

MONTHS_OFFERED_MAX = 36
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


def month_asked(request: HttpRequest) -> BillingPeriod:
    """The current one where none, or no month, is given."""
    try:
        return parse_period(request.GET.get("period", ""))
    except ValueError:
        return period_of(clock.now())


def before_asked(request: HttpRequest) -> datetime | None:
    """Where the next part of a list begins; None: it begins with the newest."""
    try:
        found = datetime.fromisoformat(request.GET.get("before", ""))
        # As UTC: PostgreSQL takes no offset of 16 hours or more.
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def months_since(opened: datetime) -> list[BillingPeriod]:
    """The latest first."""
    found = [period_of(clock.now())]
    while found[-1].start > opened and len(found) < MONTHS_OFFERED_MAX:
        found.append(period_before(found[-1]))
    return found
