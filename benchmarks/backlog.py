"""Messages waiting in one queue by the million: what they cost in memory, how fast the queue is beside an empty one,
and how a node restarts with them.

    ./penstock bench backlog

PENSTOCK_BENCH_MESSAGES and PENSTOCK_BENCH_BODY_BYTES say how many (1,000,000) and how large (1024). Rates are measured
in turns on the full queue and on one that is empty whenever it is measured, so that both see the same machine.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable

import psutil
import uvloop

from benchmarks.report import Report
from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.records import encode_body

MESSAGES = int(os.environ.get("PENSTOCK_BENCH_MESSAGES", "1000000"))
BODY_BYTES = int(os.environ.get("PENSTOCK_BENCH_BODY_BYTES", "1024"))
BATCH = 10
FILL_BATCH = 100
SENDERS = 32
CONSUMERS = 8
SETTLE_S = 3.0
TURNS = 5
TURN_S = 2.0
DRAINED_MAX = 1_000_000
WARMING = 20_000


async def run(report: Report) -> None:
    cluster = StorageCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        full, empty, before = await two_queues(cluster, client, report)
        began_ms = int(time.time() * 1000)
        seconds = await fill(client, full, MESSAGES)
        what = f"filling {MESSAGES:,} messages of {BODY_BYTES} bytes in batches of {FILL_BATCH}"
        report.add(what, MESSAGES / seconds, "msg/s")
        await asyncio.sleep(SETTLE_S)
        report_memory(report, "with them waiting", before, resident_mib(cluster))
        await _check_counts(client, full, began_ms, report)
        await compare(client, full, empty, report)
        report_memory(report, "after the comparison", before, resident_mib(cluster))
        waiting = (await client.stats(full)).waiting
        await restart(cluster, client, full, report)
        report.add("lost by the restart", waiting - (await client.stats(full)).waiting, "messages")
        count = min(waiting, DRAINED_MAX)
        seconds = await drain(client, full, count)
        report.add(f"draining {count:,} of them, batches of {BATCH} received and deleted", count / seconds, "msg/s")
        report.add("resident at the end, three nodes", sum(resident_mib(cluster)), "MiB")
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def two_queues(cluster: StorageCluster, client: StorageClient, report: Report) -> tuple[int, int, list[float]]:
    """The one to be filled and the one that stays empty, both used already; MiB resident per node."""
    full = await cluster.create_partition(client, PartitionKind.QUEUE, "bench:full")
    empty = await cluster.create_partition(client, PartitionKind.QUEUE, "bench:empty")
    for partition in (full, empty):
        await fill(client, partition, WARMING)
        await drain(client, partition, WARMING)
    await asyncio.sleep(SETTLE_S)
    before = resident_mib(cluster)
    report.add("resident empty, three nodes", sum(before), "MiB")
    return full, empty, before


async def fill(client: StorageClient, partition: int, count: int, make: Callable[[], bytes] | None = None) -> float:
    """Send that many, one batch of plain messages again and again, or what `make` makes."""
    bodies = [encode_body(os.urandom(BODY_BYTES)) for _ in range(FILL_BATCH)]
    started = time.perf_counter()
    batches = left = count // FILL_BATCH

    async def sender() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            sent = bodies if make is None else [make() for _ in range(FILL_BATCH)]
            await client.send(partition, sent, make is None)
            if left > 0 and left % (batches // 10 or 1) == 0:
                sys.stderr.write(f"    {(batches - left) * FILL_BATCH:,} sent\n")

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    return time.perf_counter() - started


async def drain(client: StorageClient, partition: int, count: int) -> float:
    """Receive and delete that many."""
    started = time.perf_counter()
    left = count

    async def consumer() -> None:
        nonlocal left
        while left > 0:
            left -= BATCH
            taken = await _receive_and_delete(client, partition)
            left += BATCH - taken

    await asyncio.gather(*(consumer() for _ in range(CONSUMERS)))
    return time.perf_counter() - started


async def _receive_and_delete(client: StorageClient, partition: int) -> int:
    reply = await client.acquire(partition, BATCH, 60_000, 200)
    if reply.messages:
        await client.delete(partition, [(message.offset, message.delivery) for message in reply.messages])
    return len(reply.messages)


async def _check_counts(client: StorageClient, partition: int, began_ms: int, report: Report) -> None:
    stats = await client.stats(partition)
    report.add("counted as waiting", stats.waiting, "messages")
    report.add("oldest is said to be sent so long after the first send began", stats.oldest_sent_ms - began_ms, "ms")


async def compare(client: StorageClient, full: int, empty: int, report: Report) -> None:
    """Send rates, then rates of receive and delete, in turns; medians."""
    sends: dict[int, list[float]] = {full: [], empty: []}
    takes: dict[int, list[float]] = {full: [], empty: []}
    for _ in range(TURNS):
        for partition in (empty, full):
            sent, seconds = await _send_for(client, partition, TURN_S)
            sends[partition].append(sent / seconds)
            takes[partition].append(sent / await drain(client, partition, sent))
    for what, rates in (("sends", sends), ("receives and deletes", takes)):
        empty_rate, full_rate = statistics.median(rates[empty]), statistics.median(rates[full])
        report.add(f"{what} in batches of {BATCH}, empty queue", empty_rate, "msg/s")
        report.add(f"{what} in batches of {BATCH}, full queue", full_rate, "msg/s")
        ratios = [ours / theirs for ours, theirs in zip(rates[full], rates[empty], strict=True)]
        report.add("  full to empty, median of the turns' ratios", 100 * statistics.median(ratios), "%")


async def _send_for(client: StorageClient, partition: int, seconds: float) -> tuple[int, float]:
    bodies = [encode_body(os.urandom(BODY_BYTES)) for _ in range(BATCH)]
    started = time.perf_counter()
    sent = 0

    async def sender() -> None:
        nonlocal sent
        while time.perf_counter() - started < seconds:
            await client.send(partition, bodies)
            sent += BATCH

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    return sent, time.perf_counter() - started


async def restart(cluster: StorageCluster, client: StorageClient, partition: int, report: Report) -> None:
    """kill -9 of the leader's node, then how long until it answers again."""
    leader = await leader_of(client, partition)
    started = time.perf_counter()
    cluster.kill(leader)
    await client.stats(partition)
    report.add("new leader answers after kill -9", time.perf_counter() - started, "s")
    started = time.perf_counter()
    cluster.start(leader)
    while True:
        try:
            await client.describe_node(leader)
            break
        except StorageError:
            await asyncio.sleep(0.02)
    report.add("killed node answers again after its start", time.perf_counter() - started, "s")


def resident_mib(cluster: StorageCluster) -> list[float]:
    return [psutil.Process(process.pid).memory_info().rss / 2**20 for process in cluster.processes.values()]


def report_memory(report: Report, when: str, before: list[float], now: list[float]) -> None:
    report.add(f"resident {when}, three nodes", sum(now), "MiB")
    grown = max(after - earlier for earlier, after in zip(before, now, strict=True))
    report.add("  the node that grew most, by", grown, "MiB")


def main() -> int:
    report = Report("backlog")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
