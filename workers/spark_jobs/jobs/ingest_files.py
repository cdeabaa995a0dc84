"""Parquet files of usage windows, from elsewhere, into the lake. A file that comes again is refused, and says so.
Where one was refused it ends with EXIT_REFUSED, although the others were taken.

python -m workers.spark_jobs ingest_files --lake DIR FILE-OR-FOLDER ...
"""

from __future__ import annotations

import argparse
import sys
import uuid
from pathlib import Path

from workers.spark_jobs.jobs.command import EXIT_REFUSED, Answer, add_now, job_parser, now_ms, run_job
from workers.spark_jobs.lake.ingestion import ingest_files
from workers.spark_jobs.lake.manifest import TABLES, Lake, RefusedFile
from workers.spark_jobs.limits import QUARANTINE_SHOWN_MAX
from workers.spark_jobs.session import spark_session


def files_in(places: list[str]) -> list[Path]:
    found: list[Path] = []
    for place in map(Path, places):
        found += sorted(place.rglob("*.parquet")) if place.is_dir() else [place]
    return found


def work(options: argparse.Namespace, lake: Lake) -> Answer:
    missing = [place for place in options.places if not Path(place).exists()]
    if missing:
        raise SystemExit(f"there is no {', '.join(missing)}; nothing was ingested")
    seen = options.now or now_ms()
    with spark_session("ingest_files") as spark:
        files, refused = files_in(options.places), list[RefusedFile]()
        entry = ingest_files(spark, lake, files, f"files-{uuid.uuid4()}", seen, refused.append)
    return {
        "entries": [entry.name],
        "files": len(files),
        **{table: entry.rows(table) for table in TABLES},
        "refused_files": [{"path": file.path, "reason": file.reason, "detail": file.detail} for file in refused],
    }


def told(answer: Answer) -> int:
    """A line on stderr for each file that was refused, and what the job ends with."""
    refused = answer["refused_files"]
    if not refused:
        return 0
    lines = [f"{len(refused)} of {answer['files']} files were refused, and nothing of them was taken:"]
    lines += [f"{one['path']}: {one['reason']}, {one['detail']}" for one in refused[:QUARANTINE_SHOWN_MAX]]
    if len(refused) > QUARANTINE_SHOWN_MAX:
        lines.append(f"and {len(refused) - QUARANTINE_SHOWN_MAX} more: refused_files of the answer has all")
    sys.stderr.write("\n".join(lines) + "\n")
    return EXIT_REFUSED


def main(arguments: list[str]) -> int:
    parser = job_parser("ingest_files", "Parquet files of usage windows into the lake.", spanned=False)
    add_now(parser)
    parser.add_argument("places", nargs="+", metavar="FILE-OR-FOLDER")
    return run_job(parser, work, arguments, told)
