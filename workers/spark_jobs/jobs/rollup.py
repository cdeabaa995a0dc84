"""Rollups of whole days in the lake: the hours of each day, and the day. Again at any time: it is replaced whole.

python -m workers.spark_jobs rollup --lake DIR --month 2026-11
"""

from __future__ import annotations

import argparse
import shutil
import uuid
from datetime import UTC, datetime

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from workers.spark_jobs.jobs.command import Answer, job_parser, now_ms, run_job, span_of
from workers.spark_jobs.lake.manifest import Lake
from workers.spark_jobs.lake.tables import read_files, read_windows
from workers.spark_jobs.limits import DAY_MS
from workers.spark_jobs.schemas.frames import PERIODS
from workers.spark_jobs.session import spark_session
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.periods import Period
from workers.spark_jobs.transforms.rollups import coarser, usage_by_period


class NotRolledUp(Exception):
    """The text names the days."""


def roll_up(spark: SparkSession, lake: Lake, span: HourSpan, seen_ms: int) -> Answer:
    """Of a span of whole days. Raises ValueError for another one."""
    if span.from_ms % DAY_MS or span.to_ms % DAY_MS:
        raise ValueError("a rollup is of whole days")
    windows, refused, unsure = read_windows(spark, lake, lake.entries(), span, seen_ms)
    hours = usage_by_period(windows, span, Period.HOUR, unsure).persist(StorageLevel.DISK_ONLY)
    run = uuid.uuid4().hex
    try:
        days = list(range(span.from_ms, span.to_ms, DAY_MS))
        for day_ms in days:
            within = hours.where((F.col("period_ms") >= day_ms) & (F.col("period_ms") < day_ms + DAY_MS))
            _publish(lake, Period.HOUR, day_ms, run, within)
            _publish(lake, Period.DAY, day_ms, run, coarser(within, Period.DAY))
    finally:
        hours.unpersist()
    return {"days": len(days), "refused_files": [file.path for file in refused]}


def read_rollups(spark: SparkSession, lake: Lake, period: Period, span: HourSpan) -> DataFrame:
    """PERIODS of the days of a span, hours or days. Raises NotRolledUp."""
    found, missing = [], []
    for day_ms in range(span.from_ms // DAY_MS * DAY_MS, span.to_ms, DAY_MS):
        directory = lake.published(period.value, day_name(day_ms))
        if directory is None:
            missing.append(day_name(day_ms))
        else:
            found += sorted(directory.glob("*.parquet"))
    if missing:
        raise NotRolledUp(f"not rolled up: {', '.join(missing)}")
    return read_files(spark, found, PERIODS)


def day_name(day_ms: int) -> str:
    return f"{datetime.fromtimestamp(day_ms / 1000, UTC):%Y-%m-%d}"


def _publish(lake: Lake, period: Period, day_ms: int, run: str, rows: DataFrame) -> None:
    directory = lake.root / "rollups" / period.value / day_name(day_ms) / run
    before = lake.published(period.value, day_name(day_ms))
    rows.coalesce(1).write.mode("overwrite").parquet(str(directory))
    lake.publish(period.value, day_name(day_ms), directory)
    # The one before may still be read; those before it are not.
    for older in directory.parent.iterdir():
        if older not in (directory, before):
            shutil.rmtree(older, ignore_errors=True)


def work(options: argparse.Namespace, lake: Lake) -> Answer:
    span, seen_ms = span_of(options), now_ms()
    if span.to_ms > seen_ms:
        raise SystemExit("not all of these days are over: what is stored now would be counted for hours to come")
    with spark_session("rollup") as spark:
        return roll_up(spark, lake, span, seen_ms)


def main(arguments: list[str]) -> int:
    return run_job(job_parser("rollup", "Rollups of whole days in the lake."), work, arguments)
