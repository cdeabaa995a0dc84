"""`python -m tests.workers.measure_invoices [--windows N] [--queues N]`: a month from Parquet to issued invoices.

A generated month of usage windows goes through the jobs of the lake and of settling (Spark, processes of their own),
then through the merge into PostgreSQL, and the rounds of the schedule that draft and issue the invoices of all
accounts. Of each step: time, CPU, the greatest resident size of its processes (PostgreSQL's, with their shared memory
counted in each, are shown apart). An account has 20 queues in the mean, owners and traffic follow power laws. The
database is the one of the tests: on this machine, not synced to disk.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from benchmarks.process_cost import MIB, SAMPLE_S, Cost, measured
from benchmarks.report import Report
from benchmarks.usage_records import HOUR_MS, account_id, write_month
from tests.support.control_plane import set_up
from tests.support.postgres import start_database

WINDOWS, QUEUES = 1_000_000, 20_000
ROWS_AT_ONCE = 2_000
# Of the job's heap: with its Python and the classes of the JVM it stays below 4 GB.
SPARK_MEMORY_MIB = "2560"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--queues", type=int, default=QUEUES)
    options = parser.parse_args()
    set_up()
    if not start_database():
        raise SystemExit("DATABASE_URL is set: this fills a database of its own, and no other one")
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    report = Report("invoices")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-invoices-") as directory:
        measure(Path(directory), options.windows, options.queues, report)
    report.print()
    return 0


def measure(directory: Path, windows: int, queues: int, report: Report) -> None:
    from api.billing.pricing.periods import Interval, period_before, period_of

    period = period_before(period_of(datetime.now(UTC)))
    month_ms = int(period.start.timestamp()) * 1000
    accounts, _ = write_month(directory / "files", windows, queues=queues, month_ms=month_ms)
    report.add("accounts", accounts, "accounts")
    report.add("queues", queues, "queues")
    add_accounts(accounts, period.start - timedelta(days=1))
    add_queues(directory / "files", period.start)
    lake = ["--lake", str(directory / "lake")]
    cost = run_job(report, "into the lake", ["ingest_files", *lake, str(directory / "files")])
    taken = int(json.loads(cost.answer)["windows"])
    report.add("  into the lake", taken / cost.seconds, "windows/s")
    # The hours after the month that issuing waits for, too.
    hours = Interval(period.start, period.end + timedelta(hours=6))
    run, until_ms = uuid.uuid4(), month_ms + hours.hours * HOUR_MS
    span = ["--from", str(month_ms), "--to", str(until_ms), "--run", str(run)]
    from workers.spark_jobs.spans import HourSpan
    from workers.usage.settling import begin_settlement, merge_settlement

    begin_settlement(run, HourSpan(month_ms, until_ms))
    cost = run_job(report, "settlement", ["settle", *lake, *span])
    report.add("  settlement", taken / cost.seconds, "windows/s")
    place = Path(json.loads(cost.answer)["directory"])
    with Step(report, "merge") as step:
        merged = merge_settlement(place, run, HourSpan(month_ms, until_ms))
        step.did(merged.merged, "rows")
    assert merged.quarantined == 0, merged
    from workers.billing import rounds

    invoices(report, "drafts", rounds.refresh_drafts)
    invoices(report, "drafts again, nothing due", rounds.refresh_drafts)
    check_invoices(invoices(report, "issued invoices", rounds.issue_months))


def run_job(report: Report, name: str, arguments: list[str]) -> Cost:
    command = [sys.executable, "-m", "workers.spark_jobs", *arguments]
    master = os.environ.get("SPARK_MASTER") or "local[2]"
    cost = measured(command, {"SPARK_MASTER": master, "PENSTOCK_SPARK_MEMORY_MIB": SPARK_MEMORY_MIB})
    if not cost.ended:
        raise SystemExit(f"{name}: not done after {cost.seconds:.0f} s")
    report.add(name, cost.seconds, "s")
    report.add(f"  {name}: CPU", cost.cpu_s, "CPU s")
    report.add(f"  {name}: greatest resident size", cost.resident_mib, "MiB")
    return cost


def invoices(report: Report, name: str, do: Callable[[], int]) -> int:
    """Rounds of the schedule until one finds nothing."""
    done = 0
    with Step(report, name) as step:
        while made := do():
            done += made
        step.did(done, "accounts")
    return done


def check_invoices(issued: int) -> None:
    """Every account with usage has an invoice, and the invoices hold all that was settled."""
    from django.db.models import Sum

    from api.billing.models import HourlyUsage, Invoice, InvoiceQueueLine, InvoiceState
    from api.billing.pricing.meters import UsageMeter

    used = HourlyUsage.objects.values("account_id").distinct().count()
    found = Invoice.objects.filter(state=InvoiceState.ISSUED).count()
    assert found == issued == used, f"{used} accounts with usage, {issued} issued, {found} invoices"
    meter = UsageMeter.SENT_UNITS.value
    billed = InvoiceQueueLine.objects.filter(meter=meter).aggregate(sum=Sum("quantity"))["sum"]
    assert billed == HourlyUsage.objects.aggregate(sum=Sum(meter))["sum"], "lines of queues are not the usage"


class Step:
    """`with Step(report, name) as step:` time, CPU and memory of this process and of the database's."""

    def __init__(self, report: Report, name: str) -> None:
        self._report, self._name = report, name
        self._done: tuple[int, str] = (0, "")

    def did(self, count: int, unit: str) -> None:
        self._done = (count, unit)

    def __enter__(self) -> Step:
        self._ended = threading.Event()
        self._peaks = [0.0, 0.0]
        self._database_cpu_s: dict[int, float] = {}
        self._before_s = {process.pid: _cpu_s(process) for process in _of_database()}
        self._began_s, self._own_s = time.perf_counter(), time.process_time()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        seconds, own_s = time.perf_counter() - self._began_s, time.process_time() - self._own_s
        self._ended.set()
        self._sampler.join()
        if kind is not None:
            return
        name, (count, unit) = self._name, self._done
        self._report.add(name, seconds, "s")
        if count:
            self._report.add(f"  {name}", count, unit)
            self._report.add(f"  {name}", count / seconds, f"{unit}/s")
        database_s = sum(spent - self._before_s.get(pid, 0.0) for pid, spent in self._database_cpu_s.items())
        self._report.add(f"  {name}: CPU", own_s, "CPU s")
        self._report.add(f"  {name}: CPU of PostgreSQL", database_s, "CPU s")
        self._report.add(f"  {name}: greatest resident size", self._peaks[0], "MiB")
        self._report.add(f"  {name}: greatest resident size of PostgreSQL", self._peaks[1], "MiB")

    def _sample(self) -> None:
        own = psutil.Process()
        while True:
            processes = _of_database()
            sizes = [own.memory_info().rss, sum(_resident_bytes(process) for process in processes)]
            self._peaks = [max(peak, size / MIB) for peak, size in zip(self._peaks, sizes, strict=True)]
            self._database_cpu_s |= {process.pid: _cpu_s(process) for process in processes}
            if self._ended.wait(SAMPLE_S):
                return


def _of_database() -> list[psutil.Process]:
    """The server's processes: those that stand in its own view, and the one that started them."""
    from tests.support.postgres import server_pid

    parent = psutil.Process(server_pid())
    return [parent, *parent.children(recursive=True)]


def _cpu_s(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def add_accounts(count: int, opened_at: datetime) -> None:
    from api.accounts.models import Account

    made = {"account_key_wrapped": b"", "created_at": opened_at, "version": 1}
    rows = (Account(id=account_id(number), name=f"account-{number}", **made) for number in range(count))
    Account.objects.bulk_create(rows, batch_size=ROWS_AT_ONCE)


def add_queues(files: Path, made_at: datetime) -> None:
    """Rows that look like queues which are ready, as the windows name them; storage knows nothing of them."""
    import pyarrow.parquet as pq

    from api.queues.models import Queue, QueueStatus

    owners: dict[bytes, str] = {}
    for file in sorted(files.glob("*.parquet")):
        table = pq.read_table(file, columns=["queue_uuid", "account_id"])
        pairs = table.group_by(["queue_uuid", "account_id"]).aggregate([]).to_pydict()
        owners |= dict(zip(pairs["queue_uuid"], pairs["account_id"], strict=True))
    rows = (
        Queue(
            account_id=owner, name=f"queue-{number}", uuid=uuid.UUID(bytes=name), attributes={},
            tags={"team": str(number % 7)}, state=QueueStatus.ACTIVE, observed_generation=1, created_at=made_at,
            modified_at=made_at, next_attempt_at=made_at, version=1,
        )
        for number, (name, owner) in enumerate(owners.items())
    )  # fmt: skip
    Queue.objects.bulk_create(rows, batch_size=ROWS_AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
