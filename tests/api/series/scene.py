"""What the live meter and the leaders say in tests of the series, and the looks that collect it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from api.billing.models import MeterReading
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.periods import floor_hour
from api.billing.provisional import SHOWN, ProvisionalRow, merge_provisional
from api.series.collecting import QueueLevels, collect, note_levels
from api.series.metrics import METRICS, Statistic
from api.series.reading import MetricQuery, MetricSpan, SeriesReader

# In the middle of an hour, so that a test's minutes are of one.
NOON = datetime(2026, 11, 4, 12, 20, tzinfo=UTC)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
QUEUE = uuid.UUID(int=7)


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def meter(account: str, at: datetime, queue: uuid.UUID = QUEUE, source: str = "one/1", **figures: int) -> None:
    """The figures of the hour so far."""
    counters = [figures.get(name.value, 0) for name in UsageMeter]
    shown = [figures.get(name, 0) for name in SHOWN]
    merge_provisional("one/3", 1, [ProvisionalRow(floor_hour(at), account, queue, source, "client", counters, shown)])


def look(at: datetime, missing: str = "") -> list[uuid.UUID] | None:
    """A look of the live meter that began at `at`, and its collection."""
    return collect(MeterReading(ended_at=at + timedelta(seconds=1), took_ms=1000, missing=missing), at)


def hold(account: str, at: datetime, waiting: int, oldest: datetime | None = None, in_flight: int = 0) -> None:
    oldest_ms = int(oldest.timestamp() * 1000) if oldest else 0
    note_levels([QueueLevels(account, QUEUE, waiting, in_flight, 0, oldest_ms)], at)


def values(
    account: str,
    name: str,
    start: datetime,
    end: datetime,
    period_s: int = 60,
    statistic: str = "",
    now: datetime | None = None,
    queue: uuid.UUID = QUEUE,
) -> dict[float, float]:
    """By minutes after NOON."""
    metric = METRICS[name]
    reader = SeriesReader(account, MetricSpan(start, end), now or end)
    asked = Statistic(statistic) if statistic else metric.statistics[0]
    found = reader.points(MetricQuery(queue, LONG_AGO, metric, asked, period_s))
    return {(point.at_s - NOON.timestamp()) / 60: point.value for point in found}
