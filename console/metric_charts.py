"""The charts of a queue and of an account: which metrics stand in each, and their points in the order of time. Pure but
for the reader that it is given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from api.series.metrics import METRICS, Metric, Statistic
from api.series.reading import MetricQuery, MetricSpan, SeriesReader

Value = float | None


class ChartSpan(NamedTuple):
    """`key` stands in the address."""

    key: str
    label: str
    length: timedelta
    period_s: int


SPANS = (
    ChartSpan("1h", "1 hour", timedelta(hours=1), 60),
    ChartSpan("24h", "24 hours", timedelta(hours=24), 300),
    ChartSpan("7d", "7 days", timedelta(days=7), 3_600),
)


class ChartLine(NamedTuple):
    label: str
    metric: Metric
    statistic: Statistic


class Chart(NamedTuple):
    """`unit` says what the axis counts: `count`, `seconds` or `bytes`."""

    key: str
    title: str
    unit: str
    lines: tuple[ChartLine, ...]


class DrawnChart(NamedTuple):
    """`data`: seconds since the epoch, then the values of each line, as JSON; `is_flat`: there is nothing to see."""

    chart: Chart
    data: str
    is_flat: bool

    @property
    def labels(self) -> str:
        return "|".join(line.label for line in self.chart.lines)


class ReadCharts(NamedTuple):
    """`totals`: figures above the charts, with their labels."""

    charts: list[DrawnChart]
    totals: list[tuple[str, int]]


def _line(label: str, name: str, statistic: Statistic) -> ChartLine:
    return ChartLine(label, METRICS[name], statistic)


_RATES = Chart(
    "rates", "Messages a minute", "count",
    (_line("Sent", "NumberOfMessagesSent", Statistic.AVERAGE),
     _line("Received", "NumberOfMessagesReceived", Statistic.AVERAGE),
     _line("Deleted", "NumberOfMessagesDeleted", Statistic.AVERAGE)),
)  # fmt: skip
QUEUE_CHARTS = (
    _RATES,
    Chart(
        "depth", "Messages held, at most", "count",
        (_line("Waiting", "ApproximateNumberOfMessagesVisible", Statistic.MAXIMUM),
         _line("In flight", "ApproximateNumberOfMessagesNotVisible", Statistic.MAXIMUM),
         _line("Delayed", "ApproximateNumberOfMessagesDelayed", Statistic.MAXIMUM)),
    ),
    Chart(
        "age", "Age of the oldest waiting message", "seconds",
        (_line("Oldest", "ApproximateAgeOfOldestMessage", Statistic.MAXIMUM),),
    ),
    Chart(
        "requests", "Requests a minute", "count",
        (_line("Requests", "NumberOfRequests", Statistic.AVERAGE),
         _line("Empty receives", "NumberOfEmptyReceives", Statistic.AVERAGE)),
    ),
    Chart(
        "refused", "Errors and throttled requests", "count",
        (_line("Errors", "NumberOfErrors", Statistic.SUM),
         _line("Throttled", "NumberOfThrottledRequests", Statistic.SUM)),
    ),
    Chart(
        "dead", "Dead letters", "count",
        (_line("Dead-lettered", "NumberOfMessagesDeadLettered", Statistic.SUM),),
    ),
    Chart("size", "Size of sent messages", "bytes", (_line("Mean", "SentMessageSize", Statistic.AVERAGE),)),
)  # fmt: skip
ACCOUNT_CHARTS = (_RATES,)
# Figures above the charts: what happened in the whole span.
TOTALS = (
    ("Sent", "NumberOfMessagesSent"),
    ("Received", "NumberOfMessagesReceived"),
    ("Deleted", "NumberOfMessagesDeleted"),
    ("Empty receives", "NumberOfEmptyReceives"),
    ("Dead-lettered", "NumberOfMessagesDeadLettered"),
)


def span_named(key: str) -> ChartSpan:
    return next((span for span in SPANS if span.key == key), SPANS[0])


class ChartReader:
    """Of one queue, or of the account as a whole."""

    def __init__(self, account_id: str, queue_uuid: UUID, created_at: datetime, span: ChartSpan, now: datetime) -> None:
        self._span, self._queue = span, (queue_uuid, created_at)
        end_s = int(now.timestamp())
        first_s = end_s - int(span.length.total_seconds())
        self._times = range(first_s - first_s % span.period_s + span.period_s, end_s, span.period_s)
        start = datetime.fromtimestamp(self._times[0], now.tzinfo)
        self._reader = SeriesReader(account_id, MetricSpan(start, now), now)

    def read(self, charts: Sequence[Chart]) -> ReadCharts:
        """With the totals of the span. All metrics are read together."""
        metrics = [line.metric for chart in charts for line in chart.lines]
        totals = [METRICS[name] for _, name in TOTALS]
        self._reader.read_together(self._queue[0], metrics + totals, self._span.period_s)
        drawn = [self._drawn(chart) for chart in charts]
        sums = [self._reader.total(self._query(metric, Statistic.SUM)) for metric in totals]
        return ReadCharts(drawn, [(label, amount) for (label, _), amount in zip(TOTALS, sums, strict=True)])

    def _drawn(self, chart: Chart) -> DrawnChart:
        columns: list[Sequence[Value]] = [self._times]
        for line in chart.lines:
            found = self._points(line.metric, line.statistic)
            columns.append([_short(found.get(time)) for time in self._times])
        is_flat = not any(value for column in columns[1:] for value in column)
        return DrawnChart(chart, json.dumps([list(column) for column in columns], separators=(",", ":")), is_flat)

    def _points(self, metric: Metric, statistic: Statistic) -> Mapping[int, float]:
        return {point.at_s: point.value for point in self._reader.points(self._query(metric, statistic))}

    def _query(self, metric: Metric, statistic: Statistic) -> MetricQuery:
        return MetricQuery(*self._queue, metric, statistic, self._span.period_s)


def _short(value: Value) -> Value:
    """What an eye can tell apart: three places."""
    return None if value is None else int(value) if value == int(value) else round(value, 3)
