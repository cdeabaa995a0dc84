"""When a refusal is told, so that how long it took to find out tells nothing: after whole steps of REFUSAL_STEP_S."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from frontend.limits import REFUSAL_STEP_S

# What timers of the loop are rounded to.
TIMER_STEP_S = 0.001


def refusal_time_s(began_s: float, now_s: float) -> float:
    """After so many whole steps as the work took, one at least."""
    steps = int((now_s - began_s) / REFUSAL_STEP_S) + 1
    return began_s + steps * REFUSAL_STEP_S


async def wait_to_refuse(began_s: float, steady_s: Callable[[], float]) -> None:
    """Until a refusal of what began then may be told.

    In two parts, the first of a random length: timers of the loop ring whole milliseconds after they were set, so a
    refusal that waited from the beginning would end at another part of a millisecond than one that was looked up
    first. They ring at whole milliseconds of the loop's clock, too. Up to one more is drawn at random: on average, the
    end does not depend on the part of a millisecond at which the request came.
    """
    now_s = steady_s()
    end_s = refusal_time_s(began_s, now_s)
    await asyncio.sleep(random.uniform(0, (end_s - now_s) / 2))
    await asyncio.sleep(end_s - steady_s() + random.uniform(0, TIMER_STEP_S))
