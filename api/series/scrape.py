"""Metrics of an account's queues as Prometheus reads them. Labels name queues, never accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.series.models import SeriesQueue
from api.series.selectors import ScrapedQueues

Family = CounterMetricFamily | GaugeMetricFamily
_COUNTERS = {
    "messages_sent": "Messages that were sent.",
    "messages_delivered": "Messages that were received.",
    "messages_deleted": "Messages that were deleted.",
    "messages_dead_lettered": "Messages that went to the dead-letter queue.",
    "sent_bytes": "Bytes of the messages that were sent.",
    "requests": "Requests about the queue.",
    "empty_receives": "Receives that were answered without a message.",
    "throttled": "Requests about the queue that were over a quota.",
    "errors": "Requests about the queue that failed, or were refused but not throttled.",
}
_LEVELS = {
    "waiting": ("messages_visible", "Messages that wait to be received."),
    "in_flight": ("messages_not_visible", "Messages that were received and not deleted yet."),
    "delayed": ("messages_delayed", "Messages that cannot be received yet."),
}


class AccountMetrics(Collector):
    """`now`: the ages of messages are those of this moment."""

    def __init__(self, found: ScrapedQueues, now: datetime) -> None:
        self._found = found
        self._now_s = now.timestamp()

    def collect(self) -> Iterator[Metric]:
        for name, text in _COUNTERS.items():
            yield self._fill(CounterMetricFamily(f"penstock_queue_{name}", text, labels=("queue",)), _reading(name))
        for column, (name, text) in _LEVELS.items():
            yield self._fill(GaugeMetricFamily(f"penstock_queue_{name}", text, labels=("queue",)), _reading(column))
        age = GaugeMetricFamily(
            "penstock_queue_oldest_message_age_seconds", "Age of the oldest message that waits.", labels=("queue",)
        )
        yield self._fill(age, self._age_s)
        yield GaugeMetricFamily("penstock_queues_left_out", "Queues beyond the bound.", value=self._found.left_out)

    def _fill(self, family: Family, read: Callable[[SeriesQueue], float]) -> Family:
        for name, totals in self._found.queues:
            family.add_metric((name,), 0.0 if totals is None else read(totals))
        return family

    def _age_s(self, totals: SeriesQueue) -> float:
        return max(0.0, self._now_s - totals.oldest_sent_ms / 1000) if totals.oldest_sent_ms else 0.0


def scraped_text(found: ScrapedQueues, now: datetime) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AccountMetrics(found, now))
    return generate_latest(registry)


def _reading(column: str) -> Callable[[SeriesQueue], float]:
    return lambda totals: float(getattr(totals, column))
