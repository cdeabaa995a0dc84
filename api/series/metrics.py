"""The metrics of a queue, named as CloudWatch names those of SQS, and what can be asked of each. Pure."""

from __future__ import annotations

import enum
from typing import NamedTuple


class MetricKind(enum.Enum):
    FLOW = enum.auto()  # how many happened
    LEVEL = enum.auto()  # how many there are
    AGE = enum.auto()  # seconds
    SIZE = enum.auto()  # bytes of each message


class Statistic(enum.StrEnum):
    SUM = "Sum"
    AVERAGE = "Average"
    MINIMUM = "Minimum"
    MAXIMUM = "Maximum"


class Metric(NamedTuple):
    """`column`: of the rows of the series. `statistics`: the first one is what charts and alarms take."""

    name: str
    kind: MetricKind
    column: str
    unit: str
    statistics: tuple[Statistic, ...]
    meaning: str


_FLOW = (Statistic.SUM, Statistic.AVERAGE)
_LEVEL = (Statistic.AVERAGE, Statistic.MINIMUM, Statistic.MAXIMUM)
_AGE = (Statistic.MAXIMUM, Statistic.AVERAGE, Statistic.MINIMUM)
_SIZE = (Statistic.AVERAGE, Statistic.SUM)


def _flow(name: str, column: str, meaning: str) -> Metric:
    return Metric(name, MetricKind.FLOW, column, "Count", _FLOW, meaning)


def _level(name: str, column: str, meaning: str) -> Metric:
    return Metric(name, MetricKind.LEVEL, column, "Count", _LEVEL, meaning)


_ALL = (
    _flow("NumberOfMessagesSent", "messages_sent", "Messages that were sent."),
    _flow("NumberOfMessagesReceived", "messages_delivered", "Messages that were received; each receive counts."),
    _flow("NumberOfMessagesDeleted", "messages_deleted", "Messages that were deleted."),
    _flow("NumberOfMessagesDeadLettered", "messages_dead_lettered", "Messages that went to the dead-letter queue."),
    _flow("NumberOfEmptyReceives", "empty_receives", "Receives that were answered without a message."),
    _flow("NumberOfRequests", "requests", "Requests about the queue."),
    _flow("NumberOfThrottledRequests", "throttled", "Requests about the queue that were over a quota."),
    _flow("NumberOfErrors", "errors", "Requests about the queue that failed, or were refused but not throttled."),
    Metric("SentMessageSize", MetricKind.SIZE, "sent_bytes", "Bytes", _SIZE, "Size of the messages that were sent."),
    _level("ApproximateNumberOfMessagesVisible", "waiting", "Messages that wait to be received."),
    _level("ApproximateNumberOfMessagesNotVisible", "in_flight", "Messages that were received and not deleted yet."),
    _level("ApproximateNumberOfMessagesDelayed", "delayed", "Messages that cannot be received yet."),
    Metric(
        "ApproximateAgeOfOldestMessage", MetricKind.AGE, "oldest_sent_ms", "Seconds", _AGE,
        "Age of the oldest message that waits.",
    ),
)  # fmt: skip
METRICS = {metric.name: metric for metric in _ALL}
