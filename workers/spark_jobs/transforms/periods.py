"""Hours, days and months, in UTC: the beginning of the one that a time lies in."""

from __future__ import annotations

import enum
from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from workers.spark_jobs.limits import DAY_MS, HOUR_MS
from workers.spark_jobs.spans import HourSpan


class Period(enum.Enum):
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


def begins(time_ms: Column, period: Period) -> Column:
    """The beginning of the period that `time_ms` lies in. The session's time zone is UTC."""
    if period is Period.HOUR:
        return time_ms - time_ms % HOUR_MS
    if period is Period.DAY:
        return time_ms - time_ms % DAY_MS
    return F.unix_millis(F.date_trunc("month", F.timestamp_millis(time_ms)))


def begins_of(from_ms: Column, to_ms: Column, period: Period) -> Column:
    """The beginnings of all periods that [from_ms, to_ms) touches, as an array; to_ms must be later."""
    first, last = begins(from_ms, period), begins(to_ms - 1, period)
    if period is Period.MONTH:
        months = F.sequence(F.timestamp_millis(first), F.timestamp_millis(last), F.expr("interval 1 month"))
        return F.transform(months, F.unix_millis)
    return F.sequence(first, last, F.lit(HOUR_MS if period is Period.HOUR else DAY_MS).cast("long"))


def ends(begin_ms: Column, period: Period) -> Column:
    """The end of the period that begins at `begin_ms`."""
    if period is Period.MONTH:
        return F.unix_millis(F.timestamp_millis(begin_ms) + F.expr("interval 1 month"))
    return begin_ms + (HOUR_MS if period is Period.HOUR else DAY_MS)


def only_period(span: HourSpan, period: Period) -> int | None:
    """The beginning of the period that all of a span lies in; None where it lies in several."""
    first, last = _begin_of(span.from_ms, period), _begin_of(span.to_ms - 1, period)
    return first if first == last else None


def _begin_of(time_ms: int, period: Period) -> int:
    if period is Period.MONTH:
        day = datetime.fromtimestamp(time_ms // 1000, UTC).replace(day=1)
        return int(day.timestamp()) * 1000 // DAY_MS * DAY_MS
    return time_ms - time_ms % (HOUR_MS if period is Period.HOUR else DAY_MS)
