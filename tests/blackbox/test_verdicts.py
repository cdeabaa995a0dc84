"""What trials over HTTP are judged by goes red on what each rule is for, and on nothing else."""

from __future__ import annotations

from tests.blackbox.trials import Result, row
from tests.blackbox.verdicts import (
    Given,
    Sent,
    judge_after,
    judge_drain,
    judge_leases,
    judge_memory,
    judge_others,
    judge_refusals,
    judge_sends,
)


def flagged(found: dict[str, list[str]]) -> list[str]:
    return [name for name, items in found.items() if items]


def test_burst_that_is_acknowledged_once_each_is_good() -> None:
    sent = [Sent("a:0", 200, 1.0), Sent("a:1", 200, 14.0)]
    assert flagged(judge_sends(sent, [Given("a:0", 1), Given("a:1", 1)], 15.0)) == []


def test_burst_is_flagged_for_what_went_wrong() -> None:
    good = Sent("a:0", 200, 1.0)
    one = Given("a:0", 1)
    assert flagged(judge_sends([good, Sent("a:1", 503, 12.0, "1")], [one], 15.0)) == ["not acknowledged"]
    assert flagged(judge_sends([good, Sent("a:1", 0, 60.0)], [one, Given("a:1", 1)], 15.0)) == ["not acknowledged"]
    assert flagged(judge_sends([Sent("a:0", 200, 15.1)], [one], 15.0)) == ["slow"]
    assert flagged(judge_sends([good, Sent("a:1", 200, 1.0)], [one], 15.0)) == ["lost"]
    assert flagged(judge_sends([good], [one, one], 15.0)) == ["stored twice"]
    assert flagged(judge_sends([good], [one, Given("b:0", 1)], 15.0)) == ["unexpected"]


def test_refused_send_that_is_stored_twice_is_flagged_too() -> None:
    found = judge_sends([Sent("a:0", 503, 12.0, "1")], [Given("a:0", 1), Given("a:0", 1)], 15.0)
    assert flagged(found) == ["not acknowledged", "stored twice"]


def test_message_that_is_leased_to_nobody_is_not_lost_but_its_lease_is() -> None:
    found = judge_sends([Sent("a:0", 200, 1.0), Sent("a:1", 200, 1.0)], [Given("a:0", 1)], 15.0)
    assert flagged(judge_drain(found, given_count=1, in_flight=1)) == ["lost"]
    assert flagged(judge_drain(found, given_count=1, in_flight=2)) == ["lease lost"]


def test_leases_that_nobody_holds_are_flagged() -> None:
    assert flagged(judge_leases([Given("a:0", 1)], 0, 0)) == []
    assert flagged(judge_leases([], 3, 0)) == ["lease lost"]
    assert flagged(judge_leases([], 0, 1)) == ["left behind"]
    assert flagged(judge_leases([Given("a:0", 2)], 0, 0)) == ["handed out again"]


def test_refusal_must_say_when_to_come_again() -> None:
    assert flagged(judge_refusals([Sent("a:0", 503, 0.1, "1"), Sent("a:1", 429, 0.1, "2")])) == []
    assert flagged(judge_refusals([Sent("a:0", 503, 0.1)])) == ["without Retry-After"]
    assert flagged(judge_refusals([Sent("a:0", 500, 0.1), Sent("a:1", 0, 9.0)])) == ["failed otherwise"]


def test_node_over_its_budget_is_named() -> None:
    assert judge_memory({1: [90.0, 101.0], 2: [99.0]}, 100.0) == {"over budget": ["node 1: 101 MiB"]}


def test_slower_after_than_before_is_flagged() -> None:
    assert flagged(judge_after([0.010] * 100, [0.019] * 100, 2.0)) == []
    assert flagged(judge_after([0.010] * 100, [0.010] * 50 + [0.5] * 50, 2.0)) == ["slower after"]
    assert flagged(judge_after([0.010] * 100, [], 2.0)) == ["slower after"]


def test_others_that_wait_are_flagged() -> None:
    assert flagged(judge_others([0.01], [0.4], 0.5)) == []
    assert flagged(judge_others([0.6], [0.5], 0.5)) == []
    assert flagged(judge_others([0.01], [1.4], 0.5)) == ["others affected"]
    assert flagged(judge_others([0.01], [], 0.5)) == ["others affected"]


def test_trial_without_counts_or_with_a_failure_has_not_passed() -> None:
    assert not Result("x", 1).passed
    assert Result("x", 1, counts={"sent": 1.0}, violations={"lost": []}).passed
    assert not Result("x", 1, counts={"sent": 1.0}, violations={"lost": ["a:0"]}).passed
    assert not Result("x", 1, counts={"sent": 1.0}, failure="not drained").passed
    assert "| FAILED |" in row(Result("x", 1, counts={"sent": 1.0}, violations={"lost": ["a:0"]}))
