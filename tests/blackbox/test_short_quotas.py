"""Ten times a quota on two front ends, and keys that nobody made; short versions of `ten-times` and `invented-keys`."""

from __future__ import annotations

import asyncio

import pytest

from tests.blackbox.quotas import QUOTA_PER_S, Outcome, judge_shares, odd_statuses, rate_of, ten_times
from tests.blackbox.stage import Stage
from tests.blackbox.trials import Result

# The suite shares its machine: less is asked than the trial asks, and what a client loses is not judged.
SECONDS = 18.0


def flagged(*rates: float) -> list[str]:
    return [name for name, items in judge_shares(*rates).items() if items]


def test_quota_that_is_kept_within_a_tenth_is_good() -> None:
    assert flagged(QUOTA_PER_S * 1.09, 500, 25, 24.0) == []
    assert flagged(QUOTA_PER_S * 0.91, 450, 25, 25.0) == []


def test_quota_that_is_not_kept_and_neighbour_that_loses_are_flagged() -> None:
    assert flagged(QUOTA_PER_S * 1.2, 500, 25, 25) == ["not its quota"]
    assert flagged(QUOTA_PER_S * 0.8, 500, 25, 25) == ["not its quota"]
    assert flagged(QUOTA_PER_S, 300, 25, 25) == ["did not ask enough"]
    assert flagged(QUOTA_PER_S, 500, 25, 22) == ["neighbour lost"]
    assert flagged(QUOTA_PER_S, 500, 0, 0) == ["neighbour lost"]


def test_rate_is_of_what_was_asked_after_the_burst() -> None:
    outcomes = [Outcome(9.9, 200, 0.1), Outcome(10.0, 200, 0.1), Outcome(11.0, 429, 0.1), Outcome(11.5, 0, 15.0)]
    assert rate_of(outcomes, 12.0) == 0.5 and rate_of(outcomes, 12.0, 429) == 1.0
    assert odd_statuses(outcomes, (200, 429)) == ["1 times 0"]


@pytest.mark.slow
def test_account_at_ten_times_its_quota_gets_its_quota_on_two_front_ends(stage: Stage) -> None:
    result = Result("ten-times", 0)
    asyncio.run(ten_times(stage, SECONDS, result))
    found = {name: items for name, items in result.violations.items() if items}
    # A machine that is busy with other tests makes clients slow.
    found.pop("did not ask enough", None)
    assert not found, result
    assert result.counts["asked a second"] > 2 * QUOTA_PER_S, "or nothing was shown"
