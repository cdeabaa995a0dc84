"""What a month will cost if it goes on as it did so far. Pure: quantities and terms in, an amount out."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from api.billing import limits
from api.billing.account_month import AccountMonth
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.money import part_of
from api.billing.pricing.periods import HOUR, Interval
from api.billing.pricing.priced_month import ALL_QUEUES, QueueQuantities, SpanUsage, price_month


def forecast_minor(month: AccountMonth, known_to: datetime | None) -> int | None:
    """Usage, fees and minimum of the whole month, before credits and tax. `known_to`: up to when its usage is known.
    None: too little of the month is known."""
    if known_to is None:
        return None
    known = Interval(month.interval.start, min(known_to, month.interval.end))
    if known.hours < min(limits.FORECAST_HOURS_MIN, month.interval.hours):
        return None
    so_far = [_sums(span) for span in month.spans]
    whole: Counter[UsageMeter] = sum(so_far, Counter())
    begins, projected = month.interval.start, []
    for span, used in zip(month.spans, so_far, strict=True):
        ends = begins + span.span_hours * HOUR
        rest = max(ends - max(begins, known.end), timedelta())
        coming = {
            meter: part_of(quantity, _seconds(rest), _seconds(known.end - known.start))
            for meter, quantity in whole.items()
        }
        quantities = {meter: used[meter] + coming[meter] for meter in whole}
        projected.append(span._replace(usage=[QueueQuantities(ALL_QUEUES, quantities)]))
        begins = ends
    return price_month(projected, [], []).charges_minor


def _sums(span: SpanUsage) -> Counter[UsageMeter]:
    sums: Counter[UsageMeter] = Counter()
    for queue in span.usage:
        sums.update(queue.quantities)
    return sums


def _seconds(length: timedelta) -> int:
    return int(length.total_seconds())
