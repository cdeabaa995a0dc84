"""One queue is sent an entry that no node can fold; the short version of the trial `poisoned-queue`."""

from __future__ import annotations

import asyncio

import pytest

from tests.blackbox.poisoned import SETTINGS, poisoned_queue
from tests.blackbox.stage import staged
from tests.blackbox.trials import Result

QUEUES = 30
# The suite shares its machine.
WITHIN_S = 5.0


@pytest.mark.slow
def test_poisoned_queue_stops_alone_and_status_says_so() -> None:
    result = Result("poisoned-queue", 0)
    with staged(SETTINGS) as stage:
        asyncio.run(poisoned_queue(stage, QUEUES, 4.0, WITHIN_S, result))
    assert not any(result.violations.values()), result
    assert result.counts["calls of others"] > QUEUES, result
