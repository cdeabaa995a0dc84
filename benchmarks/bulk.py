"""The bulk socket, driven by the Python client: publishes that are confirmed, and consuming with acks.

    ./penstock bench bulk

Starts an installation of its own (three nodes, fsync on) in a temporary directory. One process beside it holds the
client's connections and shares the cores.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import sys
import time

import uvloop
from penstock_client import Queue, connect

from benchmarks.http_load import HttpConnection, LoadTarget, Signer, ask_sqs, open_connections
from benchmarks.report import Report, percentile
from benchmarks.temporary_installation import TemporaryInstallation

SECONDS = 5.0
MESSAGE_BYTES = 1024
DISTINCT_BODIES = 2_000
BATCH_MESSAGES = 500
PUBLISHERS = 8
PREFETCH = 5_000
EMPTY_LOOK_S = 0.005
LATENCY_MESSAGES = 1_000
LATENCY_RATE_S = 200.0


class Bench:
    def __init__(self, installation: TemporaryInstallation, connection: HttpConnection, target: LoadTarget) -> None:
        self._installation = installation
        self._connection = connection
        self._signer = Signer(target)
        self._endpoint = f"http://{target.host}:{target.port}"
        texts = [base64.b64encode(os.urandom(MESSAGE_BYTES * 3 // 4)).decode() for _ in range(DISTINCT_BODIES)]
        self._batches = [texts[at : at + BATCH_MESSAGES] for at in range(0, DISTINCT_BODIES, BATCH_MESSAGES)]

    async def create(self, name: str) -> str:
        return str((await ask_sqs(self._connection, self._signer, "CreateQueue", {"QueueName": name}))["QueueUrl"])

    def open(self, name: str) -> Queue:
        return connect(self._endpoint, self._installation.bearer_token, name, proxy=None)

    async def publish_for(self, queue: Queue, seconds: float) -> int:
        """Several publishes under way at a time; returns how many messages were confirmed."""
        ends_s = time.perf_counter() + seconds
        turns = itertools.cycle(self._batches)

        async def publisher() -> int:
            count = 0
            while time.perf_counter() < ends_s:
                published = await queue.publish(next(turns))
                if published.failed:
                    raise RuntimeError(f"a publish failed: {published.failed[0]}")
                count += published.count
            return count

        return sum(await asyncio.gather(*(publisher() for _ in range(PUBLISHERS))))

    async def consume(self, queue: Queue, url: str, count: int) -> None:
        """Until so many messages are acknowledged, and storage has deleted them."""
        left = count
        async for batch in queue.receive(prefetch=PREFETCH):
            await batch.ack()
            left -= len(batch)
            if left <= 0:
                break
        await self.until_empty(url)

    async def until_empty(self, url: str) -> None:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        asked = {"QueueUrl": url, "AttributeNames": names}
        while True:
            answer = await ask_sqs(self._connection, self._signer, "GetQueueAttributes", asked)
            if not any(int(answer["Attributes"][name]) for name in names):
                return
            await asyncio.sleep(EMPTY_LOOK_S)


async def run(report: Report) -> None:
    with TemporaryInstallation() as installation:
        target = LoadTarget(**installation.target())
        (connection,) = await open_connections(target.host, target.port, 1)
        bench = Bench(installation, connection, target)
        await _backlog(report, installation, bench)
        await _at_once(report, installation, bench)
        await _latency(report, bench)
        for name, resident in installation.resident_mib().items():
            if name.startswith(("frontend", "storage")):
                report.add(f"resident, {name}", resident, "MiB")
        connection.close()


async def _backlog(report: Report, installation: TemporaryInstallation, bench: Bench) -> None:
    url = await bench.create("bulk-backlog")
    async with bench.open("bulk-backlog") as queue:
        warm = await bench.publish_for(queue, 1.0)
        with installation.cpu() as cpu:
            started_s = time.perf_counter()
            count = await bench.publish_for(queue, SECONDS)
            report.add("publish, confirmed", count / (time.perf_counter() - started_s), "msg/s")
        cpu.report(report, count, "publish")
        with installation.cpu() as cpu:
            started_s = time.perf_counter()
            await bench.consume(queue, url, warm + count)
            report.add("consume and ack of a backlog", (warm + count) / (time.perf_counter() - started_s), "msg/s")
        cpu.report(report, warm + count, "consume and ack")


async def _at_once(report: Report, installation: TemporaryInstallation, bench: Bench) -> None:
    url = await bench.create("bulk-at-once")
    published = 0
    async with bench.open("bulk-at-once") as producer, bench.open("bulk-at-once") as consumer:
        done = asyncio.Event()
        taken = 0

        async def take() -> None:
            nonlocal taken
            async for batch in consumer.receive(prefetch=PREFETCH):
                await batch.ack()
                taken += len(batch)
                if done.is_set() and taken >= published:
                    return

        with installation.cpu() as cpu:
            started_s = time.perf_counter()
            taking = asyncio.create_task(take())
            published = await bench.publish_for(producer, SECONDS)
            done.set()
            if taken < published:
                await asyncio.wait_for(taking, 60)
            taking.cancel()
            await bench.until_empty(url)
            report.add("publish + consume + ack at once", published / (time.perf_counter() - started_s), "msg/s")
        cpu.report(report, published, "publish + consume + ack")


async def _latency(report: Report, bench: Bench) -> None:
    """From before the publish to the message at the consumer, at a steady low rate."""
    await bench.create("bulk-latency")
    latencies_ms: list[float] = []
    sent_at: dict[str, float] = {}
    filler = "x" * (MESSAGE_BYTES - 12)
    async with bench.open("bulk-latency") as producer, bench.open("bulk-latency") as consumer:

        async def take() -> None:
            async for batch in consumer.receive(prefetch=1_000, limit=LATENCY_MESSAGES):
                now_s = time.perf_counter()
                latencies_ms.extend((now_s - sent_at[one.body[:12]]) * 1000 for one in batch)
                await batch.ack()

        taking = asyncio.create_task(take())
        publishes: list[asyncio.Task[object]] = []
        for number in range(LATENCY_MESSAGES):
            key = f"{number:012d}"
            sent_at[key] = time.perf_counter()
            publishes.append(asyncio.create_task(producer.publish([key + filler])))
            await asyncio.sleep(max(0.0, 1 / LATENCY_RATE_S - (time.perf_counter() - sent_at[key])))
        await asyncio.gather(*publishes)
        await asyncio.wait_for(taking, 30)
    report.add(f"publish to delivery at {LATENCY_RATE_S:g} msg/s, p50", percentile(latencies_ms, 50), "ms")
    report.add(f"publish to delivery at {LATENCY_RATE_S:g} msg/s, p99", percentile(latencies_ms, 99), "ms")


def main() -> int:
    report = Report("bulk")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
