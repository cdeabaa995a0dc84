"""A million scheduled messages in one queue: what they cost in memory, how fast the queue is beside an empty one, how a
node restarts with them, how they are listed, and how fast they come when many are due at once.

    ./penstock bench scheduled

PENSTOCK_BENCH_MESSAGES and PENSTOCK_BENCH_BODY_BYTES as in `backlog`, from which the measures are. Due times lie at
random within the coming month, which is the hardest for the order by due time.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import time

import uvloop

from benchmarks.backlog import (
    BODY_BYTES,
    MESSAGES,
    SETTLE_S,
    compare,
    drain,
    fill,
    report_memory,
    resident_mib,
    restart,
    two_queues,
)
from benchmarks.report import Report
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.protocol.records import HEADER_DUE, encode_body

MONTH_MS = 30 * 86_400_000
CHANGED = 100
PAGE = 500
LOOKS = 5
LOOK_S = 0.05
RELEASED_MAX = 100_000
RELEASED_IN_MS = 30_000


async def run(report: Report) -> None:
    cluster = StorageCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        full, empty, before = await two_queues(cluster, client, report)
        value = os.urandom(BODY_BYTES)
        start_ms = int(time.time() * 1000) + 3_600_000

        def scheduled() -> bytes:
            return encode_body(value, None, [(HEADER_DUE, b"%d" % (start_ms + random.randrange(MONTH_MS)))])

        seconds = await fill(client, full, MESSAGES, scheduled)
        report.add(f"scheduling {MESSAGES:,} messages of {BODY_BYTES} bytes", MESSAGES / seconds, "msg/s")
        await asyncio.sleep(SETTLE_S)
        report_memory(report, "with them scheduled", before, resident_mib(cluster))
        report.add("counted as delayed", (await client.stats(full)).delayed, "messages")
        await _list(client, full, start_ms + MONTH_MS // 2, report)
        await compare(client, full, empty, report)
        report_memory(report, "after the comparison", before, resident_mib(cluster))
        await restart(cluster, client, full, report)
        report.add("counted as delayed after the restart", (await client.stats(full)).delayed, "messages")
        await _release(client, full, report)
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _list(client: StorageClient, partition: int, middle_ms: int, report: Report) -> None:
    for what, after in (("first page", (-1, -1)), ("page in the middle", (middle_ms, 0))):
        times_ms: list[float] = []
        for _ in range(LOOKS):
            started = time.perf_counter()
            await client.scheduled(partition, PAGE, after)
            times_ms.append(1000 * (time.perf_counter() - started))
        report.add(f"{what} of {PAGE}, median of {LOOKS}", statistics.median(times_ms), "ms")


async def _release(client: StorageClient, partition: int, report: Report) -> None:
    """Make the first of them, which stand anywhere in the log, due at one time, and see how fast they come."""
    count = min(MESSAGES, RELEASED_MAX)
    started = time.perf_counter()
    page = await client.scheduled(partition, PAGE)
    offsets = [one.offset for one in page.messages]
    while page.more and len(offsets) < count:
        page = await client.scheduled(partition, PAGE, (page.last_due_ms, page.last_offset))
        offsets += [one.offset for one in page.messages]
    report.add(f"listing {len(offsets):,}, page by page", len(offsets) / (time.perf_counter() - started), "msg/s")
    due_ms = int(time.time() * 1000) + RELEASED_IN_MS
    started = time.perf_counter()
    for at in range(0, len(offsets), CHANGED):
        await client.reschedule(partition, [(offset, due_ms) for offset in offsets[at : at + CHANGED]])
    report.add(f"rescheduled, {CHANGED} a call", len(offsets) / (time.perf_counter() - started), "msg/s")
    await _released_by(client, partition, due_ms, len(offsets), report)
    taken = await drain(client, partition, len(offsets))
    report.add("receives and deletes of what was released", len(offsets) / taken, "msg/s")


async def _released_by(client: StorageClient, partition: int, due_ms: int, count: int, report: Report) -> None:
    await asyncio.sleep(max(0.0, due_ms / 1000 - time.time()))
    while (await client.stats(partition)).waiting < count:
        await asyncio.sleep(LOOK_S)
    report.add(f"{count:,} due at one time released", count / (time.time() - due_ms / 1000), "msg/s")


def main() -> int:
    report = Report("scheduled")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
