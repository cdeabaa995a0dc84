"""Clients' own counts against the month's figures: `python -m tests.blackbox.usage --operations 200000 [--kills 12]`.

Several accounts, each with a standard and a FIFO queue, send, receive and delete while leaders and front ends are
killed, queues are deleted with messages in them, and the partitions of a FIFO queue are replaced. An ingestion by Spark
is killed in the middle. Then the open windows are closed, Spark ingests the rest of the stream and sums the month, and
its quantities are compared with what the clients were told, queue by queue, deleted ones too; the live meter's
figures must be those of Spark.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from deploy.installation import Installation
from storage_nodes.trust.names import InnerRole
from tests.blackbox.usage_changes import (
    DeletedQueues,
    make_spread_queue,
    replace_partitions,
    request,
    wait_gone,
)
from tests.blackbox.usage_clients import ClientQueue, UsageClient
from tests.blackbox.usage_ledger import DELETED, DELIVERED, SENT, SENT_BYTES, SENT_UNITS, Finding, UsageLedger
from tests.support.installation import ROOT, RunningInstallation, running, wait_until

ACCOUNTS = 3
CLIENTS_S_MAX = 3_600.0
RECOVERY_S_MAX = 60.0
# From one kill to the next, where the load is so short that it must be spread.
KILL_S = 8.0
JOBS_S_MAX = 1_800.0
RUN_JOBS = """
import json, sys
from workers.spark_jobs.__main__ import main
for job in json.loads(sys.argv[1]):
    if main(job) != 0:
        sys.exit(f"{job[0]} failed")
"""
# An ingestion is killed so long after it began, once its Java is at work.
ARCHIVER_S = 12.0
# Names of the pipeline's columns, and those of the invoice.
COLUMNS = {
    "sent": SENT, "delivered": DELIVERED, "deleted": DELETED, "sent_bytes": SENT_BYTES, "sent_units": SENT_UNITS,
}  # fmt: skip
Billed = dict[tuple[str, str], dict[str, int]]


class Proof(NamedTuple):
    """`deleted`: how many of the queues were deleted in use."""

    operations: int
    kills: int
    deleted: int
    findings: list[Finding]
    meter_differs: list[str]
    unknown: list[str]
    seconds: dict[str, float]

    @property
    def wrong(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.is_right]


def prove(
    installation: RunningInstallation, operations: int, kills: int, seed: int = 1, kills_archiver: bool = False
) -> Proof:
    """Works on accounts of its own; the installation may be used by others."""
    ledger, marks = UsageLedger(), [time.monotonic()]
    queues = make_queues(installation, ACCOUNTS)
    spread = queues[-1]
    deleted = DeletedQueues(queues[0], ledger, seed * 7)
    clients = [
        UsageClient(queue, ledger, operations // (3 * len(queues)) + 1, seed * 1000 + number, kills * KILL_S)
        for number, queue in enumerate(queues)
    ]
    for client in clients:
        client.thread.start()
    deleted.thread.start()
    replace_partitions(spread)
    killed = kill_around(installation, clients, ledger, kills, random.Random(seed), operations)
    for client in [*clients, deleted]:
        client.thread.join(CLIENTS_S_MAX)
        assert not client.thread.is_alive(), "a client does not end"
        if client.failure is not None:
            raise client.failure
    installation.wait_healthy()
    spread_id = request(spread, "GET", f"/v1/queues/{spread.name}").json()["queue_id"]
    wait_gone(installation, list(deleted.names), spread_id)
    marks.append(time.monotonic())
    with tempfile.TemporaryDirectory(prefix="penstock-lake-") as lake:
        if kills_archiver:
            kill_ingestion(installation, Path(lake))
        marks.append(time.monotonic())
        metered = {account: report_now(installation, account) for account in {queue.account for queue in queues}}
        marks.append(time.monotonic())
        sum_up(installation, Path(lake))
        billed = read_quantities(Path(lake), {**uuids_of(metered), **deleted.names})
    marks.append(time.monotonic())
    spans = (end - begin for begin, end in pairwise(marks))
    seconds = dict(zip(("load", "archiver", "now", "spark"), spans, strict=True))
    differing = differences(metered, billed)
    found = ledger.judge(billed)
    return Proof(ledger.operations, killed, len(deleted.names), found, differing, ledger.unknown, seconds)


# --- the scene ---


def make_queues(installation: RunningInstallation, accounts: int) -> list[ClientQueue]:
    made = []
    for number in range(accounts):
        name = f"usage-{number}-{uuid.uuid4().hex[:6]}"
        key = json.loads(installation.command("keys", "create", "--account", name, "--json").stdout)
        for queue_name in ("orders", "orders.fifo"):
            queue = ClientQueue(name, queue_name, key["bearer_token"], key["endpoint"])
            answer = request(queue, "POST", "/v1/queues", json={"name": queue_name})
            assert answer.status_code in (200, 201, 202), answer.text
            made.append(queue)
    return [*made, make_spread_queue(key, made[-1])]


def kill_around(
    installation: RunningInstallation,
    clients: list[UsageClient],
    ledger: UsageLedger,
    kills: int,
    chance: random.Random,
    operations: int,
) -> int:
    """A storage node, a front end, a storage node, ...: spread over the operations. How many."""
    done = 0
    while done < kills and any(client.thread.is_alive() for client in clients):
        if ledger.operations < operations * (done + 1) // (kills + 2):
            time.sleep(0.05)
            continue
        if done % 2 == 0:
            leaders = [row["leader"] for row in installation.status()["partitions"] if row["leader"]]
            installation.kill("storage-node", chance.choice(leaders))
            ledger.killed(time.monotonic())
        else:
            installation.kill("frontend")
        done += 1
        wait_until(lambda: _is_whole(installation), RECOVERY_S_MAX, 0.3)
    return done


def _is_whole(installation: RunningInstallation) -> bool:
    status = installation.status()
    return all(row["health"] == "healthy" for row in status["processes"]) and all(
        node["alive"] for node in status["nodes"]
    )


# --- what is billed ---


def report_now(installation: RunningInstallation, account: str) -> dict[str, Any]:
    """What is not settled of this month; and that nothing is missing."""
    arguments = ("--account", account, "--period", f"{datetime.now(UTC):%Y-%m}", "--now", "--json")
    report = json.loads(installation.command("report", "usage", *arguments).stdout)
    assert report["now"]["complete"], report["now"]
    assert not report.get("not_settled"), report["not_settled"]
    merged: dict[str, dict[str, Any]] = {}
    for row in [*report["queues"], *report["provisional"]["queues"]]:
        known = merged.setdefault(row["queue_uuid"], {**row, "quantities": {}})
        for meter, quantity in row["quantities"].items():
            known["quantities"][meter] = known["quantities"].get(meter, 0) + quantity
    return {"queues": list(merged.values())}


def sum_up(installation: RunningInstallation, lake: Path) -> None:
    """The stream into the lake, and the month of the lake into its quantities: two jobs in one process of Spark."""
    month = f"{datetime.now(UTC):%Y-%m}"
    environment, command = _spark_process(
        installation,
        _ingestion(installation, lake),
        ["quantities", "--lake", str(lake), "--month", month, "--out", str(out_of(lake))],
    )
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=JOBS_S_MAX, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]


def out_of(lake: Path) -> Path:
    return lake / "quantities"


def kill_ingestion(installation: RunningInstallation, lake: Path) -> None:
    """An archiver that is killed with all its processes, wherever it is; what it began is done again later."""
    environment, command = _spark_process(installation, _ingestion(installation, lake))
    archiver = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        archiver.wait(ARCHIVER_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(archiver.pid, signal.SIGKILL)
    archiver.wait()


def _ingestion(installation: RunningInstallation, lake: Path) -> list[str]:
    known = Installation(installation.data)
    settings = known.settings(known.load_state())
    return ["ingest", "--lake", str(lake), "--cluster-id", settings["PENSTOCK_CLUSTER_ID"],
            "--nodes", settings["PENSTOCK_STORAGE_NODES"]]  # fmt: skip


def uuids_of(metered: Mapping[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """(account, queue) of each queue's UUID."""
    return {
        row["queue_uuid"]: (account, row["queue"]) for account, report in metered.items() for row in report["queues"]
    }


def read_quantities(lake: Path, names: Mapping[str, tuple[str, str]]) -> Billed:
    """The month of these queues, as Spark summed it from the lake."""
    import pyarrow.parquet as pq

    billed: Billed = {}
    for file in out_of(lake).glob("*.parquet"):
        for row in pq.read_table(file).to_pylist():
            key = names.get(row["queue_uuid"])
            if key is not None:
                sums = billed.setdefault(key, dict.fromkeys(COLUMNS.values(), 0))
                for column, meter in COLUMNS.items():
                    sums[meter] += row[column]
    return billed


def differences(metered: Mapping[str, dict[str, Any]], billed: Billed) -> list[str]:
    """Where the live meter, which needs no Spark, says another figure than Spark."""
    found = []
    shown = {(account, row["queue"]): row["quantities"] for account, rows in metered.items() for row in rows["queues"]}
    for key in billed:
        for meter, quantity in billed[key].items():
            if shown.get(key, {}).get(meter, 0) != quantity:
                found.append(f"{key} {meter}: Spark {quantity}, live meter {shown.get(key, {}).get(meter, 0)}")
    return found


def _spark_process(installation: RunningInstallation, *jobs: list[str]) -> tuple[dict[str, str], list[str]]:
    from workers.spark_jobs.java import find_java

    java = find_java()
    bounds = {"SPARK_MASTER": "local[2]", "PENSTOCK_SPARK_MEMORY_MIB": "800"}
    known = Installation(installation.data)
    shown = known.certificate_settings(known.load_state(), InnerRole.WORKER, "usage")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **bounds, **shown}
    if java is not None:
        environment["JAVA_HOME"] = java.home
    return environment, [sys.executable, "-P", "-c", RUN_JOBS, json.dumps(jobs)]


def lines(proof: Proof) -> list[str]:
    """What is printed."""
    exact = sum(finding.is_exact for finding in proof.findings)
    head = [
        f"{proof.operations:,} operations, {proof.kills} kills, {proof.deleted} queues deleted in use; seconds: "
        + ", ".join(f"{name} {seconds:.1f}" for name, seconds in proof.seconds.items()),
        f"{len(proof.findings)} figures: {exact} exact, {len(proof.findings) - exact - len(proof.wrong)} within the "
        f"unknown, {len(proof.wrong)} WRONG; the live meter differs from Spark in {len(proof.meter_differs)}",
    ]
    rows = [
        f"  {'' if finding.is_right else 'WRONG '}{finding.account} {finding.queue} {finding.meter}: "
        f"{finding.low:,} to {finding.high:,} acknowledged, {finding.billed:,} billed"
        for finding in proof.findings
        if not finding.is_exact
    ]
    return [*head, *rows, *(f"  unknown: {text}" for text in proof.unknown), *proof.meter_differs]


def main() -> int:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parser = argparse.ArgumentParser(
        prog="python -m tests.blackbox.usage", description="Counts of clients against the month's quantities."
    )
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with running() as installation:
        proof = prove(installation, options.operations, options.kills, options.seed, kills_archiver=True)
    sys.stdout.write("".join(f"{line}\n" for line in lines(proof)))
    return 1 if proof.wrong or proof.meter_differs else 0


if __name__ == "__main__":
    sys.exit(main())
