"""Counters and latency histograms per action, read by Prometheus when it asks.

Plain integers instead of the client library's locked values: a request costs one dictionary look-up, and its time is
sorted into a bucket with those of others, OBSERVED_MAX at a time or when somebody asks. Only this thread writes. No
label names a tenant.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

# Times that wait to be sorted, of one action with one outcome.
OBSERVED_MAX = 1_000
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
        # Seconds of requests that were observed, by way, action and outcome.
        self._observed: dict[tuple[str, str, str], list[float]] = {}
        self._counts: dict[str, int] = {}
        self._counters: dict[str, Callable[[], int]] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def observe(self, way: str, action: str, outcome: str, seconds: float) -> None:
        """`way` is sqs, rest or push; `outcome` is ok or the name of the error."""
        name = (way, action, outcome)
        observed = self._observed.get(name)
        if observed is None:
            observed = self._observed[name] = []
        observed.append(seconds)
        if len(observed) >= OBSERVED_MAX:
            self._sort(name)

    def _sort(self, name: tuple[str, str, str]) -> None:
        """What was observed, into its buckets."""
        way, action, outcome = name
        meter = self._actions.get((way, action))
        if meter is None:
            meter = self._actions[(way, action)] = _ActionMeter()
        observed = self._observed.pop(name)
        observed.sort()
        meter.seconds += sum(observed)
        meter.outcomes[outcome] = meter.outcomes.get(outcome, 0) + len(observed)
        before = 0
        for at, bound_s in enumerate((*BUCKETS_S, inf)):
            end = bisect_right(observed, bound_s)
            meter.buckets[at] += end - before
            before = end

    def count(self, name: str, amount: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + amount

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        self._gauges[name] = read

    def counter(self, name: str, read: Callable[[], int]) -> None:
        """What is counted elsewhere, since the process started."""
        self._counters[name] = read

    def total(self, name: str) -> int:
        return self._counts.get(name, 0)

    def collect(self) -> Iterator[Metric]:
        for observed in list(self._observed):
            self._sort(observed)
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
        counted = {name: count() for name, count in self._counters.items()}
        for name, amount in {**self._counts, **counted}.items():
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
