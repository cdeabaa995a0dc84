"""Millions of messages with DelaySeconds in one queue: memory of the nodes, how long their event loops stand still, and
when the messages come.

    ./penstock bench delayed

PENSTOCK_BENCH_MESSAGES and PENSTOCK_BENCH_BODY_BYTES as in `backlog`; PENSTOCK_BENCH_DELAY_S (120; SQS allows 900).
They are sent evenly over the delay, so that all are delayed at the time at which the first is due, and as many become
due a second as were sent; PENSTOCK_BENCH_AT_ONCE=1 sends as fast as it goes. Consumers take what is due as it comes.

Each message says its number and when its send began, so what is judged is what its sender saw, not what the node says:
all came, how many came twice, none before its time, and how late each was, at most (the send itself counts as late).
Memory is the largest that was seen of any node, twice a second. Stalls of event loops are counted as they are, and
without the time for which the loop's thread waited for a CPU (`storage_nodes/node/loop_stalls.py`).
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.backlog import BODY_BYTES, FILL_BATCH, MESSAGES, SENDERS, fill, resident_mib
from benchmarks.report import Report, percentile
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.records import HEADER_DELAY_MS, decode_body, encode_body

DELAY_MS = int(os.environ.get("PENSTOCK_BENCH_DELAY_S", "120")) * 1_000
AT_ONCE = os.environ.get("PENSTOCK_BENCH_AT_ONCE", "") == "1"
CONSUMERS = 32
RECEIVED_AT_ONCE = 100
TOLD_S = 10.0
MEMORY_LOOK_S = 0.5
WARMING = 10_000
WARMED_S = 3.0
STALLS = {
    "stalls of an event loop": "penstock_node_loop_stall_seconds",
    "its own part": "penstock_node_loop_own_stall_seconds",
}
TOLD_BOUNDS_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_STAMP = struct.Struct("<qd")  # number, when its send began


async def run(report: Report) -> None:
    cluster = StorageCluster()
    cluster.serve_metrics()
    cluster.start_all()
    client = await cluster.client()
    try:
        queue = await cluster.create_partition(client, PartitionKind.QUEUE, "bench:delayed")
        await fill(client, queue, WARMING)
        await client.purge(queue)
        await asyncio.sleep(WARMED_S)
        report.add("resident before, the largest node", max(resident_mib(cluster)), "MiB")
        taken = Taken()
        taking = asyncio.create_task(_take(client, queue, taken))
        what = f"sends of {MESSAGES:,} messages with a delay of {DELAY_MS // 1_000} s"
        async with _phase(cluster, "while they were sent", report):
            report.add(what, MESSAGES / await _send(client, queue), "msg/s")
            report.add("counted as delayed then", (await client.stats(queue)).delayed, "messages")
        async with _phase(cluster, "from then on until all were received", report):
            await taking
        taken.report(report)
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


class Taken:
    """What consumers saw."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self.again = 0
        self._seen = bytearray(MESSAGES)

    def take(self, body: bytes, now_s: float) -> None:
        number, began_s = _STAMP.unpack_from(decode_body(body).value)
        self.again += self._seen[number]
        if not self._seen[number]:
            self._seen[number] = 1
            self.late_ms.append((now_s - began_s) * 1_000 - DELAY_MS)

    @property
    def is_complete(self) -> bool:
        return len(self.late_ms) == MESSAGES

    def report(self, report: Report) -> None:
        report.add("received", len(self.late_ms), "messages")
        report.add("received again", self.again, "messages")
        report.add("received before they were due", sum(late < 0 for late in self.late_ms), "messages")
        for percent in (50, 99, 99.9, 100):
            report.add(f"late, p{percent}", percentile(self.late_ms, percent), "ms")


async def _send(client: StorageClient, queue: int) -> float:
    """All of them; seconds it took."""
    filler, headers = os.urandom(max(0, BODY_BYTES - _STAMP.size)), [(HEADER_DELAY_MS, b"%d" % DELAY_MS)]
    pause_s = 0.0 if AT_ONCE else DELAY_MS / 1_000 / MESSAGES
    began_s = time.monotonic()
    sent = 0

    async def sender() -> None:
        nonlocal sent
        while sent < MESSAGES:
            first, sent = sent, min(sent + FILL_BATCH, MESSAGES)
            numbers = range(first, sent)
            await asyncio.sleep(max(0.0, began_s + first * pause_s - time.monotonic()))
            now_s = time.time()
            bodies = [encode_body(_STAMP.pack(number, now_s) + filler, None, headers) for number in numbers]
            await client.send(queue, bodies, False)
            if first % (MESSAGES // 10) < FILL_BATCH:
                sys.stderr.write(f"  ... {sent:,} sent after {time.monotonic() - began_s:.0f} s\n")

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    return time.monotonic() - began_s


async def _take(client: StorageClient, queue: int, taken: Taken) -> None:
    """Receives and deletes all of them."""
    told_s = time.monotonic()

    async def consume() -> None:
        nonlocal told_s
        while not taken.is_complete:
            reply = await client.acquire(queue, RECEIVED_AT_ONCE, 60_000, 1_000)
            now_s = time.time()
            for message in reply.messages:
                taken.take(message.body, now_s)
            if reply.messages:
                await client.delete(queue, [(message.offset, message.delivery) for message in reply.messages])
            if time.monotonic() - told_s > TOLD_S:
                told_s = time.monotonic()
                sys.stderr.write(f"  ... {len(taken.late_ms):,} received\n")

    await asyncio.gather(*(consume() for _ in range(CONSUMERS)))


@asynccontextmanager
async def _phase(cluster: StorageCluster, when: str, report: Report) -> AsyncIterator[None]:
    """Reports the memory and the stalls of what is done within."""
    before = await asyncio.to_thread(_stalls, cluster)
    largest_mib = 0.0

    async def look() -> None:
        nonlocal largest_mib
        while True:
            largest_mib = max(largest_mib, *resident_mib(cluster))
            await asyncio.sleep(MEMORY_LOOK_S)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
    report.add(f"resident {when}, the largest node", largest_mib, "MiB")
    after = await asyncio.to_thread(_stalls, cluster)
    for what in STALLS:
        for bound_s in TOLD_BOUNDS_S:
            beyond = after[what, bound_s] - before[what, bound_s]
            report.add(f"{what} over {bound_s * 1_000:.0f} ms {when}, three nodes", beyond, "")


def _stalls(cluster: StorageCluster) -> dict[tuple[str, float], float]:
    """How many were longer, over all nodes: (which, bound in seconds) -> count. BLOCKING."""
    counts = {(what, bound_s): 0.0 for what in STALLS for bound_s in TOLD_BOUNDS_S}
    for port in cluster.metrics_ports.values():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        upto = {
            (sample.name, sample.labels.get("le")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        for what, bound_s in counts:
            name = STALLS[what]
            counts[what, bound_s] += upto[f"{name}_count", None] - upto[f"{name}_bucket", str(bound_s)]
    return counts


def main() -> int:
    report = Report("delayed")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
