"""Reads the series, always as one account: which rows answer a question, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping
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


class SeriesReader:
    """For the questions of one call: the steps are read once."""

    def __init__(self, account_id: str, span: MetricSpan, now: datetime) -> None:
        self._account_id = account_id
        self._span = MetricSpan(span.start, min(span.end, now))
        self._now = now
        self._bases: dict[int, _Base] = {}
        self._steps_left = limits.METRIC_STEPS_MAX
        self._points_left = limits.METRIC_POINTS_MAX

    def points(self, query: MetricQuery) -> list[MetricPoint]:
        """Raises SeriesError."""
        if self._span.end <= self._span.start:
            return []
        base = self._base(query.period_s)
        self._steps_left -= len(base.steps)
        if self._steps_left < 0:
            raise SeriesError("This is too much for one call: ask for fewer queries, a shorter time or longer periods.")
        rows, held = self._rows(query, base)
        found = points_of(query.metric, query.statistic, query.period_s, base.steps, rows, held)
        created_s = query.created_at.timestamp()
        found = [point for point in found if point.at_s + query.period_s > created_s]
        self._points_left -= len(found)
        if self._points_left < 0:
            raise SeriesError(f"One call answers with at most {limits.METRIC_POINTS_MAX} points: take longer periods.")
        return found

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
        at = _floor(max(split, self._now - _kept(1)), 60)
        covered = {minute for minute, _ in _coverage(1, at, self._span.end)}
        while at < self._span.end:
            steps.append(SeriesStep(_seconds(at), 60, 60 if at in covered else 0))
            at += timedelta(minutes=1)
        return _Base(start, minutes, split, steps)

    def _rows(self, query: MetricQuery, base: _Base) -> tuple[Mapping[int, StepRow], Held | None]:
        rows: dict[int, StepRow] = {}
        whose: dict[str, Any] = {"account": self._account_id, "queue": query.queue_uuid}
        held_since = base.start - timedelta(seconds=limits.LEVEL_HELD_S)
        with connection.cursor() as cursor:
            if base.minutes > 1:
                given: dict[str, Any] = {**whose, "minutes": base.minutes, "start": held_since, "end": base.split}
                cursor.execute(_rollup_sql(query.metric), given)
                rows = {_seconds(at): StepRow(*row) for at, *row in cursor.fetchall()}
            since = base.split if base.minutes > 1 else held_since
            cursor.execute(_minute_sql(query.metric), {**whose, "start": since, "end": self._span.end})
            for at, *row in cursor.fetchall():
                rows[_seconds(at)] = StepRow(*row)
        return rows, _held_before(rows, _seconds(base.start))


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


def _minute_sql(metric: Metric) -> str:
    if metric.kind in (MetricKind.FLOW, MetricKind.SIZE):
        return _SELECT.format(columns=f"{metric.column}, messages_sent", table="series_minute", also="")
    level = metric.column
    if metric.kind is MetricKind.AGE:
        # At the end of the minute.
        level = (
            "CASE WHEN oldest_sent_ms = 0 THEN 0"
            " ELSE greatest(0, extract(epoch FROM at) + 60 - oldest_sent_ms / 1000.0) END::float8"
        )
    columns = f"0, 0, {level}, {level}, {level}, {metric.column}"
    return _SELECT.format(columns=columns, table="series_minute", also="AND waiting IS NOT NULL")


def _rollup_sql(metric: Metric) -> str:
    if metric.kind in (MetricKind.FLOW, MetricKind.SIZE):
        columns = f"{metric.column}, messages_sent"
    else:
        name = "age_s" if metric.kind is MetricKind.AGE else metric.column
        columns = f"0, 0, {name}_mean, {name}_low, {name}_high, {metric.column}"
    return _SELECT.format(columns=columns, table="series_rollup", also="AND minutes = %(minutes)s")


# Rows from before the start: what the queue held then holds on.
_SELECT = (
    "SELECT at, {columns} FROM {table} WHERE account_id = %(account)s AND queue_uuid = %(queue)s"
    " AND at >= %(start)s AND at < %(end)s {also} ORDER BY at"
)


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
