"""Which months are open, and why: for the operators' page and `./penstock report months`. Reads only."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from api.billing import due, limits
from api.billing.due import UnissuedMonth
from api.billing.models import MonthLook
from api.billing.pricing.periods import BillingPeriod, period_of
from api.billing.selectors import first_account_opened, settled_up_to


class OpenMonth(NamedTuple):
    """`to_issue` and `failing` are cut at a bound, INVOICES_AT_ONCE_MAX. `reasons` empty: nothing is left.
    `is_overdue`: an invoice is owed that should be there, because the month has been over for OVERDUE_AFTER_HOURS, or
    that failed when it was tried."""

    period: BillingPeriod
    to_issue: int
    failing: int
    reasons: list[str]
    is_overdue: bool = False


def months_with_reasons(now: datetime) -> list[OpenMonth]:
    """The last months, and each older one that is open, up to OLD_MONTHS_AT_ONCE_MAX of these; the oldest first."""
    settled, opened = settled_up_to(), first_account_opened()
    unissued = {month.period: month for month in due.unissued_months(now, settled)}
    periods = list(unissued) or [*due.older_open_periods(now), *due.open_periods(now)]
    stuck = MonthLook.objects.filter(to_issue__gt=0, period_start__lt=due.open_periods(now)[0].start)
    for start in stuck.order_by("period_start").values_list("period_start", flat=True)[: limits.OLD_MONTHS_AT_ONCE_MAX]:
        period = period_of(start)
        if period not in periods:
            periods.append(period)
            unissued[period] = due.unissued_month(period, settled)
    found = [_open_month(period, unissued.get(period), settled, now) for period in sorted(periods)]
    # Nobody was there to be billed.
    return [one if opened and opened < one.period.end else one._replace(reasons=[], is_overdue=False) for one in found]


def _open_month(
    period: BillingPeriod, unissued: UnissuedMonth | None, settled: datetime | None, now: datetime
) -> OpenMonth:
    to_issue, failing = (len(unissued.accounts), unissued.failing) if unissued else (0, 0)
    reasons: list[str] = []
    wanted = period.end + timedelta(hours=limits.CLOSE_AFTER_HOURS)
    if now < period.end:
        reasons.append(f"it runs until {_text(period.end)}")
    elif settled is None:
        reasons.append("no usage is settled yet")
    elif settled < wanted:
        reasons.append(f"usage is settled up to {_text(settled)}, and {_text(wanted)} is needed")
    some = "at least " if to_issue >= limits.INVOICES_AT_ONCE_MAX else ""
    if to_issue > failing:
        reasons.append(f"{some}{to_issue - failing} to be issued by the next rounds")
    if failing:
        reasons.append(f"{failing} failed when tried last (background work says why)")
    is_late = bool(reasons) and now >= period.end + timedelta(hours=limits.OVERDUE_AFTER_HOURS)
    return OpenMonth(period, to_issue, failing, reasons, failing > 0 or (is_late and due.is_owed(period)))


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
