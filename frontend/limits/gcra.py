"""Request rates: a tree of leaky buckets (GCRA). Pure; the clock is a parameter.

The generic cell rate algorithm keeps one number per bucket, the theoretical arrival time: when the bucket would be
empty again. A request of cost c moves it c/rate later; it is refused, and nothing moves, if that would lie more than
a burst ahead of now.

    account --> key --> queue         a request pays on its whole path, or, if one level refuses, nowhere

A bucket whose time has passed is the same as no bucket, so the oldest ones may be forgotten when there are too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from frontend.limits import (
    ACCOUNT_REQUESTS_PER_S,
    KEY_REQUESTS_PER_S,
    QUEUE_REQUESTS_PER_S,
    RATE_BUCKETS_MAX,
    RATE_BURST_S,
)


class RateLimits(NamedTuple):
    """Requests per second of each level, and how many seconds' worth may come at once."""

    account_per_s: float = ACCOUNT_REQUESTS_PER_S
    key_per_s: float = KEY_REQUESTS_PER_S
    queue_per_s: float = QUEUE_REQUESTS_PER_S
    burst_s: float = RATE_BURST_S


class RateTree:
    """The buckets of this front end. `admit` returns 0.0, or the seconds after which the same request would pass."""

    __slots__ = ("_buckets", "_buckets_max", "_burst_s", "_intervals")

    def __init__(self, limits: RateLimits | None = None, buckets_max: int = RATE_BUCKETS_MAX) -> None:
        limits = limits or RateLimits()
        assert min(limits) > 0 and buckets_max > 0
        self._intervals = (1 / limits.account_per_s, 1 / limits.key_per_s, 1 / limits.queue_per_s)
        self._burst_s = limits.burst_s
        self._buckets: dict[str, float] = {}
        self._buckets_max = buckets_max

    def admit(self, path: Sequence[str], now_s: float, cost: int = 1) -> float:
        """`path` names the buckets from the account down; names of different levels must differ."""
        buckets = self._buckets
        latest_s = now_s + self._burst_s
        arrivals = []
        for name, interval_s in zip(path, self._intervals, strict=False):
            arrival_s = buckets.get(name, now_s)
            if arrival_s < now_s:
                arrival_s = now_s
            arrival_s += cost * interval_s
            if arrival_s > latest_s:
                return arrival_s - latest_s
            arrivals.append(arrival_s)
        for name, arrival_s in zip(path, arrivals, strict=False):
            buckets[name] = arrival_s
        if len(buckets) > self._buckets_max:
            self._forget(now_s)
        return 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def _forget(self, now_s: float) -> None:
        """Drop what is empty anyway; if all are in use, the half that would be empty soonest."""
        kept = {name: arrival_s for name, arrival_s in self._buckets.items() if arrival_s > now_s}
        if len(kept) > self._buckets_max // 2:
            kept = dict(sorted(kept.items(), key=lambda item: item[1])[-(self._buckets_max // 2) :])
        self._buckets = kept
