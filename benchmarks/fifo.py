"""FIFO queues beside standard ones: the same messages, in batches, through the RPC client into three real nodes.

    ./penstock bench fifo

Messages of 1 KiB in batches of 10, over GROUPS message groups (PENSTOCK_BENCH_GROUPS), each with a deduplication id;
the standard queue gets them without. Client, nodes and disk share the machine.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable
from functools import partial

import uvloop

from benchmarks.report import Report
from benchmarks.storage import measured
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, encode_body

BODY_BYTES = 1024
BATCH = 10
GROUPS = int(os.environ.get("PENSTOCK_BENCH_GROUPS", "10000"))
SECONDS = 3.0
SENDERS = 32
CONSUMERS = 16

_numbers = itertools.count()


def plain_batch(value: bytes) -> list[bytes]:
    return [encode_body(value) for _ in range(BATCH)]


def keyed_batch(value: bytes) -> list[bytes]:
    numbers = [next(_numbers) for _ in range(BATCH)]
    return [
        encode_body(value, None, [(HEADER_GROUP, b"group-%d" % (number % GROUPS)), (HEADER_DEDUP, b"%032d" % number)])
        for number in numbers
    ]


async def run(report: Report) -> None:
    cluster = StorageCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        await cluster.create_partition(client, PartitionKind.QUEUE, "bench:warm")
        figures: dict[bool, tuple[float, float]] = {}
        for is_fifo in (False, True):
            config = QueueConfig(fifo=is_fifo)
            partition = (await client.create_partition(PartitionKind.QUEUE, f"bench:{is_fifo}", config)).partition
            await client.stats(partition)
            make = keyed_batch if is_fifo else plain_batch
            sent, send_cpu = await measured(cluster, partial(_send, client, partition, make, not is_fifo))
            taken, take_cpu = await measured(cluster, partial(_drain, client, partition, int(sent * SECONDS)))
            figures[is_fifo] = (sent, taken)
            kind = "FIFO" if is_fifo else "standard"
            report.add(f"{kind}: send in batches of {BATCH}, {SENDERS} in flight", sent, "msg/s")
            report.add("  CPU of it, client included", send_cpu, "s per million")
            report.add(f"{kind}: receive and delete in batches of {BATCH}, {CONSUMERS} consumers", taken, "msg/s")
            report.add("  CPU of it, client included", take_cpu, "s per million")
        report.add("FIFO send rate of standard's", 100 * figures[True][0] / figures[False][0], "%")
        report.add("FIFO receive and delete rate of standard's", 100 * figures[True][1] / figures[False][1], "%")
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _send(
    client: StorageClient, partition: int, make: Callable[[bytes], list[bytes]], plain: bool
) -> tuple[int, float]:
    value = os.urandom(BODY_BYTES)
    started = time.perf_counter()
    ends = started + SECONDS
    count = 0

    async def sender() -> None:
        nonlocal count
        while time.perf_counter() < ends:
            await client.send(partition, make(value), plain)
            count += BATCH

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    return count, time.perf_counter() - started


async def _drain(client: StorageClient, partition: int, messages: int) -> tuple[int, float]:
    """Receive and delete for SECONDS at most."""
    started = time.perf_counter()
    ends = started + SECONDS
    deleted = 0

    async def consumer() -> None:
        nonlocal deleted
        while deleted < messages and time.perf_counter() < ends:
            reply = await client.acquire(partition, BATCH, 30_000, 100)
            if reply.messages:
                await client.delete(partition, [(message.offset, message.delivery) for message in reply.messages])
                deleted += len(reply.messages)

    await asyncio.gather(*(consumer() for _ in range(CONSUMERS)))
    return deleted, time.perf_counter() - started


def main() -> int:
    report = Report("fifo")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
