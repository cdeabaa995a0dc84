"""What metering costs the message path: a queue with an account beside one without, on the same nodes, in turns.

    ./penstock bench metering

Three real, fsyncing nodes. Turns, each kind first in every other pair; the figures are medians of the pairs' ratios,
metered to not metered: rate (above 1: metered is quicker), CPU of all processes a message (below 1: cheaper). The aim
is a rate of at least 0.97.

Sends have turns of SENDS_TURN_S, on new queues each. Cycles leave queues empty, so that they have many turns of
CYCLE_TURN_S on two queues with one leader: what else the machine does, and how the nodes differ, touches both alike. A
third queue, which is not metered either, says how far the figures can be trusted.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import uuid4

import uvloop

from benchmarks.report import Report
from benchmarks.storage import BATCH, BODY_BYTES, measured, send_for
from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_GROUP, encode_body
from storage_nodes.protocol.usage import Origin, usage_key

SENDS_TURN_S = 1.0
PAIRS = int(os.environ.get("PENSTOCK_BENCH_METERING_PAIRS", "15"))
CYCLE_TURN_S = 0.2
CYCLE_TURNS = 20 * PAIRS
RECEIVED_AT_ONCE = 10
WAIT_MS = 10

Work = Callable[[StorageClient, int, bool], Awaitable[tuple[int, float]]]


def _body(is_metered: bool, group: bytes = b"") -> bytes:
    key = usage_key(Origin.CLIENT, BODY_BYTES) if is_metered else None
    return encode_body(os.urandom(BODY_BYTES), key, [(HEADER_GROUP, group)] if group else ())


async def _sends(in_flight: int, batch: int, client: StorageClient, queue: int, is_metered: bool) -> tuple[int, float]:
    count, seconds = await send_for(client, queue, [_body(is_metered)] * batch, in_flight, SENDS_TURN_S)
    await client.purge(queue)
    return count * batch, seconds


async def _cycle(is_fifo: bool, client: StorageClient, queue: int, is_metered: bool) -> tuple[int, float]:
    """Sends, receives and deletes at once; counted are deletes."""
    started = time.perf_counter()
    ends = started + CYCLE_TURN_S
    deleted = 0

    async def produce(number: int) -> None:
        body = _body(is_metered, b"%d" % number if is_fifo else b"")
        while time.perf_counter() < ends:
            await client.send(queue, [body], plain=not is_fifo)

    async def consume() -> None:
        nonlocal deleted
        while time.perf_counter() < ends:
            reply = await client.acquire(queue, RECEIVED_AT_ONCE, 30_000, WAIT_MS)
            if reply.messages:
                await client.delete(queue, [(message.offset, message.delivery) for message in reply.messages])
                deleted += len(reply.messages)

    await asyncio.gather(*map(produce, range(64)), *(consume() for _ in range(16)))
    return deleted, time.perf_counter() - started


SENDS: dict[str, Work] = {
    "sends, 1 in flight": partial(_sends, 1, 1),
    "sends, 32 in flight": partial(_sends, 32, 1),
    "sends, 256 in flight": partial(_sends, 256, 1),
    f"sends in batches of {BATCH}, 16 in flight": partial(_sends, 16, BATCH),
}
CYCLES = {"send + receive + delete at once": False, "send + receive + delete at once, FIFO": True}


async def run(report: Report) -> None:
    cluster = StorageCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        await cluster.create_partition(client, PartitionKind.QUEUE, "bench:first")
        for label, work in SENDS.items():
            await _compare_sends(cluster, client, label, work, report)
        for label, is_fifo in CYCLES.items():
            await _compare_cycles(cluster, client, label, is_fifo, report)
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _compare_sends(
    cluster: StorageCluster, client: StorageClient, label: str, work: Work, report: Report
) -> None:
    """A new queue each turn: a purge is allowed once a minute."""
    figures: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for pair in range(PAIRS):
        for is_metered in (True, False) if pair % 2 else (False, True):
            queue, name = await _queue(client, False, is_metered)
            figures[is_metered].append(await measured(cluster, partial(work, client, queue, is_metered)))
            await client.delete_partition(queue, name)
    report_ratios(report, label, "metered", figures[True], figures[False])


async def _compare_cycles(
    cluster: StorageCluster, client: StorageClient, label: str, is_fifo: bool, report: Report
) -> None:
    """Every queue has its turn, in an order that goes round."""
    first = await _queue(client, is_fifo, True)
    leader = await leader_of(client, first[0])
    queues = [(True, first[0])]
    for _ in range(2):
        queues.append((False, await _queue_led_by(client, is_fifo, leader)))
    figures: list[list[tuple[float, float]]] = [[] for _ in queues]
    for turn in range(CYCLE_TURNS):
        for place in range(len(queues)):
            at = (turn + place) % len(queues)
            is_metered, queue = queues[at]
            figures[at].append(await measured(cluster, partial(_cycle, is_fifo, client, queue, is_metered)))
    report_ratios(report, label, "metered", figures[0], figures[1])
    report_ratios(report, label, "a second one that is not metered", figures[2], figures[1])


async def _queue(client: StorageClient, is_fifo: bool, is_metered: bool) -> tuple[int, str]:
    """(partition, its tag) of a queue that has sent a little already."""
    config = QueueConfig(fifo=is_fifo, account_id="1" * 12 if is_metered else "")
    tag = f"queue:{uuid4().hex}:0"
    queue = (await client.create_partition(PartitionKind.QUEUE, tag, config)).partition
    await send_for(client, queue, [_body(is_metered, b"g" if is_fifo else b"")], 4, 0.2, plain=not is_fifo)
    return queue, tag


async def _queue_led_by(client: StorageClient, is_fifo: bool, leader: int) -> int:
    """One that is not metered. Leaders are spread over the nodes, so that it takes a few, which stay idle."""
    while True:
        queue, _ = await _queue(client, is_fifo, False)
        if await leader_of(client, queue) == leader:
            return queue


def report_ratios(
    report: Report, label: str, what: str, ours: Sequence[tuple[float, float]], theirs: Sequence[tuple[float, float]]
) -> None:
    """Medians of the turns' ratios, ours to theirs; a turn is (rate, CPU a message)."""
    rates = [one[0] / other[0] for one, other in zip(ours, theirs, strict=True)]
    costs = [one[1] / other[1] for one, other in zip(ours, theirs, strict=True)]
    report.add(f"{label}: rate, {what} to not metered", statistics.median(rates), "ratio")
    report.add(f"{label}: CPU a message, {what} to not metered", statistics.median(costs), "ratio")


def main() -> int:
    report = Report("metering")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
