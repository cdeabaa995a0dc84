"""Which levels of a budget are reached. Pure."""

from __future__ import annotations

from collections.abc import Iterable

STOP_PERCENT = 100


def levels_reached(limit_minor: int, spent_nanos: int, nanos_per_minor: int, percents: Iterable[int]) -> list[int]:
    """Ascending. A limit of 0 is reached by the first expense."""
    if spent_nanos <= 0:
        return []
    spent = spent_nanos * 100
    return sorted(percent for percent in set(percents) if spent >= limit_minor * nanos_per_minor * percent)
