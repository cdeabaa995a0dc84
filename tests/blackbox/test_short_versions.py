"""Stock SQS calls at two front ends while nodes are upgraded and rolled back; of the trial `wire` this harm alone."""

from __future__ import annotations

import asyncio

import pytest

from tests.blackbox.stage import Stage, second_front_end
from tests.blackbox.trials import Ask, Result
from tests.blackbox.wire import harm_and_judge
from tests.blackbox.wire_versions import NAME

SECONDS = 6.0


@pytest.mark.slow
def test_nothing_is_lost_while_nodes_of_two_releases_run_side_by_side(stage: Stage) -> None:
    result = Result("wire", 1)
    before = stage.installation.status()["feature_level"]

    async def run() -> None:
        async with second_front_end(stage) as second:
            # A seed of its own: the queues of this stage remember the deduplication ids of the other tests.
            await harm_and_judge(stage, second, Ask(SECONDS, 3), result, only=(NAME,))

    asyncio.run(run())
    assert not any(result.violations.values()) and not result.failure, result
    assert result.counts["faults"] >= 1 and result.counts["sends acknowledged"] > 100
    assert result.counts["sends unknown"] == 0, "an orderly stop costs no acknowledged send"
    assert result.counts["sends refused"] == 0, "nor is one refused"
    assert stage.installation.status()["feature_level"] > before
