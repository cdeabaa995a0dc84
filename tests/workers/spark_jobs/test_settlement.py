"""From the lake into PostgreSQL: the rows that the billing merges; and the same job on a cluster of processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pyspark.sql import SparkSession

from api.billing.merging import DAY_COLUMNS
from api.billing.models import HourlyUsage, QuarantinedUsage
from storage_nodes.protocol.usage import Origin
from tests.api.billing.usage import open_since
from tests.support.control_plane import Caller
from tests.support.java import OF_JVMS
from tests.workers.spark_jobs.frames import QUEUE, batches_frame, counters, encode_record, java_or_skip, window
from tests.workers.spark_jobs.streams import Streams
from workers.spark_jobs.jobs.settle import settle_hours
from workers.spark_jobs.lake.ingestion import ingest_records
from workers.spark_jobs.lake.manifest import Lake
from workers.spark_jobs.limits import HOUR_MS
from workers.spark_jobs.schemas.usage_record import RequestReport, RequestRow, UsageWindow
from workers.spark_jobs.spans import HourSpan
from workers.usage.settling import begin_settlement, files_of, merge_settlement

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIRST_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC: over, as the fill ledger wants it
SPAN = HourSpan(FIRST_MS, FIRST_MS + 3 * HOUR_MS)
RUN = UUID(int=3)
CLUSTER_START_S = 60
JOB_S_MAX = 200


def january(at: int, partition: int = 7, **fields: object) -> UsageWindow:
    hour_ms = FIRST_MS + at * HOUR_MS
    one = window(0, partition)
    return msgspec.structs.replace(one, **{"hour_ms": hour_ms, "until_ms": hour_ms + HOUR_MS, **fields})


def test_settlement_of_a_lake_is_merged_and_again_changes_nothing(
    spark: SparkSession, caller: Caller, tmp_path: Path
) -> None:
    open_since(caller.account_id, datetime.fromtimestamp(FIRST_MS / 1000, UTC))
    lake = Lake(tmp_path)
    own = {"account_id": caller.account_id}
    push = [counters(Origin.PUSH, delivered=3, delivered_bytes=30, delivered_units=3)]
    records = [
        january(0, stored_byte_ms=500, stored_bytes=20, **own),
        january(0, 8, origins=push, **own),
        january(1, 9, account_id="999999999999"),
        RequestReport(b"f" * 16, 1, FIRST_MS, [RequestRow(caller.account_id, QUEUE, "AKPSX", 9, 2, 1)]),
    ]
    rows = [(3, at, encode_record(one)) for at, one in enumerate(records)]
    ingest_records(lake, batches_frame(spark, rows), "a", SPAN.to_ms)
    for number in range(2):
        answer = settle_hours(spark, lake, SPAN, str(RUN), SPAN.to_ms)
        begin_settlement(RUN, SPAN)
        merged = merge_settlement(Path(answer["directory"]), RUN, SPAN)
        assert (merged.merged, merged.removed, merged.quarantined) == ((5, 0, 1), (0, 0, 1))[number]
    found = HourlyUsage.objects.order_by("hour", "partition_id", "origin").values_list(
        "partition_id", "origin", "messages_sent", "messages_delivered", "stored_byte_ms", "requests", "empty_receives"
    )
    kept = Decimal(20 * HOUR_MS)
    assert list(found) == [
        (-1, "client", 0, 0, 0, 9, 2),
        (0, "client", 1, 0, Decimal(500), 0, 0),
        (0, "push", 0, 3, 0, 0, 0),
        (0, "client", 0, 0, kept, 0, 0),
        (0, "client", 0, 0, kept, 0, 0),
    ]
    assert list(QuarantinedUsage.objects.values_list("reason", "account_id")) == [("unknown_account", "999999999999")]
    assert answer["conflicts"] == [] and answer["refused_files"] == []


# --- a real master and a real worker ------------------------------------------------------------------------


def spark_class(name: str, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    settings = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
    environment = {**os.environ, **OF_JVMS, **settings, "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYTHONPATH", None)  # the code comes with the job
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, *arguments], env=environment, stdout=output, stderr=output, start_new_session=True
        )


def wait_for(log: Path, pattern: str) -> None:
    deadline = time.monotonic() + CLUSTER_START_S
    while not re.search(pattern, log.read_text(errors="replace")):
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a standalone cluster of two processes on loopback."""
    java_or_skip()
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    logs = [tmp_path / "master.log", tmp_path / "worker.log"]
    processes = [spark_class("master.Master", *place, "--port", str(port), log=logs[0])]
    try:
        wait_for(logs[0], "I have been elected leader|ALIVE")
        own = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
        processes.append(spark_class("worker.Worker", *place, *own, url, log=logs[1]))
        wait_for(logs[1], "Successfully registered with master")
        yield url
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_same_jobs_run_on_a_standalone_cluster(master: str, streams: Streams, tmp_path: Path) -> None:
    """Ingestion, the job with the most on the cluster's side: its Python workers read storage nodes and decode, with
    the code that the job brings along. And a settlement, which they write into the folder that all share."""
    streams.append(0, encode_record(january(0)), encode_record(january(1)), b"rubbish")
    place = ["--cluster-id", streams.cluster.cluster_id, "--nodes", streams.nodes]
    answer = job_on(master, tmp_path, "ingest", *place)
    assert (answer["windows"], answer["quarantine"]) == (2, 1)
    assert [entry.rows("windows") for entry in Lake(tmp_path / "lake").entries()] == [2]
    hours = ["--from", str(january(0).hour_ms), "--to", str(january(2).hour_ms)]
    answer = job_on(master, tmp_path, "settle", *hours, "--run", str(UUID(int=9)))
    lines = b"".join(piece for file in files_of(Path(answer["directory"])) for piece in file).decode().splitlines()
    assert sum(int(line.split("\t")[DAY_COLUMNS.index("messages_sent")]) for line in lines) == 2
    for job in ("ingest", "settle"):
        assert f"Registered app penstock {job}" in (tmp_path / "master.log").read_text(), "the cluster ran it"


def job_on(master: str, place: Path, name: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "workers.spark_jobs", name, "--lake", str(place / "lake"), *arguments]
    environment = {**os.environ, **OF_JVMS, "SPARK_MASTER": master, "PENSTOCK_SPARK_MEMORY_MIB": "512"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=JOB_S_MAX)
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
