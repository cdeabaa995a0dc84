"""What metering costs the message path: a queue with an account beside one without, on the same nodes, in turns.

    ./penstock bench metering

Three real, fsyncing nodes. Turns of TURN_S, each kind first in every other pair; the figures are medians of the pairs'
ratios, metered to not metered: rate (above 1: metered is quicker), CPU of all processes a message (below 1: cheaper).
The aim is a rate of at least 0.97.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import uuid4

import uvloop

from benchmarks.report import Report
from benchmarks.storage import BATCH, BODY_BYTES, measured, send_for
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_GROUP, encode_body
from storage_nodes.protocol.usage import Origin, usage_key

TURN_S = 1.0
PAIRS = int(os.environ.get("PENSTOCK_BENCH_METERING_PAIRS", "15"))
RECEIVED_AT_ONCE = 10

Work = Callable[[StorageClient, int, bool], Awaitable[tuple[int, float]]]


def _body(is_metered: bool, group: bytes = b"") -> bytes:
    key = usage_key(Origin.CLIENT, BODY_BYTES) if is_metered else None
    return encode_body(os.urandom(BODY_BYTES), key, [(HEADER_GROUP, group)] if group else ())


async def _sends(in_flight: int, batch: int, client: StorageClient, queue: int, is_metered: bool) -> tuple[int, float]:
    count, seconds = await send_for(client, queue, [_body(is_metered)] * batch, in_flight, TURN_S)
    await client.purge(queue)
    return count * batch, seconds


async def _cycle(is_fifo: bool, client: StorageClient, queue: int, is_metered: bool) -> tuple[int, float]:
    """Sends, receives and deletes at once; counted are deletes."""
    started = time.perf_counter()
    ends = started + TURN_S
    deleted = 0

    async def produce(number: int) -> None:
        body = _body(is_metered, b"%d" % number if is_fifo else b"")
        while time.perf_counter() < ends:
            await client.send(queue, [body], plain=not is_fifo)

    async def consume() -> None:
        nonlocal deleted
        while time.perf_counter() < ends:
            reply = await client.acquire(queue, RECEIVED_AT_ONCE, 30_000, 50)
            if reply.messages:
                await client.delete(queue, [(message.offset, message.delivery) for message in reply.messages])
                deleted += len(reply.messages)

    await asyncio.gather(*map(produce, range(64)), *(consume() for _ in range(16)))
    seconds = time.perf_counter() - started
    await client.purge(queue)
    return deleted, seconds


WORK: dict[str, tuple[bool, Work]] = {
    "sends, 1 in flight": (False, partial(_sends, 1, 1)),
    "sends, 32 in flight": (False, partial(_sends, 32, 1)),
    "sends, 256 in flight": (False, partial(_sends, 256, 1)),
    f"sends in batches of {BATCH}, 16 in flight": (False, partial(_sends, 16, BATCH)),
    "send + receive + delete at once": (False, partial(_cycle, False)),
    "send + receive + delete at once, FIFO": (True, partial(_cycle, True)),
}


async def run(report: Report) -> None:
    cluster = StorageCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        await cluster.create_partition(client, PartitionKind.QUEUE, "bench:first")
        for label, (is_fifo, work) in WORK.items():
            await _compare(cluster, client, label, is_fifo, work, report)
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _compare(
    cluster: StorageCluster, client: StorageClient, label: str, is_fifo: bool, work: Work, report: Report
) -> None:
    """A new queue each turn: a purge is allowed once a minute."""
    rates: list[float] = []
    costs: list[float] = []
    for pair in range(PAIRS):
        found: dict[bool, tuple[float, float]] = {}
        for is_metered in (True, False) if pair % 2 else (False, True):
            config = QueueConfig(fifo=is_fifo, account_id="1" * 12 if is_metered else "")
            name = f"queue:{uuid4().hex}:0"
            queue = (await client.create_partition(PartitionKind.QUEUE, name, config)).partition
            await send_for(client, queue, [_body(is_metered, b"g" if is_fifo else b"")], 4, 0.2, plain=not is_fifo)
            found[is_metered] = await measured(cluster, partial(work, client, queue, is_metered))
            await client.delete_partition(queue, name)
        rates.append(found[True][0] / found[False][0])
        costs.append(found[True][1] / found[False][1])
    report.add(f"{label}: rate, metered to not metered", statistics.median(rates), "ratio")
    report.add(f"{label}: CPU a message, metered to not metered", statistics.median(costs), "ratio")


def main() -> int:
    report = Report("metering")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
