"""FIFO queues beside standard ones: the same messages, in batches, through the RPC client into three real nodes.

    ./penstock bench fifo

Messages of 1 KiB in batches of 10, over GROUPS message groups (PENSTOCK_BENCH_GROUPS), each with a deduplication id;
the standard queue gets them without. Queues of the two kinds take turns, ROUNDS each, and medians are reported: this
machine has faster and slower minutes. Client, nodes and disk share it.

Then the order of a FIFO queue with as many groups, received by two consumers whose leader is killed halfway: a group
whose messages were not deleted one after the other, each once, ends the benchmark with an error.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import uvloop

from benchmarks.report import Report
from benchmarks.storage import measured
from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, decode_body, encode_body

BODY_BYTES = 1024
BATCH = 10
GROUPS = int(os.environ.get("PENSTOCK_BENCH_GROUPS", "10000"))
ROUNDS = 5
SECONDS = 3.0
IN_FLIGHT = 32  # senders, and then consumers

ORDERED_PER_GROUP = 4
ORDERED_SENDERS = 16
ORDERED_CONSUMERS = 2
ORDERED_S_MAX = 240.0

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
        await _rates(report, cluster, client)
        await _order_over_a_kill(report, cluster, client)
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _rates(report: Report, cluster: StorageCluster, client: StorageClient) -> None:
    # Of each kind: (sent/s, CPU of it, received and deleted/s, CPU of it), a row for every round.
    seen: dict[bool, list[tuple[float, float, float, float]]] = {False: [], True: []}
    for number in range(ROUNDS):
        for is_fifo in (False, True):
            config = QueueConfig(fifo=is_fifo)
            tag = f"bench:{is_fifo}:{number}"
            partition = (await client.create_partition(PartitionKind.QUEUE, tag, config)).partition
            await client.stats(partition)
            make = keyed_batch if is_fifo else plain_batch
            sent, send_cpu = await measured(cluster, partial(_send, client, partition, make, not is_fifo))
            taken, take_cpu = await measured(cluster, partial(_drain, client, partition, int(sent * SECONDS)))
            await client.purge(partition)
            seen[is_fifo].append((sent, send_cpu, taken, take_cpu))
    middle = {kind: [statistics.median(column) for column in zip(*rows, strict=True)] for kind, rows in seen.items()}
    for is_fifo, kind in ((False, "standard"), (True, "FIFO")):
        sent, send_cpu, taken, take_cpu = middle[is_fifo]
        report.add(f"{kind}: send in batches of {BATCH}, {IN_FLIGHT} in flight", sent, "msg/s")
        report.add("  CPU of it, client included", send_cpu, "s per million")
        report.add(f"{kind}: receive and delete in batches of {BATCH}, {IN_FLIGHT} consumers", taken, "msg/s")
        report.add("  CPU of it, client included", take_cpu, "s per million")
    for what, rate_of in (("send", _sent), ("receive and delete", _taken), ("send, receive and delete", _through)):
        shares = [100 * rate_of(fifo) / rate_of(plain) for plain, fifo in zip(seen[False], seen[True], strict=True)]
        report.add(f"FIFO {what} rate of standard's", 100 * rate_of(middle[True]) / rate_of(middle[False]), "%")
        report.add("  of single rounds, lowest", min(shares), "%")
        report.add("  of single rounds, highest", max(shares), "%")


def _sent(row: Sequence[float]) -> float:
    return row[0]


def _taken(row: Sequence[float]) -> float:
    return row[2]


def _through(row: Sequence[float]) -> float:
    """Of messages that are sent and then received and deleted, one phase after the other."""
    return 1 / (1 / _sent(row) + 1 / _taken(row))


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

    await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))
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

    await asyncio.gather(*(consumer() for _ in range(IN_FLIGHT)))
    return deleted, time.perf_counter() - started


async def _order_over_a_kill(report: Report, cluster: StorageCluster, client: StorageClient) -> None:
    """Senders keep to groups of their own, so that the order of the sends is known; the id makes one message of a send
    whose answer was lost. Raises AssertionError."""
    partition = (await client.create_partition(PartitionKind.QUEUE, "bench:order", QueueConfig(fifo=True))).partition
    await client.stats(partition)
    deleted: dict[bytes, list[int]] = defaultdict(list)
    messages = GROUPS * ORDERED_PER_GROUP
    count = refused = 0

    async def sender(groups: range) -> None:
        for number in range(ORDERED_PER_GROUP):
            for at in range(0, len(groups), BATCH):
                keys = [(b"%d" % group, b"%d-%d" % (group, number)) for group in groups[at : at + BATCH]]
                headers = [[(HEADER_GROUP, group), (HEADER_DEDUP, name)] for group, name in keys]
                await client.send(partition, [encode_body(b"%d" % number, None, row) for row in headers], plain=False)

    async def consumer() -> None:
        nonlocal count, refused
        while count < messages:
            reply = await client.acquire(partition, BATCH, 30_000, 500, attempt=os.urandom(16))
            receipts = [(message.offset, message.delivery) for message in reply.messages]
            codes = await client.delete(partition, receipts) if receipts else []
            for message, code in zip(reply.messages, codes, strict=True):
                if code == ErrorCode.OK:
                    body = decode_body(message.body)
                    deleted[dict(body.headers)[HEADER_GROUP]].append(int(body.value))
                    count += 1
                else:
                    refused += 1

    async def killer() -> None:
        while count < messages // 2:
            await asyncio.sleep(0.01)
        cluster.kill(await leader_of(client, partition))

    started = time.perf_counter()
    senders = [sender(range(first, GROUPS, ORDERED_SENDERS)) for first in range(ORDERED_SENDERS)]
    consumers = [consumer() for _ in range(ORDERED_CONSUMERS)]
    await asyncio.wait_for(asyncio.gather(*senders, *consumers, killer()), ORDERED_S_MAX)
    broken = [group for group, numbers in deleted.items() if numbers != list(range(ORDERED_PER_GROUP))]
    assert not broken and len(deleted) == GROUPS, f"{len(broken)} groups not in order, such as {broken[:3]}"
    stats = await client.stats(partition)
    assert not (stats.waiting or stats.in_flight), f"messages are left: {stats}"
    what = f"{GROUPS:,} groups, {ORDERED_CONSUMERS} consumers, leader killed halfway: all in order"
    report.add(what, count, "messages")
    report.add("  deletes refused, received again", refused, "messages")
    report.add("  seconds, the kill included", time.perf_counter() - started, "s")


def main() -> int:
    report = Report("fifo")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
