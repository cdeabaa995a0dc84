"""Hours of the lake as a settlement: files of days that the control plane merges (`workers/usage`). No database here.

    python -m workers.spark_jobs settle --lake DIR --from HOUR --to HOUR --run UUID

The answer names what was left out and why. The same hours of the same lake give the same rows, whichever run counts.
"""

from __future__ import annotations

import argparse
import uuid

from pyspark.sql import DataFrame, SparkSession

from workers.spark_jobs.jobs.command import Answer, job_parser, now_ms, run_job, span_of
from workers.spark_jobs.lake.levels import keep_levels
from workers.spark_jobs.lake.manifest import REQUESTS_TABLE, Lake, files_of_hours
from workers.spark_jobs.lake.settlement_files import of_partitions, write_settlement
from workers.spark_jobs.lake.tables import find_windows, read_files, sound_files, windows_in
from workers.spark_jobs.limits import QUARANTINE_SHOWN_MAX
from workers.spark_jobs.schemas.frames import REQUESTS
from workers.spark_jobs.session import spark_session
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.windows import conflicting_windows


def settle_hours(spark: SparkSession, lake: Lake, span: HourSpan, run: str, seen_ms: int) -> Answer:
    """Writes `settlements/RUN` of the lake; what a run of that name left there goes."""
    entries = lake.entries()
    found = find_windows(spark, lake, entries, span, seen_ms)
    paths, refused_requests = sound_files(lake, files_of_hours(entries, REQUESTS_TABLE, span), seen_ms)
    requests = read_files(spark, paths, REQUESTS)
    directory = lake.root / "settlements" / run
    written = write_settlement(lake, directory, found, requests, span)
    # Hardly ever there is one: the windows are read a second time for it.
    conflicts = []
    if written.suspects:
        windows = windows_in(spark, found.within, span).unionByName(found.before)
        conflicts = shown(conflicting_windows(of_partitions(windows, written.suspects)))
    if not found.refused:
        keep_levels(lake, found.before, entries, span.from_ms)
    return {
        "run": run,
        "directory": str(directory),
        "days": written.rows,
        "entries": [entry.name for entry in entries],
        "conflicts": conflicts,
        "refused_files": [{"path": one.path, "reason": one.reason, "detail": one.detail} for one in
                          [*found.refused, *refused_requests]],
    }  # fmt: skip


def shown(rows: DataFrame) -> list[str]:
    """The first of them, as JSON."""
    return [str(text) for text in rows.limit(QUARANTINE_SHOWN_MAX).toJSON().collect()]


def work(options: argparse.Namespace, lake: Lake) -> Answer:
    run = str(uuid.UUID(options.run))
    with spark_session("settle") as spark:
        return settle_hours(spark, lake, span_of(options), run, now_ms())


def main(arguments: list[str]) -> int:
    parser = job_parser("settle", "Hours of the lake as a settlement for the control plane.")
    parser.add_argument("--run", required=True, metavar="UUID")
    return run_job(parser, work, arguments)
