"""What a queue costs over the time that its charts show: by hour up to a day, by day beyond. Shares of the month's
charges, as on the pages about money."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from api.accounts.models import Account
from api.billing.account_month import AccountMonth, month_of
from api.billing.pricing.periods import DAY, HOUR, BillingPeriod, Interval, floor_hour, period_of
from api.billing.usage_reports import UsageAsked, UsageCut, UsagePart, usage_parts
from console.bars import BarChart, BarValue, bar_chart
from console.metric_charts import ChartSpan
from console.templatetags.money import nanos


class QueueCostCurve(NamedTuple):
    """`rows` hold the bars in words, for the table. `chart` None: nothing is to be drawn."""

    total: str
    rows: list[BarValue]
    chart: BarChart | None


def queue_cost(account: Account, queue_uuid: UUID, span: ChartSpan, now: datetime) -> QueueCostCurve | None:
    """None where the account has no prices in that time. Hours and days are those of UTC."""
    by_hour = span.length <= DAY
    step = HOUR if by_hour else DAY
    first = floor_hour(now - DAY) + HOUR if by_hour else floor_hour(now - span.length).replace(hour=0) + DAY
    months = _Months(account, queue_uuid)
    parts: dict[datetime, UsagePart] = {}
    for day in _days(first, now) if by_hour else {period_of(first).start, period_of(now).start}:
        month = months.of(day)
        if month is None:
            continue
        asked = UsageAsked(UsageCut.DAY, queue_uuid)
        if by_hour:
            asked = UsageAsked(UsageCut.HOUR, queue_uuid, Interval(day, day + DAY))
        parts |= {part.key: part for part in usage_parts(month, asked) if isinstance(part.key, datetime)}
    if months.currency is None:
        return None
    rows, at = [], first
    while at <= now:
        amount, open_amount = _amounts(parts.get(at))
        label = f"{at:%H:%M}" if by_hour else f"{at:%-d %b}"
        rows.append(BarValue(label, amount - open_amount, open_amount, nanos(amount, months.currency)))
        at += step
    total = sum(row.settled + row.provisional for row in rows)
    return QueueCostCurve(nanos(total, months.currency), rows, bar_chart(rows))


def _days(first: datetime, last: datetime) -> list[datetime]:
    day, found = first.replace(hour=0), []
    while day <= last:
        found.append(day)
        day += DAY
    return found


def _amounts(part: UsagePart | None) -> tuple[int, int]:
    return (0, 0) if part is None else (part.amount_nanos, part.provisional_nanos)


class _Months:
    """Each month is priced once."""

    def __init__(self, account: Account, queue_uuid: UUID) -> None:
        self._account, self._queue_uuid = account, queue_uuid
        self._found: dict[BillingPeriod, AccountMonth | None] = {}
        self.currency: str | None = None

    def of(self, day: datetime) -> AccountMonth | None:
        period = period_of(day)
        if period not in self._found:
            month = month_of(self._account, period, is_provisional=True, queues=(self._queue_uuid,))
            self._found[period] = month
            if month is not None:
                self.currency = month.priced.currency
        return self._found[period]
