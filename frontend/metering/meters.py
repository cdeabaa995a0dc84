"""Counters and latency histograms per action, read by Prometheus when it asks.

Plain integers instead of the client library's locked values: a request costs one dictionary look-up and a bisection.
Only this thread writes. No label names a tenant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _ActionMeter:
    __slots__ = ("buckets", "outcomes", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.outcomes: dict[str, int] = {}
        self.seconds = 0.0


class Meters(Collector):
    """`observe` once per request; `count` for messages and other things that are only counted."""

    def __init__(self) -> None:
        self._actions: dict[tuple[str, str], _ActionMeter] = {}
        self._counts: dict[str, int] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def observe(self, way: str, action: str, outcome: str, seconds: float) -> None:
        """`way` is sqs, rest or push; `outcome` is ok or the name of the error."""
        meter = self._actions.get((way, action))
        if meter is None:
            meter = self._actions[(way, action)] = _ActionMeter()
        meter.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        meter.seconds += seconds
        meter.outcomes[outcome] = meter.outcomes.get(outcome, 0) + 1

    def count(self, name: str, amount: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + amount

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        self._gauges[name] = read

    def total(self, name: str) -> int:
        return self._counts.get(name, 0)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("penstock_requests", "Requests answered.", labels=("way", "action", "outcome"))
        latency = HistogramMetricFamily(
            "penstock_request_seconds", "Time from the header to the answer.", labels=("way", "action")
        )
        for (way, action), meter in self._actions.items():
            for outcome, amount in meter.outcomes.items():
                requests.add_metric((way, action, outcome), amount)
            latency.add_metric((way, action), buckets=_cumulative(meter.buckets), sum_value=meter.seconds)
        yield requests
        yield latency
        for name, amount in self._counts.items():
            yield CounterMetricFamily(f"penstock_{name}", f"Total of {name.replace('_', ' ')}.", value=amount)
        for name, read in self._gauges.items():
            yield GaugeMetricFamily(f"penstock_{name}", f"Current {name.replace('_', ' ')}.", value=read())


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    total = 0
    pairs = []
    for bound, amount in zip((*map(str, BUCKETS_S), "+Inf"), buckets, strict=True):
        total += amount
        pairs.append((bound, float(total)))
    return pairs
