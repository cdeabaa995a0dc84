"""A month of usage windows from Parquet to invoice quantities: the job of Spark, and the same aggregation by DuckDB.

    ./penstock bench usage

PENSTOCK_BENCH_USAGE_ROWS (default "1000000,10000000"): windows of each run. Both read the same files, in processes of
their own, on two threads and 4 GB; memory is the greatest resident size of all processes of a run together. The
quantities of both are compared, row by row, and each size is printed when it is done. A run that takes longer than
PENSTOCK_BENCH_USAGE_S (default 1800) is stopped, and what it cost until then is shown in its place.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.process_cost import MIB, Cost, measured
from benchmarks.report import Report
from benchmarks.usage_records import COUNTERS, write_month

ROWS = os.environ.get("PENSTOCK_BENCH_USAGE_ROWS") or "1000000,10000000"
RUN_S_MAX = float(os.environ.get("PENSTOCK_BENCH_USAGE_S") or "1800")
SPARK_MEMORY_MIB = 2_560

_COUNTERS = ", ".join(f"max({name}) AS {name}" for name in COUNTERS)
_SUMS = ", ".join(f"sum({name})::BIGINT AS {name}" for name in COUNTERS)
_ZEROS = ", ".join(f"0 AS {name}" for name in COUNTERS)
# The rules of docs/usage.md in SQL: the latest window of each hour, gaps between windows, sums.
DUCKDB = f"""
SET threads = 2; SET memory_limit = '3GB'; SET temp_directory = '{{spill}}'; SET preserve_insertion_order = false;
SET enable_progress_bar = false;
COPY (
  WITH latest AS (
    SELECT account_id, queue_uuid, cluster, partition, hour_ms, origin, max(until_ms) AS until_ms,
           bool_or(final) AS final, max(stored_byte_ms) AS stored_byte_ms,
           max_by(stored_bytes, until_ms) AS stored_bytes, {_COUNTERS}
      FROM read_parquet('{{files}}/*.parquet') GROUP BY ALL
  ), gaps AS (
    SELECT account_id, queue_uuid, origin, final, stored_bytes, until_ms,
           lead(hour_ms, 1, {{to_ms}}) OVER (PARTITION BY cluster, partition ORDER BY hour_ms) AS next_ms
      FROM latest
  ), figures AS (
    SELECT account_id, queue_uuid, origin, stored_byte_ms::HUGEINT AS stored_byte_ms, {", ".join(COUNTERS)} FROM latest
    UNION ALL
    SELECT account_id, queue_uuid, origin, stored_bytes::HUGEINT * (next_ms - until_ms), {_ZEROS}
      FROM gaps WHERE next_ms > until_ms AND stored_bytes > 0 AND NOT final
  )
  SELECT account_id, queue_uuid, {_SUMS}, sum(stored_byte_ms)::DECIMAL(38, 0) AS stored_byte_ms
    FROM figures GROUP BY account_id, queue_uuid
) TO '{{out}}' (FORMAT parquet)
"""
RUN_DUCKDB = "import duckdb, sys; duckdb.execute(sys.stdin.read())"


def main() -> int:
    for rows in map(int, ROWS.split(",")):
        report = Report("usage")
        with tempfile.TemporaryDirectory(prefix="penstock-bench-usage-") as directory:
            measure(Path(directory), rows, report)
        report.print()
    return 0


def measure(directory: Path, rows: int, report: Report) -> None:
    began = time.perf_counter()
    accounts, queues = write_month(directory / "files", rows)
    files = sorted((directory / "files").glob("*.parquet"))
    written = sum(pq.read_metadata(file).num_rows for file in files)
    what = f"{written:,} windows"
    report.add(f"{what}: accounts", accounts, "accounts")
    report.add(f"{what}: queues", queues, "queues")
    report.add(f"{what}: Parquet", sum(file.stat().st_size for file in files) / MIB, "MiB")
    report.add(f"{what}: made", written / (time.perf_counter() - began), "rows/s")
    ended = True
    for name, run in (("DuckDB", run_duckdb), ("Spark", run_spark)):
        sys.stderr.write(f"  {what}: {name}\n")
        cost = run(directory)
        ended &= cost.ended
        if not cost.ended:
            report.add(f"{what}, {name}: stopped, not done after", cost.seconds, "s")
            report.add(f"{what}, {name}: CPU until then", cost.cpu_s, "CPU s")
            continue
        report.add(f"{what}, {name}: from start to end of the process", cost.seconds, "s")
        report.add(f"{what}, {name}: CPU", cost.cpu_s, "CPU s")
        report.add(f"{what}, {name}", written / cost.seconds, "rows/s")
        report.add(f"{what}, {name}: greatest resident size", cost.resident_mib, "MiB")
    if ended:
        report.add(f"{what}: rows of quantities, equal in both", compare(directory), "rows")


def run_spark(directory: Path) -> Cost:
    command = [sys.executable, "-m", "workers.spark_jobs", "quantities", "--lake", str(directory / "lake")]
    command += ["--month", "2026-11", "--files", str(directory / "files"), "--out", str(directory / "spark")]
    environment = {"SPARK_MASTER": "local[2]", "PENSTOCK_SPARK_MEMORY_MIB": str(SPARK_MEMORY_MIB)}
    return measured(command, {"SPARK_LOCAL_DIRS": str(directory / "spill"), **environment}, seconds_max=RUN_S_MAX)


def run_duckdb(directory: Path) -> Cost:
    from benchmarks.usage_records import HOUR_MS, MONTH_HOURS, MONTH_MS

    places = {"spill": directory / "spill", "files": directory / "files", "out": directory / "duckdb.parquet"}
    statement = DUCKDB.format(to_ms=MONTH_MS + MONTH_HOURS * HOUR_MS, **places)
    return measured([sys.executable, "-c", RUN_DUCKDB], {}, statement, RUN_S_MAX)


def compare(directory: Path) -> int:
    """How many rows both have. Raises AssertionError where they differ."""
    import duckdb

    names = ", ".join(("account_id", *COUNTERS, "stored_byte_ms"))
    spark = f"SELECT replace(queue_uuid, '-', '') AS queue, {names} FROM '{directory}/spark/*.parquet'"
    other = f"SELECT lower(hex(queue_uuid)) AS queue, {names} FROM '{directory}/duckdb.parquet'"
    pairs = f"(({spark} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {spark}))"
    ((differing,),) = duckdb.sql(f"SELECT count(*) FROM {pairs}").fetchall()
    assert differing == 0, f"{differing} rows differ"
    ((found,),) = duckdb.sql(f"SELECT count(*) FROM ({spark})").fetchall()
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
