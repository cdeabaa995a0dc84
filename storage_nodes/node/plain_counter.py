"""A counter that is a plain number: a step of a Prometheus Counter costs ten times as much, and takes a lock."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class PlainCounter(Collector):
    """`count` is stepped on the event loop; `collect` in the thread that serves metrics."""

    def __init__(self, name: str, text: str) -> None:
        self.count = 0
        self._name = name
        self._text = text
        REGISTRY.register(self)

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._text, self.count)
