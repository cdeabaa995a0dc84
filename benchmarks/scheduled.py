"""A million scheduled messages in one queue: what they cost in memory, how fast the queue is beside an empty one, how a
node restarts with them, and how fast they come when all of them are due.

    ./penstock bench scheduled

PENSTOCK_BENCH_MESSAGES and PENSTOCK_BENCH_BODY_BYTES as in `backlog`, from which the measures are. Due times lie at
random within the coming month, which is the hardest for the order by due time.
"""

from __future__ import annotations

import asyncio
import os
import random
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
RELEASED_MAX = 100_000


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
        await compare(client, full, empty, report)
        report_memory(report, "after the comparison", before, resident_mib(cluster))
        await restart(cluster, client, full, report)
        report.add("counted as delayed after the restart", (await client.stats(full)).delayed, "messages")
        await _release(client, full, report)
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _release(client: StorageClient, partition: int, report: Report) -> None:
    """Give some of them a time that has passed, and take them."""
    page = await client.scheduled(partition, PAGE)
    offsets = [one.offset for one in page.messages]
    while page.more and len(offsets) < min(MESSAGES, RELEASED_MAX):
        page = await client.scheduled(partition, PAGE, (page.last_due_ms, page.last_offset))
        offsets += [one.offset for one in page.messages]
    started = time.perf_counter()
    for at in range(0, len(offsets), CHANGED):
        await client.reschedule(partition, [(offset, 1) for offset in offsets[at : at + CHANGED]])
    report.add(f"rescheduled to now, {CHANGED} a call", len(offsets) / (time.perf_counter() - started), "msg/s")
    taken = await drain(client, partition, len(offsets))
    report.add(f"taking {len(offsets):,} of them as they come", len(offsets) / taken, "msg/s")


def main() -> int:
    report = Report("scheduled")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
