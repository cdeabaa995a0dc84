"""How far the figures of a report with `--now` go: settled hours, and those that the live meter has read since."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from api.billing.models import MeterReading
from api.billing.pricing.periods import Interval

NEVER_READ = "The open windows were not read yet: no worker runs, or the storage nodes do not answer."
STALE = "The open windows were last read at `as_of`; what was counted since is missing."


class NowAnswer(NamedTuple):
    """`complete`: everything acknowledged before the question is in. Else `missing_from` to the end is not, and why."""

    complete: bool
    as_of: datetime | None
    missing_from: datetime | None
    reason: str


def answer_now(interval: Interval, settled: datetime | None, reading: MeterReading, asked: datetime) -> NowAnswer:
    """`asked`: when the question came. A period that is settled whole, or has not begun, is complete in any case."""
    begins = interval.start if settled is None else max(interval.start, settled)
    wanted = min(asked, interval.end)
    if begins >= wanted:
        return NowAnswer(True, reading.as_of, None, "")
    if reading.as_of is not None and reading.as_of >= wanted:
        return NowAnswer(True, reading.as_of, None, "")
    if reading.as_of is None:
        return NowAnswer(False, None, begins, reading.missing or NEVER_READ)
    return NowAnswer(False, reading.as_of, max(begins, reading.as_of), reading.missing or STALE)
