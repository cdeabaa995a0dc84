"""Rates by name, all names with the same one: leaky buckets (GCRA). Pure; the clock is a parameter.

The generic cell rate algorithm keeps one number per bucket, the theoretical arrival time: when the bucket would be
empty again. A request moves it 1/rate later; it is refused, and nothing moves, if that would lie more than a burst
ahead of now. A bucket whose time has passed is the same as no bucket, so the oldest ones may be forgotten when there
are too many. For accounts, keys and queues: `quota_tree.py`.
"""

from __future__ import annotations

from frontend.limits import RATE_BUCKETS_MAX, RATE_BURST_S


class LeakyBuckets:
    """`admit` returns 0.0, or the seconds after which the same request would pass."""

    __slots__ = ("_buckets", "_buckets_max", "_burst_s", "_interval_s")

    def __init__(self, per_s: float, burst_s: float = RATE_BURST_S, buckets_max: int = RATE_BUCKETS_MAX) -> None:
        assert per_s * burst_s >= 1 and buckets_max > 0
        self._interval_s = 1 / per_s
        self._burst_s = burst_s
        self._buckets: dict[str, float] = {}
        self._buckets_max = buckets_max

    def admit(self, name: str, now_s: float) -> float:
        latest_s = now_s + self._burst_s
        arrival_s = max(self._buckets.get(name, now_s), now_s) + self._interval_s
        if arrival_s > latest_s:
            return arrival_s - latest_s
        self._buckets[name] = arrival_s
        if len(self._buckets) > self._buckets_max:
            self._forget(now_s)
        return 0.0

    def give_back(self, name: str) -> None:
        """One that was admitted and shall not count."""
        arrival_s = self._buckets.get(name)
        if arrival_s is not None:
            self._buckets[name] = arrival_s - self._interval_s

    def __len__(self) -> int:
        return len(self._buckets)

    def _forget(self, now_s: float) -> None:
        """Drop what is empty anyway; if all are in use, the half that would be empty soonest."""
        kept = {name: arrival_s for name, arrival_s in self._buckets.items() if arrival_s > now_s}
        if len(kept) > self._buckets_max // 2:
            kept = dict(sorted(kept.items(), key=lambda item: item[1])[-(self._buckets_max // 2) :])
        self._buckets = kept
