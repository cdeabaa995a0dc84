"""Closing the open usage windows of thousands of queues at once, as `report ... --now` does, on three real nodes.

    ./penstock bench usage-now [QUEUES]

Every queue is billed and got a message since its last window, which is the most that a call can find. Beside it: the
same when a part was used, and when nothing was. Aim: 10 s at 20,000 queues. Client, nodes and disk share the machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import uvloop

from benchmarks.report import Report
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.node.transport.inter_partition_client import USAGE_TAG
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import encode_body
from storage_nodes.protocol.usage import Origin, usage_key

QUEUES = 20_000
IN_FLIGHT = 256
PART = 10
CLOSE_S_AIM = 10.0
# What takes longer is measured too; given up after this.
CLOSE_S_MAX = 120.0
# As the report asks.
POLL_S = 0.05
BODY = encode_body(b"x" * 1_024, usage_key(Origin.CLIENT, 1_000))


async def run(report: Report, queues: int) -> None:
    cluster = StorageCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        await cluster.create_partition(client, PartitionKind.QUEUE, "bench:first")
        report.add("load of the machine before", os.getloadavg()[0], "")
        partitions = await create(client, queues)
        await use(client, partitions)
        await measure(client, report, "first use of every queue")
        await use(client, partitions)
        await measure(client, report, "every queue was used")
        await use(client, partitions[::PART])
        await measure(client, report, f"one of {PART} queues was used")
        await measure(client, report, "no queue was used")
        report.add("records in the usage stream", await records(client), "")
        report.add("load of the machine after", os.getloadavg()[0], "")
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def create(client: StorageClient, queues: int) -> list[int]:
    partitions: list[int] = []
    numbers = iter(range(queues))
    config = QueueConfig(account_id="1" * 12)

    async def worker() -> None:
        for number in numbers:
            tag = f"queue:{number:032x}:0"
            partitions.append((await client.create_partition(PartitionKind.QUEUE, tag, config)).partition)

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return partitions


async def use(client: StorageClient, partitions: list[int]) -> None:
    waiting = iter(partitions)

    async def worker() -> None:
        for partition in waiting:
            while True:
                try:
                    await client.send(partition, [BODY])
                    break
                except StorageError:
                    continue

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def measure(client: StorageClient, report: Report, label: str) -> None:
    began_s = time.monotonic()
    nodes = [node.node_id for node in (await client.describe()).nodes]
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await asyncio.gather(*(close(client, node) for node in nodes))
            await client.describe()  # the report compares the leaders from before and after
    except TimeoutError:
        raise SystemExit(f"gave up after {CLOSE_S_MAX:.0f} s: {label}") from None
    report.add(f"windows closed: {label}", time.monotonic() - began_s, "s")


async def close(client: StorageClient, node: int) -> None:
    begin = True
    while await client.close_usage(node, begin):
        begin = False
        await asyncio.sleep(POLL_S)


async def records(client: StorageClient) -> int:
    stream = (await client.create_partition(PartitionKind.STREAM, USAGE_TAG)).partition
    return (await client.stream_read(stream, 0, 1)).high_watermark


def main() -> int:
    queues = int(sys.argv[1]) if len(sys.argv) > 1 else QUEUES
    report = Report("usage_now")
    uvloop.run(run(report, queues))
    report.print()
    return 0 if all(value < CLOSE_S_AIM for label, value, _ in report.figures if label.startswith("windows")) else 1


if __name__ == "__main__":
    sys.exit(main())
