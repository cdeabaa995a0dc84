"""Months, and the spans in which one plan held. Pure; all times are UTC and whole hours.

A fee is prorated by the share of the month in which its plan held. Allowances (free quantities, ends of tiers) are
prorated by the share of the time in which the account was open in the month: opening or closing takes nothing of them,
a change of plan gives none twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)
_MONTH = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])", re.ASCII)


class BillingPeriod(NamedTuple):
    """A calendar month: from `start` to before `end`."""

    start: datetime
    end: datetime

    @property
    def name(self) -> str:
        return f"{self.start:%Y-%m}"


class Interval(NamedTuple):
    """From `start` to before `end`."""

    start: datetime
    end: datetime

    @property
    def hours(self) -> int:
        return max(0, int((self.end - self.start) / HOUR))


class PlanChange(NamedTuple):
    """From `since` on the terms of this version hold."""

    since: datetime
    version_id: int


class PlanSpan(NamedTuple):
    version_id: int
    interval: Interval


def period_of(at: datetime) -> BillingPeriod:
    start = at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return BillingPeriod(start, (start + timedelta(days=32)).replace(day=1))


def parse_period(name: str) -> BillingPeriod:
    """`2026-11`. Raises ValueError."""
    found = _MONTH.fullmatch(name)
    if found is None:
        raise ValueError("a period is a month, written like 2026-11")
    return period_of(datetime(int(found[1]), int(found[2]), 1, tzinfo=UTC))


def period_before(period: BillingPeriod) -> BillingPeriod:
    return period_of(period.start - HOUR)


def floor_hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def ceil_hour(at: datetime) -> datetime:
    floor = floor_hour(at)
    return floor if floor == at else floor + HOUR


def whole_days(interval: Interval) -> Interval | None:
    """The days of UTC that lie in it whole; None without one."""
    start = _floor_day(interval.start + DAY - _TICK)
    end = _floor_day(interval.end)
    return Interval(start, end) if start < end else None


def _floor_day(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def open_interval(period: BillingPeriod, opened: datetime, closed: datetime | None) -> Interval:
    """The part of the period in which the account was open: hours that it was open in count as whole ones."""
    start = max(period.start, floor_hour(opened))
    end = period.end if closed is None else min(period.end, ceil_hour(closed))
    return Interval(start, max(start, end))


def plan_spans(interval: Interval, changes: Sequence[PlanChange]) -> list[PlanSpan]:
    """The interval cut where the version changes. The first change must not be later than the interval."""
    spans: list[PlanSpan] = []
    ordered = sorted(changes)
    assert ordered and ordered[0].since <= interval.start
    for place, change in enumerate(ordered):
        following = ordered[place + 1].since if place + 1 < len(ordered) else interval.end
        part = Interval(max(change.since, interval.start), min(following, interval.end))
        if not part.hours:
            continue
        if spans and spans[-1].version_id == change.version_id:
            spans[-1] = PlanSpan(change.version_id, Interval(spans[-1].interval.start, part.end))
        else:
            spans.append(PlanSpan(change.version_id, part))
    return spans
