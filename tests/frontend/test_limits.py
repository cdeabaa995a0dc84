"""Leaky buckets, bulkheads, breakers and partition choice: pure parts, with the clock as a parameter."""

from __future__ import annotations

import pytest

from frontend.errors import RequestError
from frontend.limits.gcra import LeakyBuckets
from frontend.routing.bulkhead import Bulkhead


def test_burst_passes_then_the_rate_holds() -> None:
    buckets = LeakyBuckets(10, 1)
    assert [buckets.admit("a", 0.0) for _ in range(10)] == [0.0] * 10
    wait_s = buckets.admit("a", 0.0)
    assert wait_s == pytest.approx(0.1)
    assert buckets.admit("a", wait_s - 0.01) > 0
    assert buckets.admit("a", wait_s + 0.001) == 0.0
    passed = sum(buckets.admit("a", second / 100) == 0.0 for second in range(100, 1100))
    assert 99 <= passed <= 110, "ten seconds at ten a second, and what had drained before"


def test_what_is_given_back_may_be_used_again() -> None:
    buckets = LeakyBuckets(1, 1)
    assert buckets.admit("a", 0.0) == 0.0 and buckets.admit("a", 0.0) > 0
    buckets.give_back("a")
    assert buckets.admit("a", 0.0) == 0.0 and buckets.admit("a", 0.0) > 0


def test_buckets_are_bounded_and_the_busy_ones_are_kept() -> None:
    buckets = LeakyBuckets(10, 1, buckets_max=100)
    for _ in range(10):
        buckets.admit("busy", 0.0)
    for number in range(1_000):
        buckets.admit(f"a{number}", 0.0)
    assert len(buckets) <= 100
    assert buckets.admit("busy", 0.0) > 0


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


def test_holder_of_a_bulkhead_leaves_as_much_free_as_it_holds() -> None:
    bulkhead = Bulkhead("test", 8)
    places = [bulkhead.place("greedy") for _ in range(4)]
    for place in places:
        place.__enter__()
    with pytest.raises(RequestError) as raised, bulkhead.place("greedy"):
        pass
    assert raised.value.code == "RequestThrottled" and raised.value.retry_after_s
    with bulkhead.place("neighbour"), bulkhead.place("neighbour"):
        assert bulkhead.calls == 6 and bulkhead.held_by("neighbour") == 2
    places.pop().__exit__(None, None, None)
    with bulkhead.place("greedy"):
        assert bulkhead.held_by("greedy") == 4
    for place in places:
        place.__exit__(None, None, None)
    assert bulkhead.calls == 0 and bulkhead.held_by("greedy") == 0


def test_quota_of_a_holder_is_met_before_its_share() -> None:
    bulkhead = Bulkhead("test", 8)
    with bulkhead.place("a", 1):
        with pytest.raises(RequestError), bulkhead.place("a", 1):
            pass
        with bulkhead.place("b", 1):
            pass


def test_last_place_of_a_bulkhead_goes_to_who_holds_none() -> None:
    bulkhead = Bulkhead("test", 1)
    with bulkhead.place("a"):
        with pytest.raises(RequestError) as raised, bulkhead.place("b"):
            pass
        assert raised.value.code == "ServiceUnavailable", "it is full for everybody"
    with bulkhead.place("b"):
        pass
