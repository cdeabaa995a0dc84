"""Reads the series, always as one account: which rows answer a question, and what they come to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from api.series import limits
from api.series.metrics import Metric, MetricKind, Statistic
from api.series.models import SeriesClock, SeriesCoverage
from api.series.points import Held, MetricPoint, SeriesStep, StepRow, points_of


class SeriesError(Exception):
    """A question that the series cannot answer: the text says what to ask instead."""


class MetricQuery(NamedTuple):
    queue_uuid: UUID
    # No point lies before that.
    created_at: datetime
    metric: Metric
    statistic: Statistic
    period_s: int


class MetricSpan(NamedTuple):
    start: datetime
    end: datetime


class _Base(NamedTuple):
    """The steps behind an answer: buckets of `minutes` up to `split`, minutes from there on."""

    start: datetime
    minutes: int
    split: datetime
    steps: list[SeriesStep]


class _Table(NamedTuple):
    """`level`, `age`: mean, least and greatest of a level and of the age of the oldest message. `of_levels`: the
    condition on rows where levels alone are read."""

    name: str
    level: tuple[str, str, str]
    age: tuple[str, str, str]
    also: str
    of_levels: str


class _Series(NamedTuple):
    """Rows with the columns of each of the metrics, behind the time of the row."""

    metrics: tuple[Metric, ...]
    rows: list[tuple[Any, ...]]


_FLOWING = (MetricKind.FLOW, MetricKind.SIZE)
# At the end of the minute.
_AGE_OF_MINUTE = (
    "(CASE WHEN oldest_sent_ms = 0 THEN 0"
    " ELSE greatest(0, extract(epoch FROM at) + 60 - oldest_sent_ms / 1000.0) END::float8)"
)
_MINUTES = _Table("series_minute", ("{}", "{}", "{}"), (_AGE_OF_MINUTE,) * 3, "", "AND waiting IS NOT NULL")
_ROLLUPS = _Table(
    "series_rollup", ("{}_mean", "{}_low", "{}_high"), ("age_s_mean", "age_s_low", "age_s_high"),
    "AND minutes = %(minutes)s", "",
)  # fmt: skip
_SELECT = (
    "SELECT extract(epoch FROM at)::bigint, {columns} FROM {table} WHERE account_id = %(account)s"
    " AND queue_uuid = %(queue)s AND at >= %(start)s AND at < %(end)s {also} {of_levels}"
)


class SeriesReader:
    """For the questions of one call: the steps are read once."""

    def __init__(self, account_id: str, span: MetricSpan, now: datetime) -> None:
        self._account_id = account_id
        self._span = MetricSpan(span.start, min(span.end, now))
        self._now = now
        self._bases: dict[int, _Base] = {}
        self._series: dict[tuple[UUID, int], _Series] = {}
        self._steps_left = limits.METRIC_STEPS_MAX
        self._points_left = limits.METRIC_POINTS_MAX

    def read_together(self, queue_uuid: UUID, metrics: Iterable[Metric], period_s: int) -> None:
        """The rows of several metrics in one go: answers about them read nothing more. Raises SeriesError."""
        if self._span.end > self._span.start:
            base = self._base(period_s)
            self._series[queue_uuid, period_s] = self._read_series(queue_uuid, tuple(dict.fromkeys(metrics)), base)

    def points(self, query: MetricQuery) -> list[MetricPoint]:
        """Raises SeriesError."""
        if self._span.end <= self._span.start:
            return []
        base = self._take_steps(query.period_s)
        rows, held = self._rows(query, base)
        found = points_of(query.metric, query.statistic, query.period_s, base.steps, rows, held)
        created_s = query.created_at.timestamp()
        found = [point for point in found if point.at_s + query.period_s > created_s]
        self._points_left -= len(found)
        if self._points_left < 0:
            raise SeriesError(f"One call answers with at most {limits.METRIC_POINTS_MAX} points: take longer periods.")
        return found

    def total(self, query: MetricQuery) -> int:
        """Of a flow, in the whole span: the sum of its points, whatever the statistic. Raises SeriesError."""
        if self._span.end <= self._span.start:
            return 0
        base = self._take_steps(query.period_s)
        rows, _ = self._rows(query, base)
        return sum(rows[step.at_s].amount for step in base.steps if step.at_s in rows)

    def _take_steps(self, period_s: int) -> _Base:
        base = self._base(period_s)
        self._steps_left -= len(base.steps)
        if self._steps_left < 0:
            raise SeriesError("This is too much for one call: ask for fewer queries, a shorter time or longer periods.")
        return base

    def _base(self, period_s: int) -> _Base:
        minutes = _stored_minutes(period_s)
        kept_since = self._now - _kept(minutes)
        if self._span.start < kept_since:
            raise SeriesError(_older(minutes))
        if period_s not in self._bases:
            self._bases[period_s] = self._read_steps(minutes, _floor(self._span.start, period_s))
        return self._bases[period_s]

    def _read_steps(self, minutes: int, start: datetime) -> _Base:
        split = start
        steps: list[SeriesStep] = []
        if minutes > 1:
            rolled = _coverage(minutes, start, self._span.end)
            steps = [SeriesStep(_seconds(at), minutes * 60, covered * 60) for at, covered in rolled]
            split = rolled[-1][0] + timedelta(minutes=minutes) if rolled else start
        first = _floor(max(split, self._now - _kept(1)), 60)
        covered = {_seconds(minute) for minute, _ in _coverage(1, first, self._span.end)}
        minutes_s = range(_seconds(first), math.ceil(self._span.end.timestamp()), 60)
        steps += [SeriesStep(at_s, 60, 60 if at_s in covered else 0) for at_s in minutes_s]
        return _Base(start, minutes, split, steps)

    def _rows(self, query: MetricQuery, base: _Base) -> tuple[Mapping[int, StepRow], Held | None]:
        series = self._series.get((query.queue_uuid, query.period_s))
        if series is None or query.metric not in series.metrics:
            series = self._read_series(query.queue_uuid, (query.metric,), base)
        rows = _rows_of(query.metric, series)
        return rows, _held_before(rows, _seconds(base.start))

    def _read_series(self, queue_uuid: UUID, metrics: tuple[Metric, ...], base: _Base) -> _Series:
        """One statement a table."""
        whose: dict[str, Any] = {"account": self._account_id, "queue": queue_uuid, "minutes": base.minutes}
        # What a queue held before the start holds on.
        has_levels = any(metric.kind not in _FLOWING for metric in metrics)
        since = base.start - timedelta(seconds=limits.LEVEL_HELD_S if has_levels else 0)
        rows: list[tuple[Any, ...]] = []
        with connection.cursor() as cursor:
            if base.minutes > 1:
                cursor.execute(_sql(metrics, _ROLLUPS), {**whose, "start": since, "end": base.split})
                rows, since = cursor.fetchall(), base.split
            cursor.execute(_sql(metrics, _MINUTES), {**whose, "start": since, "end": self._span.end})
            return _Series(metrics, rows + cursor.fetchall())


def collected_up_to() -> datetime | None:
    """All that happened before is in the series."""
    return SeriesClock.objects.filter(pk=1).values_list("complete_at", flat=True).first()


def check_query(metric: Metric, statistic: Statistic, period_s: int) -> None:
    """Raises SeriesError."""
    if statistic not in metric.statistics:
        raise SeriesError(f"{metric.name} has the statistics {', '.join(metric.statistics)}.")
    if not limits.METRIC_PERIOD_S_MIN <= period_s <= limits.METRIC_PERIOD_S_MAX or period_s % 60:
        raise SeriesError(f"A period is a multiple of 60 s, up to {limits.METRIC_PERIOD_S_MAX}.")


def _stored_minutes(period_s: int) -> int:
    """The longest steps that make up the period."""
    return next(minutes for minutes in (60, 5, 1) if period_s % (minutes * 60) == 0)


def _kept(minutes: int) -> timedelta:
    return {
        1: timedelta(hours=limits.MINUTES_KEPT_HOURS),
        5: timedelta(days=limits.FIVE_MINUTES_KEPT_DAYS),
        60: timedelta(days=limits.HOURS_KEPT_DAYS),
    }[minutes]


def _older(minutes: int) -> str:
    if minutes == 1:
        kept = f"{limits.MINUTES_KEPT_HOURS} hours"
        return f"Minutes are kept for {kept}: take a period that is a multiple of 300 s, or of 3600 s."
    if minutes == 5:
        return f"Points of 5 minutes are kept for {limits.FIVE_MINUTES_KEPT_DAYS} days: take a multiple of 3600 s."
    return f"Series are kept for {limits.HOURS_KEPT_DAYS} days."


def _coverage(minutes: int, start: datetime, end: datetime) -> list[tuple[datetime, int]]:
    rows = SeriesCoverage.objects.filter(minutes=minutes, at__gte=start, at__lt=end).order_by("at")
    return list(rows.values_list("at", "covered"))


def _columns(metric: Metric, table: _Table) -> tuple[str, ...]:
    """What a `StepRow` is made of."""
    if metric.kind is MetricKind.SIZE:
        return metric.column, "messages_sent"
    if metric.kind is MetricKind.FLOW:
        return (metric.column,)
    level = table.age if metric.kind is MetricKind.AGE else table.level
    return *(one.format(metric.column) for one in level), metric.column


def _sql(metrics: Sequence[Metric], table: _Table) -> str:
    columns = ", ".join(column for metric in metrics for column in _columns(metric, table))
    has_flows = any(metric.kind in _FLOWING for metric in metrics)
    of_levels = "" if has_flows else table.of_levels
    return _SELECT.format(columns=columns, table=table.name, also=table.also, of_levels=of_levels)


def _rows_of(metric: Metric, series: _Series) -> dict[int, StepRow]:
    before = series.metrics[: series.metrics.index(metric)]
    first = 1 + sum(len(_columns(one, _MINUTES)) for one in before)
    end = first + len(_columns(metric, _MINUTES))
    if metric.kind in _FLOWING:
        return {row[0]: StepRow(*row[first:end]) for row in series.rows}
    return {row[0]: StepRow(0, 0, *row[first:end]) for row in series.rows}


def _held_before(rows: dict[int, StepRow], start_s: int) -> Held | None:
    before = [(at_s, row.last) for at_s, row in rows.items() if at_s < start_s and row.last is not None]
    if not before:
        return None
    at_s, last = max(before)
    return Held(at_s, last or 0)


def _floor(at: datetime, seconds: int) -> datetime:
    whole = int(at.timestamp())
    return datetime.fromtimestamp(whole - whole % seconds, UTC)


def _seconds(at: datetime) -> int:
    return int(at.timestamp())
