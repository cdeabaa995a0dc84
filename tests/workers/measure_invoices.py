"""A month from Parquet to invoices: `python -m tests.workers.measure_invoices [--windows N] [--queues N] [--files D]`.

A generated month of usage windows, as the lake has it (or, with `--ingest`, through the job that takes files into the
lake), is settled: the job of Spark, and the merge into PostgreSQL. The rounds of the schedule draft and issue the
invoices of all accounts. Of each step: time, CPU, the greatest resident size of its processes (PostgreSQL's, with their
shared memory counted in each, are shown apart). An account has 20 queues in the mean, owners and traffic follow power
laws. DuckDB counts the same files, and what it has of each queue is compared with what is settled. The database is the
one of the tests: on this machine, not synced to disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.process_cost import MIB, SAMPLE_S, Cost, measured
from benchmarks.report import Report
from benchmarks.usage import DUCKDB, RUN_DUCKDB
from benchmarks.usage_records import COUNTERS, HOUR_MS, write_month
from tests.support.control_plane import set_up
from tests.support.postgres import start_database

if TYPE_CHECKING:
    from api.billing.pricing.periods import BillingPeriod

WINDOWS = 1_000_000
ROWS_AT_ONCE = 2_000
# Of the job's heap: windows do not go through it.
SPARK_MEMORY_MIB = "1024"
RUN_S_MAX = 7_200.0
PROCESSES = 2
SAID_EVERY = 500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--queues", type=int, default=0, help="of a generated month; 0: one for each 500 windows")
    parser.add_argument("--files", type=Path, help="a month that is there: Parquet files of windows of last month")
    parser.add_argument("--drafts", action="store_true", help="with a round of drafts of both months before")
    parser.add_argument("--ingest", action="store_true", help="through the job that takes files into the lake")
    parser.add_argument("--issue", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    set_up()
    if options.issue is not None:
        return issue_share(options.issue)
    if not start_database():
        raise SystemExit("DATABASE_URL is set: this fills a database of its own, and no other one")
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    report = Report("invoices")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-invoices-") as directory:
        files = options.files or made_month(Path(directory) / "files", options.windows, options.queues)
        measure(Path(directory), files, options, report)
    report.print()
    return 0


def last_month() -> BillingPeriod:
    from api.billing.pricing.periods import period_before, period_of

    return period_before(period_of(datetime.now(UTC)))


def made_month(files: Path, windows: int, queues: int) -> Path:
    say("making the month")
    write_month(files, windows, queues=queues, month_ms=int(last_month().start.timestamp()) * 1000)
    return files


def measure(directory: Path, files: Path, options: argparse.Namespace, report: Report) -> None:
    from api.billing.pricing.periods import Interval

    period = last_month()
    month_ms = int(period.start.timestamp()) * 1000
    owners = owners_in(files)
    report.add("accounts", len(set(owners.values())), "accounts")
    report.add("queues", len(owners), "queues")
    add_accounts(set(owners.values()), period.start)
    add_queues(owners, period.start)
    analyze()
    lake = ["--lake", str(directory / "lake")]
    if options.ingest:
        cost = run_job(report, "into the lake", ["ingest_files", *lake, str(files)])
        windows = int(json.loads(cost.answer)["windows"])
        report.add("  into the lake", windows / cost.seconds, "windows/s")
    else:
        windows = laid_into(directory / "lake", files)
    report.add("windows", windows, "windows")
    # The hours after the month that issuing waits for, too.
    hours = Interval(period.start, period.end + timedelta(hours=6))
    run, until_ms = uuid.uuid4(), month_ms + hours.hours * HOUR_MS
    span = ["--from", str(month_ms), "--to", str(until_ms), "--run", str(run)]
    from workers.spark_jobs.spans import HourSpan
    from workers.usage.settling import begin_settlement, merge_settlement

    began = time.perf_counter()
    begin_settlement(run, HourSpan(month_ms, until_ms))
    cost = run_job(report, "settlement", ["settle", *lake, *span])
    report.add("  settlement", windows / cost.seconds, "windows/s")
    place = Path(json.loads(cost.answer)["directory"])
    report.add("  settlement: text of days", sum(file.stat().st_size for file in place.iterdir()) / MIB, "MiB")
    with Step(report, "merge") as step:
        merged = merge_settlement(place, run, HourSpan(month_ms, until_ms))
        step.did(merged.merged, "hours")
        analyze()
    assert merged.quarantined == 0, merged
    shutil.rmtree(place)
    if options.drafts:
        from workers.billing import rounds

        invoices(report, "drafts", rounds.refresh_drafts)
        invoices(report, "drafts again, nothing due", rounds.refresh_drafts)
    issued = issue_side_by_side(report, period)
    seconds = time.perf_counter() - began
    report.add("from Parquet to issued invoices", seconds, "s")
    report.add("  from Parquet to issued invoices", windows / seconds, "windows/s")
    check_invoices(issued)
    compare_with_duckdb(directory, files, period, report)


def run_job(report: Report, name: str, arguments: list[str]) -> Cost:
    say(name)
    command = [sys.executable, "-m", "workers.spark_jobs", *arguments]
    settings = {"SPARK_MASTER": os.environ.get("SPARK_MASTER") or "local[2]"}
    settings["PENSTOCK_SPARK_MEMORY_MIB"] = os.environ.get("PENSTOCK_SPARK_MEMORY_MIB") or SPARK_MEMORY_MIB
    cost = measured(command, settings, seconds_max=RUN_S_MAX)
    if not cost.ended:
        raise SystemExit(f"{name}: not done after {cost.seconds:.0f} s")
    tell_cost(report, name, cost)
    return cost


def tell_cost(report: Report, name: str, cost: Cost) -> None:
    report.add(name, cost.seconds, "s")
    report.add(f"  {name}: CPU", cost.cpu_s, "CPU s")
    report.add(f"  {name}: greatest resident size", cost.resident_mib, "MiB")


def laid_into(root: Path, files: Path) -> int:
    """The files as an entry of a lake, as if an ingestion had written them. How many windows they have."""
    from workers.spark_jobs.lake.manifest import MANIFEST_VERSION, WINDOWS_TABLE, Lake, LakeEntry, describe_file

    lake = Lake(root)
    place = lake.table(WINDOWS_TABLE, "made")
    place.mkdir(parents=True)
    for file in sorted(files.glob("*.parquet")):
        (place / file.name).symlink_to(file)
    described = [describe_file(lake.root, file) for file in sorted(place.iterdir())]
    lake.add(LakeEntry(MANIFEST_VERSION, "made", 0, {WINDOWS_TABLE: described}))
    return sum(file.rows for file in described)


def compare_with_duckdb(directory: Path, files: Path, period: BillingPeriod, report: Report) -> None:
    """What DuckDB takes for the same quantities, and that they are the settled ones, queue by queue."""
    import duckdb
    from django.db import connection

    from api.billing.pricing.meters import PRICED_METERS

    say("DuckDB, the quantities alone")
    places = {"spill": directory / "spill", "files": files, "out": directory / "duckdb.parquet"}
    statement = DUCKDB.format(to_ms=int(period.end.timestamp()) * 1000, **places)
    cost = measured([sys.executable, "-c", RUN_DUCKDB], {}, statement, RUN_S_MAX)
    tell_cost(report, "DuckDB", cost)
    names = [meter.value for meter in PRICED_METERS]
    sums = ", ".join(f"sum({name}) AS {name}" for name in names)
    settled = f"""COPY (SELECT replace(queue_uuid::text, '-', '') AS queue, account_id, {sums} FROM daily_usage
                         WHERE day >= '{period.start}' AND day < '{period.end}' GROUP BY 1, 2)
                    TO STDOUT WITH (FORMAT csv)"""
    with connection.cursor() as cursor, (directory / "settled.csv").open("wb") as out, cursor.copy(settled) as copy:
        for piece in copy:
            out.write(piece)
    figures = ", ".join(f"{name}::HUGEINT AS {name}" for name in (*COUNTERS, "stored_byte_ms"))
    counted = f"SELECT lower(hex(queue_uuid)) AS queue, account_id, {figures} FROM '{directory}/duckdb.parquet'"
    types = ", ".join(["'VARCHAR'"] * 2 + ["'HUGEINT'"] * len(names))
    columns = ", ".join(f"column{number:02}" for number in range(2 + len(names)))
    merged = f"SELECT {columns} FROM read_csv('{directory}/settled.csv', header = false, types = [{types}])"
    pairs = f"(({merged} EXCEPT ALL {counted}) UNION ALL ({counted} EXCEPT ALL {merged}))"
    ((differing,),) = duckdb.sql(f"SELECT count(*) FROM {pairs}").fetchall()
    assert differing == 0, f"{differing} rows differ"
    ((found,),) = duckdb.sql(f"SELECT count(*) FROM ({merged})").fetchall()
    report.add("queues of which settled and DuckDB's quantities are equal", found, "queues")


def analyze() -> None:
    """As the database does by itself; that of the tests has this switched off."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def say(text: str) -> None:
    sys.stderr.write(f"{datetime.now():%H:%M:%S} {text}, load {os.getloadavg()[0]:.1f}\n")
    sys.stderr.flush()


def invoices(report: Report, name: str, do: Callable[[], int]) -> int:
    """Rounds of the schedule until one finds nothing."""
    done = 0
    say(name)
    with Step(report, name) as step:
        while made := do():
            done += made
            say(f"{name}: {done}")
        step.did(done, "accounts")
    return done


def issue_side_by_side(report: Report, period: BillingPeriod) -> int:
    """As a round of closing does it, in as many processes as there are cores here, each with accounts of its own."""
    due = len(accounts_used(period))
    say(f"issued invoices: {due} are due")
    command = [sys.executable, "-m", "tests.workers.measure_invoices", "--issue"]
    with Step(report, "issued invoices") as step:
        children = [subprocess.Popen([*command, str(place)], env=dict(os.environ)) for place in range(PROCESSES)]
        ended = [child.wait() for child in children]
        assert not any(ended), "a process did not issue all of its invoices"
        step.did(due, "accounts")
    return due


def accounts_used(period: BillingPeriod) -> list[str]:
    from api.billing.models import DailyUsage

    rows = DailyUsage.objects.filter(day__gte=period.start, day__lt=period.end)
    return list(rows.values_list("account_id", flat=True).distinct().order_by("account_id"))


def issue_share(place: int) -> int:
    """What one of the processes does, in the database of the one that started it."""
    from api.billing.actions.invoices import BILLING, issue_invoice

    period = last_month()
    accounts = accounts_used(period)[place::PROCESSES]
    for number, account in enumerate(accounts, 1):
        assert issue_invoice(BILLING, account, period) is not None, account
        if number % SAID_EVERY == 0:
            say(f"issued invoices: {number} of {len(accounts)}")
    return 0


def check_invoices(issued: int) -> None:
    """Every account with usage has an invoice, and the invoices hold all that was settled."""
    from django.db.models import Sum

    from api.billing.models import DailyUsage, Invoice, InvoiceQueueLine, InvoiceState
    from api.billing.pricing.meters import UsageMeter

    used = DailyUsage.objects.values("account_id").distinct().count()
    found = Invoice.objects.filter(state=InvoiceState.ISSUED).count()
    assert found == issued == used, f"{used} accounts with usage, {issued} issued, {found} invoices"
    meter = UsageMeter.SENT_UNITS.value
    billed = InvoiceQueueLine.objects.filter(meter=meter).aggregate(sum=Sum("quantity"))["sum"]
    assert billed == DailyUsage.objects.aggregate(sum=Sum(meter))["sum"], "lines of queues are not the usage"


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
        self._began_s, self._own_s = time.perf_counter(), sum(os.times()[:4])
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        seconds, own_s = time.perf_counter() - self._began_s, sum(os.times()[:4]) - self._own_s
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
            of_job = [own, *(child for child in own.children(recursive=True) if child not in processes)]
            sizes = [sum(map(_resident_bytes, of_job)), sum(_resident_bytes(process) for process in processes)]
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


def owners_in(files: Path) -> dict[bytes, str]:
    """The queues of the windows, and whose they are."""
    import pyarrow.parquet as pq

    owners: dict[bytes, str] = {}
    for file in sorted(files.glob("*.parquet")):
        table = pq.read_table(file, columns=["queue_uuid", "account_id"])
        pairs = table.group_by(["queue_uuid", "account_id"]).aggregate([]).to_pydict()
        owners |= dict(zip(pairs["queue_uuid"], pairs["account_id"], strict=True))
    return owners


def add_accounts(accounts: set[str], opened_at: datetime) -> None:
    from api.accounts.models import Account

    made = {"account_key_wrapped": b"", "created_at": opened_at, "version": 1}
    rows = (Account(id=one, name=f"account-{one}", **made) for one in sorted(accounts))
    Account.objects.bulk_create(rows, batch_size=ROWS_AT_ONCE)


def add_queues(owners: dict[bytes, str], made_at: datetime) -> None:
    """Rows that look like queues which are ready, as the windows name them; storage knows nothing of them."""
    from api.queues.models import Queue, QueueStatus

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
