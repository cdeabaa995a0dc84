"""How long refusals take on a whole installation; the short version of the trial `refusal-times`."""

from __future__ import annotations

import asyncio

import pytest

from frontend.authn.tokens import mint_key, parse_bearer_token
from tests.blackbox import refusals
from tests.blackbox.refusals import ROUNDS, Measured, judge_pair, refusal_times, with_wrong_secret
from tests.blackbox.stage import Stage
from tests.blackbox.trials import Result

# Each takes 50 ms at least: a refusal waits for its step.
SAMPLES = 40
REFUSED = ({(401, "invalid-client-token-id")}, {(401, "invalid-client-token-id")})


def measured(t: float, answers: tuple[set[tuple[int, str]], set[tuple[int, str]]] = REFUSED) -> Measured:
    return Measured(t, (1.0, 1.0), 100, answers)


def flagged(*rounds: Measured) -> list[str]:
    return [name for name, items in judge_pair("x", rounds).items() if items]


def test_pair_that_is_told_apart_in_every_round_is_flagged() -> None:
    assert flagged(*(measured(-5.0) for _ in range(ROUNDS))) == ["x: takes another time"]


@pytest.mark.parametrize("ts", [[4.0], [9.0, 4.0], [9.0, 9.0, -9.0]])
def test_pair_that_a_round_does_not_tell_apart_is_good(ts: list[float]) -> None:
    assert flagged(*(measured(t) for t in ts)) == []


def test_other_words_and_answers_that_are_no_refusal_are_flagged() -> None:
    assert flagged(measured(0.0, (REFUSED[0], {(403, "access-denied")}))) == ["x: another answer"]
    assert flagged(measured(0.0, ({(200, "")}, {(200, "")}))) == ["x: not refused"]


@pytest.mark.parametrize("at", [0, -1])
def test_token_with_a_wrong_secret_has_the_checksum_that_fits(at: int) -> None:
    minted = mint_key()
    wrong = with_wrong_secret(minted.bearer_token, at)
    assert wrong != minted.bearer_token and parse_bearer_token(wrong) == minted.access_key_id


@pytest.mark.slow
def test_refusals_are_not_told_apart_over_either_hop(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """S10, with fewer samples than the trial takes."""
    monkeypatch.setattr(refusals, "SAMPLES_MIN", SAMPLES)
    result = Result("refusal-times", 1)
    asyncio.run(refusal_times(stage, 1.5, result))
    assert not {name: items for name, items in result.violations.items() if items}, result.counts
    assert len(result.counts) == 2 * 9, result.counts
