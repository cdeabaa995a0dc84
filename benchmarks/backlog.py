"""A million messages waiting in one queue: what they cost in memory, how they drain, how a node restarts with them.

    ./penstock bench backlog
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import psutil
import uvloop

from benchmarks.report import Report
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.records import encode_body

MESSAGES = int(os.environ.get("PENSTOCK_BENCH_MESSAGES", "1000000"))
BODY_BYTES = 1024
BATCH = 10
SENDERS = 32
CONSUMERS = 8
SETTLE_S = 3.0


async def run(report: Report) -> None:
    cluster = StorageCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "bench:backlog")
        await _fill(client, partition, 20_000)
        await _drain(client, partition)
        await asyncio.sleep(SETTLE_S)
        empty = _resident_mib(cluster)
        report.add("resident empty, three nodes", sum(empty), "MiB")
        seconds = await _fill(client, partition, MESSAGES)
        report.add(f"filling {MESSAGES:,} messages of 1 KiB in batches of {BATCH}", MESSAGES / seconds, "msg/s")
        await asyncio.sleep(SETTLE_S)
        full = _resident_mib(cluster)
        report.add("resident with them waiting, three nodes", sum(full), "MiB")
        report.add("grown by", sum(full) - sum(empty), "MiB")
        await _restart(cluster, client, partition, report)
        waiting = (await client.stats(partition)).waiting
        report.add("waiting after the restart", waiting, "messages")
        seconds = await _drain(client, partition)
        report.add("draining, batches of 10 received and deleted", waiting / seconds, "msg/s")
        report.add("resident after draining, three nodes", sum(_resident_mib(cluster)), "MiB")
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _fill(client: StorageClient, partition: int, count: int) -> float:
    bodies = [encode_body(os.urandom(BODY_BYTES)) for _ in range(BATCH)]
    started = time.perf_counter()
    left = count // BATCH

    async def sender() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await client.send(partition, bodies)
            if left > 0 and left % (count // BATCH // 10 or 1) == 0:
                sys.stderr.write(f"    {count - left * BATCH:,} sent\n")

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    return time.perf_counter() - started


async def _drain(client: StorageClient, partition: int) -> float:
    started = time.perf_counter()

    async def consumer() -> None:
        while True:
            reply = await client.acquire(partition, BATCH, 60_000, 200)
            if not reply.messages:
                return
            await client.delete(partition, [(message.offset, message.delivery) for message in reply.messages])

    await asyncio.gather(*(consumer() for _ in range(CONSUMERS)))
    stats = await client.stats(partition)
    assert (stats.waiting, stats.in_flight) == (0, 0), stats
    return time.perf_counter() - started


async def _restart(cluster: StorageCluster, client: StorageClient, partition: int, report: Report) -> None:
    """kill -9 of the leader's node, then how long until it answers again."""
    leader = (await client.describe([partition])).partitions[0].leader
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


def _resident_mib(cluster: StorageCluster) -> list[float]:
    return [psutil.Process(process.pid).memory_info().rss / 2**20 for process in cluster.processes.values()]


def main() -> int:
    report = Report("backlog")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
