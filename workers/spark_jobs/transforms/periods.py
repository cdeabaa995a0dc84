"""Hours, days and months, in UTC: the beginning of the one that a time lies in."""

from __future__ import annotations

import enum

from pyspark.sql import Column
from pyspark.sql import functions as F

from workers.spark_jobs.limits import DAY_MS, HOUR_MS


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
