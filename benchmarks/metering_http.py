"""What metering costs the whole message path, from HTTP request to answer: a queue that is metered beside two that are
not, in turns, on one installation.

    ./penstock bench metering-http

Of send + receive + delete, one at a time and in batches of ten, medians of the turns' ratios, metered to not metered:
rate (the aim is at least 0.97) and CPU of front end, nodes and load generator a message. The second queue that is not
metered says how far the figures can be trusted. A queue is not metered where its partition names no account; the front
end makes no difference between them: what it does for metering itself is not in the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
import psutil
import uvloop

from benchmarks.http_load import HttpConnection, LoadTarget, Signer, ask_sqs, cycle_until, open_connections
from benchmarks.metering import report_ratios
from benchmarks.process_cost import cpu_s
from benchmarks.report import Report
from benchmarks.storage_cluster import leader_of
from benchmarks.temporary_installation import TemporaryInstallation
from benchmarks.usage_now import close
from deploy.installation import Installation
from storage_nodes.client import StorageClient
from storage_nodes.limits import MIB
from storage_nodes.log.record_batch import iterate_bodies
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import decode_body
from storage_nodes.protocol.usage import USAGE_TAG

TURNS = int(os.environ.get("PENSTOCK_BENCH_METERING_TURNS", "150"))
TURN_S = 0.4
CONNECTIONS = 32
MESSAGE_BYTES = 1_024
# Leaders are spread over the nodes: of so many queues three are led alike.
QUEUES_MAX = 60
MADE_S_MAX = 20.0


class MeteringTurn(NamedTuple):
    rate_s: float
    cpu_us: float  # a message, of all processes that it passes


class MeteringLane:
    """Who asks, and whose CPU it costs."""

    def __init__(self, connections: list[HttpConnection], signer: Signer, processes: list[psutil.Process]) -> None:
        self._connections, self._signer = connections, signer
        self._processes = processes
        self._text = "x" * MESSAGE_BYTES

    async def turn(self, url: str, size: int) -> MeteringTurn:
        began_s, began_cpu_s = time.perf_counter(), self._cpu_s()
        asked = (url, size, lambda: self._text, began_s + TURN_S)
        workers = [cycle_until(one, self._signer, *asked) for one in self._connections]
        cycled = sum(await asyncio.gather(*workers))
        return MeteringTurn(cycled / (time.perf_counter() - began_s), (self._cpu_s() - began_cpu_s) / cycled * 1e6)

    def _cpu_s(self) -> float:
        return sum(cpu_s(process.pid) for process in self._processes)


async def run(report: Report) -> None:
    with TemporaryInstallation() as installation:
        target = LoadTarget(**installation.target())
        signer = Signer(target)
        connections = await open_connections(target.host, target.port, CONNECTIONS)
        async with _storage_of(installation) as client:
            queues = await _queues(client, connections[0], signer)
        roles = installation.processes().items()
        passed = [process for name, own in roles if name.startswith(("frontend", "storage")) for process in own]
        lane = MeteringLane(connections, signer, [*passed, psutil.Process()])
        for size, label in ((1, "one at a time"), (10, "batches of ten")):
            turns: list[list[MeteringTurn]] = [[] for _ in queues]
            for number in range(-1, TURNS):
                for place in range(len(queues)):
                    at = (number + place) % len(queues)
                    one = await lane.turn(queues[at][0], size)
                    if number >= 0:  # the first ones warm up
                        turns[at].append(one)
            cycle = f"send + receive + delete, {label}"
            report_ratios(report, cycle, "metered", turns[0], turns[1])
            report_ratios(report, cycle, "a second one that is not metered", turns[2], turns[1])
            report.add(f"  CPU of all a message, not metered, {label}", _cost(turns[1]), "us")
            report.add(f"  the same, metered, {label}", _cost(turns[0]), "us")
        async with _storage_of(installation) as client:
            partitions = [partition for _, partition in queues]
            if await _metered(client, partitions) != {partitions[0]}:
                raise RuntimeError("what was compared is not one metered queue beside two that are not")


def _cost(turns: list[MeteringTurn]) -> float:
    return statistics.median(turn.cpu_us for turn in turns)


@contextlib.asynccontextmanager
async def _storage_of(installation: TemporaryInstallation) -> AsyncIterator[StorageClient]:
    own = Installation(installation.data_directory)
    state = own.load_state()
    client = StorageClient(state.cluster_id, own.nodes(state), "bench", credentials=own.credentials(state))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def _queues(client: StorageClient, connection: HttpConnection, signer: Signer) -> list[tuple[str, int]]:
    """URL and partition of three queues that have one leader; all but the first are not metered."""
    led_alike: dict[int, list[tuple[str, int]]] = defaultdict(list)
    known = {row.partition for row in (await client.describe()).partitions}
    for number in range(QUEUES_MAX):
        url = str((await ask_sqs(connection, signer, "CreateQueue", {"QueueName": f"bench-{number}"}))["QueueUrl"])
        partition = await _made(client, known)
        known.add(partition)
        alike = led_alike[await leader_of(client, partition)]
        alike.append((url, partition))
        if len(alike) == 3:
            # Before their first message: a meter that has counted something stays until its hour is over.
            for _, unmetered in alike[1:]:
                await client.configure(unmetered, QueueConfig())
            return alike
    raise RuntimeError(f"of {QUEUES_MAX} queues no three are led alike")


async def _made(client: StorageClient, known: set[int]) -> int:
    """The partition that is new, once a node tells of it."""
    async with asyncio.timeout(MADE_S_MAX):
        while True:
            rows = (await client.describe()).partitions
            if new := {row.partition for row in rows if row.tag.startswith("queue:")} - known:
                return new.pop()
            await asyncio.sleep(0.05)


async def _metered(client: StorageClient, partitions: list[int]) -> set[int]:
    """Those of which the usage stream tells."""
    for node in (await client.describe()).nodes:
        await close(client, node.node_id)
    stream = (await client.create_partition(PartitionKind.STREAM, USAGE_TAG)).partition
    found: set[int] = set()
    offset = 0
    while True:
        page = await client.stream_read(stream, offset, MIB)
        for batch in page.batches:
            for _, body in iterate_bodies(batch):
                found.add(msgspec.msgpack.decode(decode_body(body).value[2:])[1])
        offset = page.next_offset
        if offset >= page.high_watermark:
            return found.intersection(partitions)


def main() -> int:
    report = Report("metering_http")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
