"""The usage stream into the lake: records per second of the ingestion job, from a real stream on three real nodes.

    ./penstock bench usage-ingestion [RECORDS]

RECORDS (default 5,000,000) windows, encoded by what storage nodes write them with, lie in the usage stream; then a job
of Spark ingests them on two threads. It runs once more when nothing is new: what it costs to start. The rate is of the
whole run, start included; beside it that of what came beyond the start. Aim: 50,000 records/s on two cores; nodes and
job share the machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.process_cost import Cost, measured
from benchmarks.report import Report
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind, format_node_list
from storage_nodes.node.transport.inter_partition_client import USAGE_TAG
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.usage import Origin
from storage_nodes.protocol.usage_records import HOUR_MS, window_record
from storage_nodes.trust.names import InnerRole

RECORDS = 5_000_000
QUEUES = 20_000
ACCOUNTS = 1_000
RECORDS_OF_APPEND = 1_000
IN_FLIGHT = 16
APPEND_ATTEMPTS = 20
RETRY_S = 0.2
SPARK_MEMORY_MIB = "2048"
# 2026-10-01 00:00 UTC: over.
FIRST_MS = 1_790_812_800_000
RATE_AIM = 50_000


class BenchWindow(NamedTuple):
    """`storage_nodes.protocol.usage_records.ClosedWindow`."""

    hour_ms: int
    until_ms: int
    stored_byte_ms: int
    stored_bytes: int
    origins: Sequence[Sequence[int]]


async def fill(cluster: StorageCluster, records: int) -> None:
    """Exactly so many windows, each once: an append is repeated only where nothing of it was written."""
    client = await cluster.client()
    try:
        partition = await cluster.create_partition(client, PartitionKind.STREAM, USAGE_TAG)
        begins = iter(range(0, records, RECORDS_OF_APPEND))

        async def worker() -> None:
            for begin in begins:
                numbers = range(begin, min(begin + RECORDS_OF_APPEND, records))
                await append(client, partition, [record(number) for number in numbers])

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(worker())
    finally:
        await client.close()


async def append(client: StorageClient, partition: int, bodies: list[bytes]) -> None:
    for attempt in range(APPEND_ATTEMPTS):
        try:
            await client.stream_append(partition, bodies)
            return
        except StorageError:
            if attempt + 1 == APPEND_ATTEMPTS:
                raise
            await asyncio.sleep(RETRY_S)


def record(number: int) -> bytes:
    """The window of a queue in an hour; every third one has a second origin."""
    queue, hour = number % QUEUES, number // QUEUES
    sent, size = 1 + number % 50, 100 + number % 9_000
    client = (int(Origin.CLIENT), sent, sent, sent, 0, 0, 0, sent * size, sent * size, sent, sent)
    push = (int(Origin.PUSH), 0, sent, sent, 0, 0, 0, 0, sent * size, 0, sent)
    hour_ms = FIRST_MS + hour * HOUR_MS
    origins = [client, push] if number % 3 == 0 else [client]
    window = BenchWindow(hour_ms, hour_ms + HOUR_MS, size * HOUR_MS, size, origins)
    return window_record("bench", queue, f"{100_000_000_000 + queue % ACCOUNTS}", queue.to_bytes(16), window)


def ingest(cluster: StorageCluster, directory: Path) -> Cost:
    command = [sys.executable, "-m", "workers.spark_jobs", "ingest", "--lake", str(directory / "lake")]
    command += ["--cluster-id", cluster.cluster_id, "--nodes", format_node_list(cluster.addresses)]
    settings = {"SPARK_MASTER": "local[2]", "PENSTOCK_SPARK_MEMORY_MIB": SPARK_MEMORY_MIB}
    settings |= cluster.certificate_settings(InnerRole.WORKER, "usage")
    return measured(command, {**settings, "SPARK_LOCAL_DIRS": str(directory / "spill")})


def measure(report: Report, records: int, cluster: StorageCluster, directory: Path) -> float:
    """The rate of the whole run."""
    began_s = time.monotonic()
    uvloop.run(fill(cluster, records))
    report.add("records written into the stream", records / (time.monotonic() - began_s), "records/s")
    cost, idle = ingest(cluster, directory), ingest(cluster, directory)
    if not (cost.ended and idle.ended):
        raise SystemExit(f"not done after {max(cost.seconds, idle.seconds):.0f} s")
    expected = records + len(range(0, records, 3))
    answer = json.loads(cost.answer)
    assert (answer["windows"], answer["quarantine"]) == (expected, 0), f"{answer}: {expected} rows were written"
    assert json.loads(idle.answer)["windows"] == 0, "records were read twice"
    report.add("records", records, "records")
    report.add("ingested, from start to end of the process", cost.seconds, "s")
    report.add("  CPU", cost.cpu_s, "CPU s")
    report.add("  greatest resident size", cost.resident_mib, "MiB")
    report.add("nothing new, from start to end of the process", idle.seconds, "s")
    report.add("  CPU", idle.cpu_s, "CPU s")
    report.add("ingested", records / cost.seconds, "records/s")
    if cost.seconds > idle.seconds:
        report.add("ingested, beyond the start", records / (cost.seconds - idle.seconds), "records/s")
    if cost.cpu_s > idle.cpu_s:
        report.add("CPU of a record, beyond the start", (cost.cpu_s - idle.cpu_s) / records * 1e6, "us")
    return records / cost.seconds


def main() -> int:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    report = Report("usage_ingestion")
    cluster = StorageCluster()
    cluster.start_all()
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-ingestion-") as directory:
            rate = measure(report, records, cluster, Path(directory))
    finally:
        cluster.stop()
        cluster.remove()
    report.print()
    return 0 if rate >= RATE_AIM else 1


if __name__ == "__main__":
    sys.exit(main())
