"""Consumers that wait: 64 long polls over 1,000 empty queues, what they cost, and how soon a send wakes its waiter.

    ./penstock bench long-poll

Starts an installation of its own. The consumers go round all queues, CONSUMERS of them parked at any time, through
signed HTTP requests; afterwards each waits at a queue of its own while messages are sent at a low rate.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from typing import Any

import uvloop

from benchmarks.http_load import HttpConnection, LoadTarget, Signer, ask_sqs, open_connections
from benchmarks.idle import add_cpu
from benchmarks.report import Report, percentile
from benchmarks.temporary_installation import TemporaryInstallation

QUEUES = int(os.environ.get("PENSTOCK_BENCH_QUEUES", "1000"))
CONSUMERS = 64
CREATORS = 4
WAIT_S = 20
SETTLE_S = 3.0
MEASURED_S = 30.0
WAKES = 400
WAKES_PER_S = 20.0


async def run(report: Report) -> None:
    with TemporaryInstallation() as installation:
        target = LoadTarget(**installation.target())
        signer = Signer(target)
        connections = await open_connections(target.host, target.port, CONSUMERS + CREATORS)
        urls = await _create_queues(report, connections[:CREATORS], signer)
        pollers = [_go_round(connection, signer, urls, at) for at, connection in enumerate(connections[CREATORS:])]
        tasks = [asyncio.create_task(poller) for poller in pollers]
        await asyncio.sleep(SETTLE_S)
        with installation.cpu() as use:
            await asyncio.sleep(MEASURED_S)
        add_cpu(report, use.spent)
        report.add("  load generator", use.spent["load generator"] / MEASURED_S * 100, "% of one core")
        for name, resident in installation.resident_mib().items():
            if name.startswith(("frontend", "storage")):
                report.add(f"resident, {name}", resident, "MiB")
        for task in tasks:
            task.cancel()
        for connection in connections[CREATORS:]:
            connection.close()
        waiters = await open_connections(target.host, target.port, CONSUMERS)
        await _wakes(report, connections[0], waiters, signer, urls)
        for connection in (*connections[:CREATORS], *waiters):
            connection.close()


async def _create_queues(report: Report, connections: list[HttpConnection], signer: Signer) -> list[str]:
    urls: list[str] = []
    names = itertools.count()

    async def create(connection: HttpConnection) -> None:
        while (number := next(names)) < QUEUES:
            answer = await ask_sqs(connection, signer, "CreateQueue", {"QueueName": f"empty-{number}"})
            urls.append(answer["QueueUrl"])

    started = time.perf_counter()
    await asyncio.gather(*map(create, connections))
    report.add(f"queues created, {CREATORS} at a time", QUEUES / (time.perf_counter() - started), "1/s")
    return urls


async def _go_round(connection: HttpConnection, signer: Signer, urls: list[str], start: int) -> None:
    for at in itertools.count(start, CONSUMERS):
        await _receive(connection, signer, urls[at % len(urls)])


async def _wakes(
    report: Report, sender: HttpConnection, waiters: list[HttpConnection], signer: Signer, urls: list[str]
) -> None:
    """From before the send to after the receive's answer was read; half the time before the send is answered."""
    after_ms: list[float] = []
    numbers = itertools.count()
    parked: dict[int, asyncio.Task[float]] = {}

    async def wait(waiter: HttpConnection, url: str) -> float:
        messages = (await _receive(waiter, signer, url))["Messages"]
        assert len(messages) == 1, messages
        return time.perf_counter()

    for at, waiter in enumerate(waiters):
        parked[at] = asyncio.create_task(wait(waiter, urls[at]))
    await asyncio.sleep(SETTLE_S)
    for _ in range(WAKES):
        at = next(numbers) % CONSUMERS
        started = time.perf_counter()
        await ask_sqs(sender, signer, "SendMessage", {"QueueUrl": urls[at], "MessageBody": "x" * 200})
        after_ms.append((await parked[at] - started) * 1000)
        parked[at] = asyncio.create_task(wait(waiters[at], urls[at]))
        await asyncio.sleep(max(0.0, 1 / WAKES_PER_S - (time.perf_counter() - started)))
    for task in parked.values():
        task.cancel()
    for percent in (50, 99):
        report.add(f"send to its waiter's answer, p{percent}", percentile(after_ms, percent), "ms")
    report.add("send to its waiter's answer, worst", max(after_ms), "ms")


async def _receive(connection: HttpConnection, signer: Signer, url: str) -> dict[str, Any]:
    return await ask_sqs(connection, signer, "ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": WAIT_S})


def main() -> int:
    report = Report("long-poll")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
