"""Metrics that are plain numbers: a step of a Counter or Histogram of Prometheus costs ten times as much, and a lock.

All are stepped on the event loop, and collected in the thread that serves metrics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

SYNC_SECONDS_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)


class PlainCounter(Collector):
    """A counter that registers itself; `count` is stepped by its users."""

    def __init__(self, name: str, text: str) -> None:
        self.count = 0
        self._name = name
        self._text = text
        REGISTRY.register(self)

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._text, self.count)


class GroupMetrics(Collector):
    """What is counted of each group commit: four steps for each. What is collected may have the last one in part."""

    def __init__(self) -> None:
        self._bytes = 0
        self._seconds = 0.0
        self._counts = [0] * (len(SYNC_SECONDS_BUCKETS) + 1)

    def note(self, size_bytes: int, elapsed_s: float) -> None:
        self._bytes += size_bytes
        self._seconds += elapsed_s
        self._counts[bisect_left(SYNC_SECONDS_BUCKETS, elapsed_s)] += 1

    def collect(self) -> Iterator[Metric]:
        up_to = list(accumulate(self._counts))
        yield CounterMetricFamily("penstock_node_group_commits", "Group commits written and synced", up_to[-1])
        yield CounterMetricFamily("penstock_node_wal_bytes", "Bytes written to the write-ahead log", self._bytes)
        bounds = [*map(str, SYNC_SECONDS_BUCKETS), "+Inf"]
        yield HistogramMetricFamily(
            "penstock_node_sync_seconds", "Write and fdatasync of one group",
            list(zip(bounds, up_to, strict=True)), self._seconds,
        )  # fmt: skip
