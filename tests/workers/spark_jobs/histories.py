"""Random windows of some partitions, and what they come to in plain Python."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from storage_nodes.protocol.usage import Origin
from tests.workers.spark_jobs.frames import OTHER_QUEUE, QUEUE, counters, hour, window
from workers.spark_jobs.limits import HOUR_MS, STORED_BYTES_MAX
from workers.spark_jobs.schemas.frames import COUNTERS
from workers.spark_jobs.schemas.usage_record import UsageWindow
from workers.spark_jobs.spans import HourSpan

LEVELS = [0, 1, 1_000_003, STORED_BYTES_MAX]


def random_history(chance: random.Random) -> list[UsageWindow]:
    """Windows of some partitions; the figures of a partition's hour grow with `until_ms`."""
    found = []
    for partition in range(chance.randint(1, 3)):
        queue = chance.choice([QUEUE, OTHER_QUEUE])
        for at in chance.sample(range(-2, 48), chance.randint(0, 4)):
            totals, many = [0] * len(COUNTERS), 1
            for cut in sorted(chance.sample([1, 77, HOUR_MS // 2, HOUR_MS - 1, HOUR_MS], chance.randint(1, 3))):
                totals = [total + chance.randint(0, 1 << 20) for total in totals]
                origins = [counters(origin, **dict(zip(COUNTERS, totals, strict=True))) for origin in Origin]
                one = window(at, partition, until_ms=hour(at) + cut, stored_byte_ms=cut)
                many = chance.randint(many, len(origins))  # an origin that was there stays
                chosen = origins[:many]
                found.append(
                    msgspec.structs.replace(one, queue_uuid=queue, origins=chosen, stored_bytes=chance.choice(LEVELS))
                )
    return found


def expected(history: list[UsageWindow], span: HourSpan) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """The same figures in plain Python, hour by hour."""
    latest: dict[tuple[int, int], UsageWindow] = {}
    for one in sorted(history, key=lambda one: one.until_ms):
        latest[one.partition, one.hour_ms] = one
    sums: dict[tuple[Any, ...], list[int]] = {}

    def add(one: UsageWindow, at: int, origin: int, *amounts: int) -> None:
        row = sums.setdefault((one.queue_uuid, at, origin), [0] * (len(COUNTERS) + 1))
        row[:] = [old + new for old, new in zip(row, amounts, strict=True)]

    for (partition, hour_ms), one in latest.items():
        later = [other for number, other in latest if number == partition and other > hour_ms]
        for at in range(span.from_ms, span.to_ms, HOUR_MS):
            if at == hour_ms:
                for origin in one.origins:
                    stored = one.stored_byte_ms if origin.origin == Origin.CLIENT else 0
                    add(one, at, origin.origin, *[getattr(origin, name) for name in COUNTERS], stored)
            if at >= hour_ms and at < min(later, default=span.to_ms):
                kept = one.stored_bytes * (at + HOUR_MS - max(at, one.until_ms))
                add(one, at, int(Origin.CLIENT), *[0] * len(COUNTERS), kept)
    return {key: tuple(row) for key, row in sums.items() if any(row)}
