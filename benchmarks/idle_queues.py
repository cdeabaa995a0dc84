"""Thousands of queues that nobody uses, on three real nodes: what they cost, and what a crash with them costs.

    ./penstock bench idle-queues [QUEUES] [--metered]

`--metered`: of queues whose use is counted for an account. Client, nodes and disk share the machine. Aims: CPU near
zero, under 3 KB of memory for each replica; a leader kill and a node restart within 10 s, better 5. Memory is the
anonymous resident part (RssAnon) above that of the empty node.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import psutil
import uvloop

from benchmarks.report import Report
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.limits import DESCRIBE_PARTITIONS_MAX
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import PartitionInfo, QueueConfig
from storage_nodes.protocol.records import encode_body

QUEUES = 20_000
CREATES_IN_FLIGHT = 256
IDLE_S = 20.0
SETTLE_S = 3.0
# Waiting for all to be well gives up after this.
WAIT_S_MAX = 120.0
LOOK_S = 0.2
SAMPLE_SENDS = 200
DIRTY_SENDS_IN_FLIGHT = 256
BYTES_PER_REPLICA_MAX = 3 * 1024
RECOVERY_S_MAX = 10.0

# One into each of 20,000 queues fills a file of the write-ahead log: a flush follows.
BODY = encode_body(b"x" * 4_096)


async def run(report: Report, queues: int, metered: bool) -> None:
    cluster = StorageCluster()
    began = time.monotonic()
    cluster.start_all()
    client = await cluster.client()
    try:
        await cluster.create_partition(client, PartitionKind.QUEUE, "bench:first")
        report.add("three empty nodes up, first queue made", time.monotonic() - began, "s")
        report.add("load of the machine before", os.getloadavg()[0], "")
        bench = IdleQueues(cluster, client, report, queues, metered)
        await bench.create()
        await bench.idle("idle")
        await bench.kill_and_return()
        await bench.dirty()
        await bench.cold_start()
        await bench.idle("idle after the cold start")
        report.add("load of the machine after", os.getloadavg()[0], "")
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


class IdleQueues:
    def __init__(
        self, cluster: StorageCluster, client: StorageClient, report: Report, queues: int, metered: bool
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.report = report
        self.queues = queues
        self.config = QueueConfig(account_id="1" * 12 if metered else "")
        self.partitions: list[int] = []
        self.empty_bytes: dict[int, int] = {}
        # What `all_led` has not seen led yet.
        self.pending: set[int] = set()

    async def create(self) -> None:
        self.empty_bytes = self.resident()
        began = time.monotonic()
        tags = iter(range(self.queues))

        async def worker() -> None:
            for number in tags:
                tag = f"queue:{number:032x}:0"
                info = await self.client.create_partition(PartitionKind.QUEUE, tag, self.config)
                self.partitions.append(info.partition)

        await asyncio.gather(*(worker() for _ in range(CREATES_IN_FLIGHT)))
        self.pending = set(self.partitions)
        self.report.add("queues created", self.queues / (time.monotonic() - began), "1/s")
        await self.timed("until all of them have a leader", began, self.all_led)
        await asyncio.sleep(SETTLE_S)
        self.memory("after creation")

    async def idle(self, label: str) -> None:
        await asyncio.sleep(SETTLE_S)
        before = self.cpu()
        await asyncio.sleep(IDLE_S)
        after = self.cpu()
        for node_id, spent in after.items():
            self.report.add(f"CPU {label}, node {node_id}", (spent - before[node_id]) / IDLE_S * 100, "% of one core")
        self.memory(label)

    async def kill_and_return(self) -> None:
        """SIGKILL of the node that leads most; then its return."""
        view = await self.client.describe()
        led = Counter(row.leader for row in view.partitions)
        victim = led.most_common(1)[0][0]
        known = set(self.partitions)
        orphans = [row.partition for row in view.partitions if row.leader == victim and row.partition in known]
        self.report.add("led by the node that is killed", len(orphans), "queues")
        began = time.monotonic()
        self.cluster.kill(victim)
        self.pending = set(orphans)
        sample = random.sample(orphans, min(SAMPLE_SENDS, len(orphans)))
        sends = asyncio.create_task(self.sends(sample, 16))
        await self.timed("killed: until every queue has a live leader", began, self.all_led)
        await sends
        self.pending = set(self.partitions)
        await self.all_led()
        self.report.add("killed: queues led by the others that lost their leader too", len(self.pending), "queues")
        self.report.add(f"killed: until {len(sample)} sends to its queues succeeded", time.monotonic() - began, "s")
        began = time.monotonic()
        self.cluster.start(victim)
        await self.timed("restarted: until it is up", began, lambda: self.answers(victim))
        self.pending = set(self.partitions)
        await self.timed("restarted: until it knows the leader of each queue", began, lambda: self.knows_all(victim))

    async def dirty(self) -> None:
        """One message into every queue: what the flush of so many small logs costs."""
        began = time.monotonic()
        began_wall_ms = time.time() * 1000
        failed = await self.sends(self.partitions, DIRTY_SENDS_IN_FLIGHT)
        self.report.add("one message into every queue", self.queues / (time.monotonic() - began), "msg/s")
        self.report.add("  sends of them that failed and were repeated", failed, "sends")
        await asyncio.sleep(SETTLE_S)
        view = await self.client.describe()
        moved = [row for row in view.partitions if row.leader_since_ms > began_wall_ms]
        self.report.add("queues whose leader changed meanwhile", len(moved), "queues")
        self.memory("with a message in every queue")

    async def cold_start(self) -> None:
        began = time.monotonic()
        await asyncio.to_thread(self.cluster.stop)
        self.report.add("clean stop of all three nodes", time.monotonic() - began, "s")
        began = time.monotonic()
        self.cluster.start_all()
        self.pending = set(self.partitions)
        await self.timed("cold start: until every queue has a leader", began, self.all_led)

    # --- measuring --------------------------------------------------------------------------------------------

    def resident(self) -> dict[int, int]:
        return {node_id: _anonymous_bytes(process.pid) for node_id, process in sorted(self.cluster.processes.items())}

    def cpu(self) -> dict[int, float]:
        return {
            node_id: sum(psutil.Process(process.pid).cpu_times()[:2])
            for node_id, process in sorted(self.cluster.processes.items())
        }

    def memory(self, label: str) -> None:
        for node_id, now_bytes in self.resident().items():
            each = (now_bytes - self.empty_bytes[node_id]) / self.queues
            self.report.add(f"memory per replica, node {node_id}, {label}", each, "bytes")

    async def timed(self, label: str, began: float, is_done: Callable[[], Awaitable[bool]]) -> None:
        while not await is_done():
            if time.monotonic() - began > WAIT_S_MAX:
                raise SystemExit(f"gave up after {WAIT_S_MAX:.0f} s: {label}")
            await asyncio.sleep(LOOK_S)
        self.report.add(label, time.monotonic() - began, "s")

    async def sends(self, partitions: list[int], in_flight: int) -> int:
        """One message to each; how many sends failed for good and were repeated."""
        waiting = iter(partitions)
        failed = 0

        async def worker() -> None:
            nonlocal failed
            for partition in waiting:
                while True:
                    try:
                        await self.client.send(partition, [BODY])
                        break
                    except StorageError:
                        failed += 1

        await asyncio.gather(*(worker() for _ in range(in_flight)))
        return failed

    async def all_led(self) -> bool:
        """Has each queue a leader that says so itself? Those that have are not asked for again."""
        for node_id in self.cluster.processes:
            self.pending -= {row.partition for row in await self.asked(node_id) if row.leader == node_id}
        return not self.pending

    async def answers(self, node_id: int) -> bool:
        try:
            return bool((await self.client.describe_node(node_id, [0])).nodes)
        except StorageError:
            return False

    async def knows_all(self, node_id: int) -> bool:
        """Does every replica of the node follow a leader, or lead?"""
        self.pending -= {row.partition for row in await self.asked(node_id) if row.leader}
        return not self.pending

    async def asked(self, node_id: int) -> list[PartitionInfo]:
        """What the node says of the pending queues."""
        rows: list[PartitionInfo] = []
        pending = sorted(self.pending)
        try:
            for first in range(0, len(pending), DESCRIBE_PARTITIONS_MAX):
                share = pending[first : first + DESCRIBE_PARTITIONS_MAX]
                rows += (await self.client.describe_node(node_id, share)).partitions
        except StorageError:
            pass
        return rows


def _anonymous_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queues", type=int, nargs="?", default=QUEUES)
    parser.add_argument("--metered", action="store_true")
    options = parser.parse_args()
    report = Report("idle_queues")
    uvloop.run(run(report, options.queues, options.metered))
    report.print()
    return 0 if all(map(_is_within_aims, report.figures)) else 1


def _is_within_aims(figure: tuple[str, float, str]) -> bool:
    label, value, _ = figure
    if label.startswith(("killed:", "restarted:")):
        return value < RECOVERY_S_MAX
    return not label.startswith("memory per replica") or "idle" not in label or value < BYTES_PER_REPLICA_MAX


if __name__ == "__main__":
    sys.exit(main())
