"""Months, and where a list goes on, in addresses of pages."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpRequest

from api import clock
from api.billing.pricing.periods import BillingPeriod, parse_period, period_before, period_of

MONTHS_OFFERED_MAX = 36


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
