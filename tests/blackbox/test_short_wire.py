"""Stock SQS calls at two front ends while nodes and front ends are killed; the short version of the trial `wire`."""

from __future__ import annotations

import asyncio

import pytest

from tests.blackbox.stage import Stage, second_front_end
from tests.blackbox.trials import Ask, Result
from tests.blackbox.wire import LITTLE_MEMORY, harm_and_judge

SECONDS = 12.0
LITTLE_MEMORY_SECONDS = 8.0


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_out_of_order_over_the_wire(stage: Stage) -> None:
    result = Result("wire", 1)

    async def run() -> None:
        async with second_front_end(stage) as second:
            await harm_and_judge(stage, second, Ask(SECONDS, 1), result)

    asyncio.run(run())
    assert not any(result.violations.values()) and not result.failure, result
    assert result.counts["faults"] >= 1 and result.counts["sends acknowledged"] > 100
    assert result.counts["dead letters"] >= 1 and result.counts["deletes acknowledged"] > 100


@pytest.mark.slow
def test_node_with_little_memory_refuses_and_loses_nothing(stage: Stage) -> None:
    result = Result("wire", 2)

    async def run() -> None:
        async with second_front_end(stage) as second:
            await harm_and_judge(stage, second, Ask(LITTLE_MEMORY_SECONDS, 2), result, (LITTLE_MEMORY,))

    asyncio.run(run())
    assert not any(result.violations.values()) and not result.failure, result
    assert result.counts["refused for want of memory"] > 0, result
