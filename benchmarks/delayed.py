"""Millions of messages with DelaySeconds in one queue: memory of the nodes, how long their event loops stand still, and
when the messages come.

    ./penstock bench delayed

PENSTOCK_BENCH_MESSAGES and PENSTOCK_BENCH_BODY_BYTES as in `backlog`; PENSTOCK_BENCH_DELAY_S (120; SQS allows 900).
Consumers take what is due as it comes. A message is late by the time from when it was due until it was received.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import urllib.request

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.backlog import BODY_BYTES, MESSAGES, fill, report_memory, resident_mib
from benchmarks.report import Report, percentile
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.records import HEADER_DELAY_MS, encode_body

DELAY_MS = int(os.environ.get("PENSTOCK_BENCH_DELAY_S", "120")) * 1_000
CONSUMERS = 32
RECEIVED_AT_ONCE = 100
LOOK_S = 5.0
STALLS = "penstock_node_loop_stall_seconds"


async def run(report: Report) -> None:
    cluster = StorageCluster()
    cluster.serve_metrics()
    cluster.start_all()
    client = await cluster.client()
    try:
        queue = await cluster.create_partition(client, PartitionKind.QUEUE, "bench:delayed")
        await fill(client, queue, 10_000)
        await client.purge(queue)
        before = resident_mib(cluster)
        stalls_before = await asyncio.to_thread(_stalls, cluster)
        lates = asyncio.create_task(_take(client, queue))
        value, headers = os.urandom(BODY_BYTES), [(HEADER_DELAY_MS, b"%d" % DELAY_MS)]
        seconds = await fill(client, queue, MESSAGES, lambda: encode_body(value, None, headers))
        report.add(f"sends of {MESSAGES:,} messages with a delay of {DELAY_MS // 1_000} s", MESSAGES / seconds, "msg/s")
        report_memory(report, "with them delayed", before, resident_mib(cluster))
        report.add("counted as delayed", (await client.stats(queue)).delayed, "messages")
        late_ms = await lates
        report.add("received", len(late_ms), "messages")
        report.add("received before they were due", sum(late < 0 for late in late_ms), "messages")
        for percent in (50, 99, 100):
            report.add(f"late, p{percent}", percentile(late_ms, percent), "ms")
        report_memory(report, "after all were received", before, resident_mib(cluster))
        _report_stalls(stalls_before, await asyncio.to_thread(_stalls, cluster), report)
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _take(client: StorageClient, queue: int) -> list[float]:
    """Receives and deletes all of them; by how much each came late, ms."""
    late_ms: list[float] = []
    told_s = time.monotonic()

    async def consume() -> None:
        nonlocal told_s
        while len(late_ms) < MESSAGES:
            reply = await client.acquire(queue, RECEIVED_AT_ONCE, 60_000, 1_000)
            now_ms = time.time() * 1_000
            late_ms.extend(now_ms - message.sent_ms - DELAY_MS for message in reply.messages)
            if reply.messages:
                await client.delete(queue, [(message.offset, message.delivery) for message in reply.messages])
            if time.monotonic() - told_s > LOOK_S:
                told_s = time.monotonic()
                sys.stderr.write(f"  ... {len(late_ms):,} received\n")

    await asyncio.gather(*(consume() for _ in range(CONSUMERS)))
    return late_ms


def _stalls(cluster: StorageCluster) -> dict[str, float]:
    """How many stalls took at most so long, over all nodes: bound in seconds -> count. BLOCKING."""
    counts: dict[str, float] = {}
    for port in cluster.metrics_ports.values():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples if family.name == STALLS else ():
                if sample.name.endswith("_bucket"):
                    bound = sample.labels["le"]
                    counts[bound] = counts.get(bound, 0) + sample.value
    return counts


def _report_stalls(before: dict[str, float], after: dict[str, float], report: Report) -> None:
    for bound, upto in after.items():
        beyond = (after["+Inf"] - upto) - (before["+Inf"] - before[bound])
        if bound != "+Inf":
            report.add(f"stalls of an event loop over {float(bound) * 1_000:.0f} ms, three nodes", beyond, "")


def main() -> int:
    report = Report("delayed")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
