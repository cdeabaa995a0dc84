"""What is counted of each group commit, in plain numbers: a step of a Counter or a Histogram costs ten times as much,
and a node that commits a message at a time takes four of them for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

SYNC_SECONDS_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)


class GroupMetrics(Collector):
    """`note` on the event loop; `collect` in the thread that serves metrics, where a group may count in part."""

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
