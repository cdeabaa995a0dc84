"""Leaky buckets, bulkheads, breakers and partition choice: pure parts, with the clock as a parameter."""

from __future__ import annotations

import pytest

from frontend.errors import RequestError
from frontend.limits.gcra import RateLimits, RateTree
from frontend.routing.bulkhead import Bulkhead


def test_burst_passes_then_the_rate_holds() -> None:
    tree = RateTree(RateLimits(10, 10, 10, 1))
    assert [tree.admit(("a", "k", "q"), 0.0) for _ in range(10)] == [0.0] * 10
    wait_s = tree.admit(("a", "k", "q"), 0.0)
    assert wait_s == pytest.approx(0.1)
    assert tree.admit(("a", "k", "q"), wait_s - 0.01) > 0
    assert tree.admit(("a", "k", "q"), wait_s + 0.001) == 0.0
    passed = sum(tree.admit(("a", "k", "q"), second / 100) == 0.0 for second in range(100, 1100))
    assert 99 <= passed <= 110, "ten seconds at ten a second, and what had drained before"


def test_refusal_on_one_level_costs_nothing_on_the_others() -> None:
    tree = RateTree(RateLimits(10, 10, 1, 1))
    assert tree.admit(("a", "k", "q1"), 0.0) == 0.0
    for _ in range(50):
        assert tree.admit(("a", "k", "q1"), 0.0) > 0
    assert [tree.admit(("a", "k", f"q{n}"), 0.0) for n in range(2, 11)] == [0.0] * 9
    assert tree.admit(("a", "k", "q99"), 0.0) > 0, "the account's ten are used up"
    assert tree.admit(("b", "l", "r"), 0.0) == 0.0, "neighbours are not touched"


def test_cost_counts_as_many_requests() -> None:
    tree = RateTree(RateLimits(10, 10, 10, 1))
    assert tree.admit(("a",), 0.0, cost=10) == 0.0
    assert tree.admit(("a",), 0.0) > 0


def test_buckets_are_bounded_and_the_busy_ones_are_kept() -> None:
    tree = RateTree(RateLimits(10, 10, 10, 1), buckets_max=100)
    for _ in range(10):
        tree.admit(("busy",), 0.0)
    for number in range(1_000):
        tree.admit((f"a{number}",), 0.0)
    assert len(tree) <= 100
    assert tree.admit(("busy",), 0.0) > 0


def test_full_bulkhead_refuses_and_recovers() -> None:
    bulkhead = Bulkhead("test", 2)
    with bulkhead, bulkhead:
        with pytest.raises(RequestError) as raised, bulkhead:
            pass
        assert raised.value.code == "ServiceUnavailable" and raised.value.retry_after_s
        assert bulkhead.calls == 2
    with pytest.raises(KeyError), bulkhead:
        raise KeyError
    assert bulkhead.calls == 0
