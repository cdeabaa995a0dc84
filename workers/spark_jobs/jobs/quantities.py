"""A month's quantities of each account and queue, straight from the lake or from files of windows, as Parquet.

    python -m workers.spark_jobs quantities --lake DIR --month 2026-11 --out DIR [--files DIR]

The figures of `settle`, summed over the month; in one that is not over, storage up to the hour of now. What recomputes
a closed month, and what `./penstock bench usage` measures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from workers.spark_jobs.jobs.command import Answer, job_parser, now_ms, run_job, span_of
from workers.spark_jobs.lake.manifest import Lake
from workers.spark_jobs.lake.tables import ReadWindows, fit_shuffles, read_files, read_windows
from workers.spark_jobs.limits import HOUR_MS
from workers.spark_jobs.schemas.frames import WINDOWS
from workers.spark_jobs.session import spark_session
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.periods import Period
from workers.spark_jobs.transforms.rollups import settled
from workers.spark_jobs.transforms.settlements import origin_name, uuid_text


def work(options: argparse.Namespace, lake: Lake) -> Answer:
    span = span_of(options)
    with spark_session("quantities", options.partitions) as spark:
        if options.files:
            files = sorted(Path(options.files).rglob("*.parquet"))
            fit_shuffles(spark, sum(pq.read_metadata(file).num_rows for file in files))
            found = ReadWindows(read_files(spark, files, WINDOWS), [], [])
        else:
            found = read_windows(spark, lake, lake.entries(), span, now_ms())
        # What is stored now is not counted for the hours to come.
        to_come = HourSpan(now_ms() // HOUR_MS * HOUR_MS, span.to_ms)
        unsure = [*found.unsure, to_come] if to_come.from_ms < to_come.to_ms and not options.files else found.unsure
        rows = printable(settled(found.windows, span, Period.MONTH, unsure))
        out = Path(options.out).resolve()
        rows.write.mode("overwrite").parquet(str(out))
    count = sum(pq.read_metadata(file).num_rows for file in out.glob("*.parquet"))
    return {"rows": count, "refused_files": [file.path for file in found.refused]}


def printable(settled_rows: DataFrame) -> DataFrame:
    columns = {"queue_uuid": uuid_text("queue_uuid"), "origin": origin_name(settled_rows["origin"])}
    return settled_rows.withColumns(columns)


def main(arguments: list[str]) -> int:
    parser = job_parser("quantities", "A month's quantities of each account and queue.")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--files", metavar="DIR", help="Parquet files of windows, in the place of the lake's")
    shuffles = "of shuffles; 0 = twice the cores; more where there are many windows"
    parser.add_argument("--partitions", type=int, default=0, help=shuffles)
    return run_job(parser, work, arguments)
