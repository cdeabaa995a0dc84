"""A report as JSON lines or CSV.

    python -m workers.spark_jobs report KIND --lake DIR --month 2026-11 --out FILE [--account ID] [--csv]

Kinds: account, queue, origin, tag (`--tag KEY --tags FILE`), key; for operators: top, growth (against the span of the
same length before), clusters, costs (`--cost CLUSTER=MINOR` each), anomalies, quarantine. All but key and quarantine
read rollups: make them first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from workers.spark_jobs.jobs.command import Answer, job_parser, now_ms, run_job, span_of
from workers.spark_jobs.jobs.rollup import NotRolledUp, read_rollups
from workers.spark_jobs.lake.manifest import QUARANTINE_TABLE, REQUESTS_TABLE, Lake, files_of_hours
from workers.spark_jobs.lake.tables import read_files, sound_files
from workers.spark_jobs.limits import COST_MINOR_MAX, TOP_ACCOUNTS
from workers.spark_jobs.schemas.frames import COSTS, QUARANTINE, REQUESTS, TAGS
from workers.spark_jobs.session import spark_session
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms import operator_reports, reports
from workers.spark_jobs.transforms.periods import Period

FromDays = Callable[[DataFrame], DataFrame]
OF_DAYS: Mapping[str, FromDays] = {
    "account": reports.by_account,
    "queue": reports.by_queue,
    "origin": reports.by_origin,
    "top": lambda days: operator_reports.top_accounts(days, TOP_ACCOUNTS),
    "clusters": operator_reports.cluster_loads,
    "anomalies": operator_reports.anomalies,
}
KINDS = (*OF_DAYS, "tag", "key", "growth", "costs", "quarantine")


def report(spark: SparkSession, lake: Lake, kind: str, span: HourSpan, options: argparse.Namespace) -> DataFrame:
    if kind in OF_DAYS:
        return OF_DAYS[kind](of_account(read_rollups(spark, lake, Period.DAY, span), options.account))
    if kind == "costs":
        costs = spark.createDataFrame(list(costs_of(options.cost).items()), COSTS)
        return operator_reports.cluster_costs(read_rollups(spark, lake, Period.DAY, span), costs)
    if kind == "growth":
        before = HourSpan(2 * span.from_ms - span.to_ms, span.from_ms)
        days = read_rollups(spark, lake, Period.DAY, HourSpan(before.from_ms, span.to_ms))
        return operator_reports.growth(of_account(days, options.account), before, span)
    if kind == "tag":
        hours = of_account(read_rollups(spark, lake, Period.HOUR, span), options.account)
        return reports.by_tag(hours, read_files(spark, [Path(options.tags).resolve()], TAGS), options.tag)
    entries = lake.entries()
    if kind == "key":
        paths, _ = sound_files(lake, files_of_hours(entries, REQUESTS_TABLE, span), now_ms())
        rows = read_files(spark, paths, REQUESTS)
        within = rows.where((F.col("hour_ms") >= span.from_ms) & (F.col("hour_ms") < span.to_ms))
        return reports.by_key(of_account(within, options.account))
    files = [lake.root / file.path for entry in entries for file in entry.tables.get(QUARANTINE_TABLE, [])]
    return quarantined(spark, lake, read_files(spark, files, QUARANTINE))


def quarantined(spark: SparkSession, lake: Lake, records: DataFrame) -> DataFrame:
    """Records and whole files that were not taken, with the reasons: all that there are."""
    shape = "reason string, detail string, stream_partition bigint, stream_offset bigint, value string"
    files = [(file.reason, f"{file.path}: {file.detail}", None, None, None) for file in lake.refused()]
    readable = records.withColumn("value", F.lower(F.hex("value")))
    return readable.unionByName(spark.createDataFrame(files, shape)).orderBy("reason", "stream_offset")


def costs_of(given: list[str]) -> dict[str, int]:
    """`one=120000` for each cluster. Raises SystemExit."""
    found: dict[str, int] = {}
    for text in given:
        cluster, _, minor = text.rpartition("=")
        if not cluster or not minor.isascii() or not minor.isdigit() or int(minor) > COST_MINOR_MAX:
            raise SystemExit(f"--cost is CLUSTER=MINOR, whole minor units up to {COST_MINOR_MAX}, and not {text!r}")
        if cluster in found:
            raise SystemExit(f"--cost names {cluster} twice")
        found[cluster] = int(minor)
    return found


def of_account(rows: DataFrame, account_id: str) -> DataFrame:
    return rows.where(F.col("account_id") == account_id) if account_id else rows


def work(options: argparse.Namespace, lake: Lake) -> Answer:
    if options.kind == "tag" and not (options.tag and options.tags):
        raise SystemExit("--tag and --tags are wanted")
    if options.kind == "costs":
        costs_of(options.cost)  # refused before Java starts
    with spark_session("report") as spark:
        try:
            rows = report(spark, lake, options.kind, span_of(options), options)
        except NotRolledUp as error:
            make = f"python -m workers.spark_jobs rollup --lake {options.lake} --from DAYT00 --to DAYT00"
            raise SystemExit(f"{error}. Name a span of days that are, or make them: {make}") from None
        frame = rows.toPandas()
    if options.csv:
        frame.to_csv(options.out, index=False)
    else:
        frame.to_json(options.out, orient="records", lines=True, default_handler=str)
    return {"rows": len(frame), "out": options.out}


def main(arguments: list[str]) -> int:
    parser = job_parser("report", "A report as JSON lines or CSV.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--out", required=True, metavar="FILE")
    parser.add_argument("--account", default="", metavar="ID", help="only this account")
    parser.add_argument("--tag", default="", metavar="KEY")
    parser.add_argument("--tags", default="", metavar="FILE", help="Parquet of the tags' history")
    parser.add_argument(
        "--cost", action="append", default=[], metavar="CLUSTER=MINOR", help="what a cluster costs in the span"
    )
    parser.add_argument("--csv", action="store_true")
    return run_job(parser, work, arguments)
