"""One account takes all that it can get of every shared place; the short version of the trial `one-account`."""

from __future__ import annotations

import asyncio

import pytest

from tests.blackbox.crowding import Crowd, Neighbour, judge_neighbour, one_account
from tests.blackbox.raw_http import Endpoint
from tests.blackbox.stage import Stage
from tests.blackbox.trials import Result

SHORT = Crowd(searches=8, readers=16, polls=150, moves=5, comparisons=14, messages=500)
# The suite shares its machine; a place that is taken shows as refusals, or as waits of 15 s and more.
WITHIN_S = 5.0


def test_neighbour_that_waits_or_fails_or_never_asks_is_flagged() -> None:
    neighbour = Neighbour(Endpoint(1, ""), "q")
    neighbour.seconds = {"peek": [0.1] * 99 + [3.0, 3.0], "poll": [0.1], "CreateQueue": []}
    neighbour.failed = ["poll: 429"]
    assert judge_neighbour(neighbour, 1.0) == {
        "neighbour failed": ["poll: 429"],
        "neighbour never asked": ["CreateQueue"],
        "neighbour slow": ["peek p99 3.00 s"],
    }


@pytest.mark.slow
def test_one_account_that_takes_every_shared_place_leaves_a_neighbour_its_own(stage: Stage) -> None:
    result = Result("one-account", 0)
    asyncio.run(one_account(stage, SHORT, 8.0, WITHIN_S, result))
    assert not any(result.violations.values()), result
    assert result.counts["calls CreateQueue"] >= 3 and result.counts["reader"] >= SHORT.readers
