"""From the rows of a series to the values of a metric: one for each period. Pure.

The base of a series is a line of steps: minutes, or buckets that are rolled up. A step that is covered and has no row
is one in which nothing happened, and in which the queue holds what it held before. A step that is not covered and has
no row says nothing; a period of such steps alone has no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from api.series.limits import LEVEL_HELD_S
from api.series.metrics import Metric, MetricKind, Statistic


class SeriesStep(NamedTuple):
    """`at_s`: its beginning, seconds since the epoch. `covered_s`: of how much of it the figures are known."""

    at_s: int
    length_s: int
    covered_s: int


class StepRow(NamedTuple):
    """Of a flow, or of the bytes of a size: `amount`; `messages` were sent. Of a level: mean, least, greatest, and
    `last`, which holds on; of an age, `last` is when the oldest message was sent, in ms, 0: none waits. A row without a
    level has None there."""

    amount: int = 0
    messages: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    last: int | None = None


class Held(NamedTuple):
    """What a queue held before the first step, and since when."""

    at_s: int
    last: int


class MetricPoint(NamedTuple):
    at_s: int
    value: float


class _Share(NamedTuple):
    """What a step adds to its period."""

    weight_s: float
    amount: float
    messages: int
    mean: float
    low: float
    high: float


def points_of(
    metric: Metric,
    statistic: Statistic,
    period_s: int,
    steps: Sequence[SeriesStep],
    rows: Mapping[int, StepRow],
    held: Held | None = None,
) -> list[MetricPoint]:
    """`rows` by the beginnings of their steps. The length of each step divides the period."""
    shares = _levels if metric.kind in (MetricKind.LEVEL, MetricKind.AGE) else _flows
    found: list[MetricPoint] = []
    begins_s, gathered = 0, list[_Share]()
    for at_s, share in shares(metric, steps, rows, held):
        if at_s - at_s % period_s != begins_s:
            found.extend(_point(metric, statistic, begins_s, gathered))
            begins_s, gathered = at_s - at_s % period_s, []
        gathered.append(share)
    found.extend(_point(metric, statistic, begins_s, gathered))
    return found


def _flows(
    metric: Metric, steps: Sequence[SeriesStep], rows: Mapping[int, StepRow], held: Held | None
) -> Iterator[tuple[int, _Share]]:
    for step in steps:
        row = rows.get(step.at_s)
        if row is not None or step.covered_s:
            row = row or StepRow()
            yield step.at_s, _Share(step.covered_s or step.length_s, row.amount, row.messages, 0, 0, 0)


def _levels(
    metric: Metric, steps: Sequence[SeriesStep], rows: Mapping[int, StepRow], held: Held | None
) -> Iterator[tuple[int, _Share]]:
    at_s, last = held or Held(0, 0)
    for step in steps:
        row, end_s = rows.get(step.at_s), step.at_s + step.length_s
        if row is not None and row.last is not None:
            at_s, last = step.at_s, row.last
            assert row.mean is not None and row.low is not None and row.high is not None
            yield step.at_s, _Share(step.length_s, 0, 0, row.mean, row.low, row.high)
        elif step.covered_s:
            if step.at_s - at_s > LEVEL_HELD_S:
                last = 0  # what holds something is written more often
            yield step.at_s, _held_share(metric, step, end_s, last)


def _held_share(metric: Metric, step: SeriesStep, end_s: int, last: int) -> _Share:
    if metric.kind is MetricKind.LEVEL or not last:
        return _Share(step.length_s, 0, 0, last, last, last)
    low, high = max(0.0, step.at_s - last / 1000), max(0.0, end_s - last / 1000)
    return _Share(step.length_s, 0, 0, (low + high) / 2, low, high)


def _point(metric: Metric, statistic: Statistic, at_s: int, shares: Sequence[_Share]) -> Iterator[MetricPoint]:
    if not shares:
        return
    weight_s = sum(share.weight_s for share in shares)
    value: float | None
    if statistic is Statistic.SUM:
        value = sum(share.amount for share in shares)
    elif statistic is Statistic.MINIMUM:
        value = min(share.low for share in shares)
    elif statistic is Statistic.MAXIMUM:
        value = max(share.high for share in shares)
    elif metric.kind is MetricKind.SIZE:
        messages = sum(share.messages for share in shares)
        value = sum(share.amount for share in shares) / messages if messages else None
    elif metric.kind is MetricKind.FLOW:
        value = sum(share.amount for share in shares) * 60 / weight_s
    else:
        value = sum(share.mean * share.weight_s for share in shares) / weight_s
    if value is not None:
        yield MetricPoint(at_s, value)
