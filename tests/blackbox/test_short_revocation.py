"""A key that ends while its polls are parked and its websockets open; the short version of the trial `revoked-key`."""

from __future__ import annotations

import asyncio

import pytest

from tests.blackbox.revocation import Cut, Handout, Notes, judge_cut, revoked_key
from tests.blackbox.stage import Stage
from tests.blackbox.trials import Result

WITHIN_S = 2.0
WAYS = ["sqs 0", "quiet socket 1"]


def good() -> Notes:
    notes = Notes()
    notes.accepted = ["a", "b", "c"]
    notes.others = {"a", "b", "c"}
    notes.given = [Handout("sqs 0", "a", 99.0), Handout("quiet socket 1", "b", 101.9)]
    notes.parked = [("quiet socket 1", 90.0, 103.0)]
    notes.served = [Handout("new send 0", "", 100.5)]
    notes.ended = set(WAYS)
    return notes


def flagged(notes: Notes) -> list[str]:
    return [name for name, items in judge_cut(Cut("x", 100.0, WAYS, notes), WITHIN_S).items() if items]


def test_key_that_is_cut_off_in_time_is_good() -> None:
    assert flagged(good()) == []


def test_message_or_answer_after_the_bound_is_flagged() -> None:
    notes = good()
    notes.given.append(Handout("sqs 0", "c", 102.1))
    assert flagged(notes) == ["x: given too late"]
    notes = good()
    notes.served.append(Handout("new send 1", "", 102.1))
    assert flagged(notes) == ["x: served too late"]


def test_message_that_the_others_never_get_is_flagged() -> None:
    notes = good()
    notes.others.discard("b")
    assert flagged(notes) == ["x: lost"]


def test_run_that_proves_nothing_is_flagged() -> None:
    notes = good()
    notes.given = [Handout("sqs 0", "a", 100.1)]
    assert flagged(notes) == ["x: never given anything before"]
    notes = good()
    notes.parked = [("quiet socket 1", 90.0, 99.0)]
    assert flagged(notes) == ["x: was not waiting"]
    notes = good()
    notes.ended = {"sqs 0"}
    assert flagged(notes) == ["x: not cut off"]


@pytest.mark.slow
def test_revoked_key_is_given_nothing_more_on_either_front_end(stage: Stage) -> None:
    result = Result("revoked-key", 0)
    asyncio.run(revoked_key(stage, 5.0, result, ("revoked",)))
    assert not any(result.violations.values()), result
    assert result.counts["revoked given to the key"] >= 3 and result.counts["revoked sent"] >= 20
