"""Sets of attributes for common uses of a queue: a form starts from one."""

from __future__ import annotations

from typing import NamedTuple


class Preset(NamedTuple):
    key: str
    title: str
    text: str
    fifo: bool
    attributes: dict[str, str]


PRESETS = (
    Preset("plain", "Standard", "The defaults of SQS.", False, {}),
    Preset(
        "jobs",
        "Background jobs",
        "Five minutes for one job, long polls, pauses that grow after failures.",
        False,
        {
            "VisibilityTimeout": "300",
            "ReceiveMessageWaitTimeSeconds": "20",
            "MessageRetentionPeriod": "1209600",
            "Penstock.RetryPolicy": '{"kind": "exponential", "delay_ms": 1000, "max_ms": 300000, "jitter": 0.2}',
        },
    ),
    Preset(
        "events",
        "Ordered events",
        "FIFO: in order within each group, duplicates by content are dropped.",
        True,
        {
            "ContentBasedDeduplication": "true",
            "DeduplicationScope": "messageGroup",
            "FifoThroughputLimit": "perMessageGroupId",
            "ReceiveMessageWaitTimeSeconds": "20",
        },
    ),
    Preset(
        "fan-in",
        "Fan-in",
        "Many producers: four partitions on different nodes, large batches.",
        False,
        {"Penstock.Partitions": "4", "ReceiveMessageWaitTimeSeconds": "20", "VisibilityTimeout": "60"},
    ),
    Preset(
        "dead",
        "Dead-letter queue",
        "Keeps what failed for 14 days.",
        False,
        {"MessageRetentionPeriod": "1209600"},
    ),
)


def preset_of(key: str) -> Preset:
    return next((one for one in PRESETS if one.key == key), PRESETS[0])
