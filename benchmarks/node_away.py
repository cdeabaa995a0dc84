"""One of three storage nodes is killed, stays away, and comes back, again and again, under load.

    ./penstock bench node_away [--cycles N] [--away-s S] [--rate MSG/S] [--seed N]

Two questions: how many one-second windows of a queue have an acknowledged send (clients retry as they always do), and
how much slower are sends while the returning node catches up. Without --rate the load is a closed loop of a fixed
number of calls in flight that takes all the machine has, so that whatever the node's return costs shows in the rate;
with it, what shows is how long sends take. Client, nodes and disk share the machine; a node counts as level again once
a send that asks for all voters was acknowledged on every queue.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from itertools import pairwise

import uvloop

from benchmarks.report import Report, percentile
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import Acks, PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.records import encode_body

QUEUES = 12
IN_FLIGHT_PER_QUEUE = 2
BODY_BYTES = 1024
BATCH = 5
ACQUIRE_MAX = 1_000
VISIBILITY_MS = 30_000
WAIT_MS = 1_000
CONSUME_PAUSE_S = 0.2
WHOLE_S = 10.0
LEVEL_TIMEOUT_S = 120.0
RETRY_PAUSE_S = 0.05
WINDOW_S = 1.0

# (start, end) in seconds of perf_counter.
Span = tuple[float, float]


class Load:
    """Senders and a consumer on every queue, and the times of all acknowledgements."""

    def __init__(self, client: StorageClient, queues: list[int], rate: float) -> None:
        self.client = client
        self.queues = queues
        # Between two sends of one sender; 0 = none.
        self._pause_s = BATCH * IN_FLIGHT_PER_QUEUE * len(queues) / rate if rate else 0.0
        self.took_s: list[tuple[float, float]] = []  # (when a send began, how long it took)
        self.acked_s: dict[int, list[float]] = {queue: [] for queue in queues}
        self._body = encode_body(os.urandom(BODY_BYTES))
        self._going_on = True
        self._senders = [
            asyncio.create_task(self._send(queue)) for queue in queues for _ in range(IN_FLIGHT_PER_QUEUE)
        ] + [asyncio.create_task(self._consume(queue)) for queue in queues]

    async def _send(self, queue: int) -> None:
        acked_s = self.acked_s[queue]
        bodies = [self._body] * BATCH
        began = time.perf_counter()
        while self._going_on:
            try:
                await self.client.send(queue, bodies)
            except StorageError:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            now = time.perf_counter()
            acked_s.append(now)
            self.took_s.append((began, now - began))
            # Against a schedule: what was late is made up for, and counts as late.
            began = began + self._pause_s if self._pause_s else now
            await asyncio.sleep(max(0.0, began - now))

    async def _consume(self, queue: int) -> None:
        """In large batches, so that most of the work is that of the sends."""
        while self._going_on:
            try:
                reply = await self.client.acquire(queue, ACQUIRE_MAX, VISIBILITY_MS, WAIT_MS)
                if reply.messages:
                    await self.client.delete(queue, [(message.offset, message.delivery) for message in reply.messages])
            except StorageError:
                await asyncio.sleep(RETRY_PAUSE_S)
            await asyncio.sleep(CONSUME_PAUSE_S)

    async def level(self) -> None:
        """Every voter of every queue has what was acknowledged before this call."""
        end = time.perf_counter() + LEVEL_TIMEOUT_S
        for queue in self.queues:
            while True:
                try:
                    await self.client.send(queue, [self._body], acks=Acks.ALL)
                    break
                except StorageError:
                    if time.perf_counter() > end:
                        raise
                    await asyncio.sleep(RETRY_PAUSE_S)

    async def stop(self) -> None:
        self._going_on = False
        await asyncio.gather(*self._senders)

    def rate(self, spans: list[Span]) -> float:
        """Messages a second over the spans."""
        count = sum(sum(start <= at < end for start, end in spans) for acked in self.acked_s.values() for at in acked)
        return count * BATCH / sum(end - start for start, end in spans)

    def windows(self, span: Span) -> tuple[int, int]:
        """(windows, those with an acknowledgement), over all queues."""
        count = int((span[1] - span[0]) / WINDOW_S)
        served = 0
        for acked in self.acked_s.values():
            numbers = {int((at - span[0]) / WINDOW_S) for at in acked if at >= span[0]}
            served += len([number for number in numbers if number < count])
        return count * len(self.queues), served

    def p99_ms(self, spans: list[Span]) -> float:
        took = [seconds for began, seconds in self.took_s if any(start <= began < end for start, end in spans)]
        return percentile(took, 99) * 1000

    def longest_gap_s(self) -> float:
        return max(later - earlier for acked in self.acked_s.values() for earlier, later in pairwise(acked))


async def run(report: Report, cycles: int, away_s: float, rate: float, seed: int) -> None:
    rng = random.Random(seed)
    cluster = StorageCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        queues = [await cluster.create_partition(client, PartitionKind.QUEUE, f"bench:{n}") for n in range(QUEUES)]
        load = Load(client, queues, rate)
        await asyncio.sleep(WHOLE_S / 2)
        started = time.perf_counter()
        spans: dict[str, list[Span]] = {"whole": [], "away": [], "catching up": []}
        for number in range(cycles):
            await _cycle(cluster, load, rng.choice([1, 2, 3]), away_s, spans)
            sys.stderr.write(f"  cycle {number + 1} of {cycles}\n")
        ended = time.perf_counter()
        await load.stop()
        _report(report, load, (started, ended), spans)
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _cycle(cluster: StorageCluster, load: Load, victim: int, away_s: float, spans: dict[str, list[Span]]) -> None:
    start = time.perf_counter()
    await asyncio.sleep(WHOLE_S)
    killed = time.perf_counter()
    cluster.kill(victim)
    await asyncio.sleep(away_s)
    back = time.perf_counter()
    cluster.start(victim)
    await load.level()
    level = time.perf_counter()
    spans["whole"].append((start, killed))
    # The first half has the failover in it, which is counted by the windows.
    spans["away"].append((killed + away_s / 2, back))
    spans["catching up"].append((back, level))


def _report(report: Report, load: Load, span: Span, spans: dict[str, list[Span]]) -> None:
    windows, served = load.windows(span)
    report.add("one-second windows, all queues", windows, "")
    report.add("  with an acknowledged send", served / windows * 100, "%")
    report.add("longest time without one on a queue", load.longest_gap_s(), "s")
    rates = {name: load.rate(those) for name, those in spans.items()}
    for name, rate in rates.items():
        report.add(f"rate, {name}", rate, "msg/s")
        report.add(f"  time of a send, {name}, p99", load.p99_ms(spans[name]), "ms")
    lengths = [end - start for start, end in spans["catching up"]]
    report.add("start to level, p50", percentile(lengths, 50), "s")
    report.add("start to level, worst", max(lengths), "s")
    report.add("rate catching up / whole", rates["catching up"] / rates["whole"], "ratio")
    report.add("rate catching up / away", rates["catching up"] / rates["away"], "ratio")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench node_away")
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--away-s", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; 0 = as many as go")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    report = Report("node_away")
    uvloop.run(run(report, arguments.cycles, arguments.away_s, arguments.rate, arguments.seed))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
