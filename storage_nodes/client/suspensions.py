"""Whether the machine was suspended while a call was under way.

The clock of the event loop stands still in a suspension (CLOCK_MONOTONIC), so a call is not over when its machine wakes
up a day later. The nodes have forgotten it by then, and would append an attempt that repeats it once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from time import clock_gettime

# For so long the machine may be suspended without harm: partitions remember calls for longer than they are tried.
SUSPENDED_S_MAX = 2.0
_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def suspended_s() -> float:
    """For how long this machine was suspended since it was started."""
    return clock_gettime(_BOOTTIME) - clock_gettime(time.CLOCK_MONOTONIC)


class Suspensions:
    """As far as anybody looked. A call that begins between a suspension and the next look counts as one from before."""

    __slots__ = ("_known_s", "_suspended_s", "_woken_s")

    def __init__(self, suspended_s: Callable[[], float] = suspended_s) -> None:
        self._suspended_s = suspended_s
        self._known_s = suspended_s()
        self._woken_s = -inf

    def look(self, now_s: float) -> None:
        """To be called now and then, on the clock of the loop."""
        suspended_s = self._suspended_s()
        if suspended_s - self._known_s > SUSPENDED_S_MAX:
            self._woken_s = now_s
        self._known_s = suspended_s

    def any_since(self, begun_s: float, now_s: float) -> bool:
        self.look(now_s)
        return begun_s <= self._woken_s
