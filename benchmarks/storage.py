"""Storage plane alone: sends through the RPC client into three real, fsyncing nodes, beside its yardsticks.

    ./penstock bench storage

Client, nodes and disk share the machine. Figures are messages per second of 1 KiB, and CPU seconds per million.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

import psutil
import uvloop

from benchmarks.process_cost import cpu_s
from benchmarks.report import Report, percentile
from benchmarks.storage_cluster import StorageCluster
from benchmarks.yardsticks import echo_rate, fdatasync_rate
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.records import encode_body

BODY_BYTES = 1024
SECONDS = 4.0
IN_FLIGHT = (1, 32, 256)
BATCH = 100
CYCLE_MESSAGES = 30_000
PUSH_MESSAGES = 1_000
PUSH_RATE_S = 200.0


async def run(report: Report) -> None:
    report.add("yardstick: fdatasync of 1 KiB in place", fdatasync_rate(), "1/s")
    report.add("yardstick: loopback RPC echo, 256 in flight", await echo_rate(), "1/s")
    cluster = StorageCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "bench:send")
        body = encode_body(os.urandom(BODY_BYTES))
        await send_for(client, partition, [body], 64, 1.0)
        for in_flight in IN_FLIGHT:
            rate, cpu = await measured(cluster, partial(send_for, client, partition, [body], in_flight, SECONDS))
            report.add(f"send 1 KiB, {in_flight} in flight", rate, "msg/s")
            report.add(f"  CPU, {in_flight} in flight, client included", cpu, "s per million")
        rate, _ = await measured(cluster, lambda: send_for(client, partition, [body] * BATCH, 16, SECONDS))
        report.add(f"send in batches of {BATCH}, 16 in flight", rate * BATCH, "msg/s")
        await client.purge(partition)
        rate, cpu = await measured(cluster, lambda: _cycle(client, partition, body))
        report.add("send + receive + delete at once, batches of 10 on receive and delete", rate, "msg/s")
        report.add("  CPU of it, client included", cpu, "s per million")
        await _push(client, partition, body, report)
        for node_id, process in cluster.processes.items():
            report.add(f"resident, node {node_id}", psutil.Process(process.pid).memory_info().rss / 2**20, "MiB")
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def measured(cluster: StorageCluster, work: Callable[[], Awaitable[tuple[int, float]]]) -> tuple[float, float]:
    """(messages/s, CPU seconds per million messages over all nodes and this process)."""
    processes = [process.pid for process in cluster.processes.values()] + [os.getpid()]
    before_s = sum(map(cpu_s, processes))
    count, seconds = await work()
    spent_s = sum(map(cpu_s, processes)) - before_s
    return count / seconds, spent_s / count * 1e6


async def send_for(
    client: StorageClient, partition: int, bodies: list[bytes], in_flight: int, seconds: float, plain: bool = True
) -> tuple[int, float]:
    """Sends these bodies again and again. (Sends, seconds that they took)."""
    started = time.perf_counter()
    ends = started + seconds
    count = 0

    async def worker() -> None:
        nonlocal count
        while time.perf_counter() < ends:
            await client.send(partition, bodies, plain)
            count += 1

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return count, time.perf_counter() - started


async def _cycle(client: StorageClient, partition: int, body: bytes) -> tuple[int, float]:
    """Publish, consume and acknowledge at the same time until everything is gone."""
    started = time.perf_counter()
    deleted = 0

    async def produce(count: int) -> None:
        for _ in range(count):
            await client.send(partition, [body])

    async def consume() -> None:
        nonlocal deleted
        while deleted < CYCLE_MESSAGES:
            reply = await client.acquire(partition, 10, 30_000, 200)
            if reply.messages:
                await client.delete(partition, [(message.offset, message.delivery) for message in reply.messages])
                deleted += len(reply.messages)

    producers = [produce(CYCLE_MESSAGES // 128) for _ in range(128)]
    rest = produce(CYCLE_MESSAGES - CYCLE_MESSAGES // 128 * 128)
    await asyncio.gather(rest, *producers, *(consume() for _ in range(16)))
    return deleted, time.perf_counter() - started


async def _push(client: StorageClient, partition: int, body: bytes, report: Report) -> None:
    """Send to delivery at a parked consumer, at a steady low rate."""
    latencies_ms: list[float] = []
    sent_at: dict[int, float] = {}
    pause_s = 1 / PUSH_RATE_S

    async def consume() -> None:
        while len(latencies_ms) < PUSH_MESSAGES:
            reply = await client.acquire(partition, 10, 30_000, 1_000)
            now = time.perf_counter()
            for message in reply.messages:
                latencies_ms.append((now - sent_at[int.from_bytes(message.body[-9:-1], "big")]) * 1000)
            if reply.messages:
                await client.delete(partition, [(message.offset, message.delivery) for message in reply.messages])

    consumer = asyncio.create_task(consume())
    for index in range(PUSH_MESSAGES):
        sent_at[index] = time.perf_counter()
        value = os.urandom(BODY_BYTES - 8) + index.to_bytes(8, "big")
        await asyncio.gather(client.send(partition, [encode_body(value)]), asyncio.sleep(pause_s))
    await consumer
    report.add("send to delivery at 200/s, p50", percentile(latencies_ms, 50), "ms")
    report.add("send to delivery at 200/s, p99", percentile(latencies_ms, 99), "ms")


def main() -> int:
    report = Report("storage")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
