"""Spans of whole hours, in ms since the epoch. Imports nothing of Spark: workers use them where Spark is not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from workers.spark_jobs.limits import HOUR_MS


class HourSpan(NamedTuple):
    """From `from_ms` on, before `to_ms`; both at the beginning of an hour."""

    from_ms: int
    to_ms: int

    def checked(self) -> HourSpan:
        """Raises ValueError."""
        if self.from_ms < 0 or self.to_ms < self.from_ms or self.from_ms % HOUR_MS or self.to_ms % HOUR_MS:
            raise ValueError(f"{self.from_ms}..{self.to_ms} is no span of whole hours")
        return self


def month_interval(text: str) -> HourSpan:
    """`2026-11` to its span. Raises ValueError."""
    begin = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return HourSpan(int(begin.timestamp()) * 1000, int(end.timestamp()) * 1000)
