"""What every job's command line has: the lake, a span of hours, one JSON line as its answer, exit codes.

A job that a worker started ends with that worker, however the worker ends: its standard input is closed then. Imports
nothing of Spark: workers and `__main__.py` use it where Spark is not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from workers.spark_jobs.lake.manifest import Lake
from workers.spark_jobs.masters import MasterAway
from workers.spark_jobs.spans import HourSpan, month_interval

Answer = dict[str, Any]
# What a job ends with beside 0, all was done, and 1, it failed.
EXIT_USAGE = 2
# What Spark needs is not there.
EXIT_MISSING = 3
# Files were refused; the others were taken.
EXIT_REFUSED = 4
# The cluster of SPARK_MASTER does not answer.
EXIT_NO_MASTER = 5
# In the environment of a job that a worker started.
OWNED = "PENSTOCK_JOB_OWNED"
_STDIN = 0


def job_parser(name: str, text: str, spanned: bool = True) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m workers.spark_jobs {name}", description=text)
    parser.add_argument("--lake", required=True, metavar="DIR", help="the lake's folder; made where it is not there")
    if spanned:
        parser.add_argument("--month", metavar="YYYY-MM", help="a whole month; or else:")
        parser.add_argument("--from", dest="begin", metavar="HOUR", help="2026-11-22T13, UTC, or ms since the epoch")
        parser.add_argument("--to", dest="end", metavar="HOUR", help="up to before this hour")
    return parser


def run_job(
    parser: argparse.ArgumentParser,
    work: Callable[[argparse.Namespace, Lake], Answer],
    arguments: list[str],
    exit_code_of: Callable[[Answer], int] = lambda answer: 0,
) -> int:
    """Reads the arguments, does the work, writes its answer. What it ends with."""
    options = parser.parse_args(arguments)
    end_with_owner()
    began = time.monotonic()
    try:
        answer = work(options, Lake(options.lake))
    except MasterAway as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_NO_MASTER
    answer["seconds"] = round(time.monotonic() - began, 3)
    sys.stdout.write(json.dumps(answer, default=str) + "\n")
    return exit_code_of(answer)


def end_with_owner() -> None:
    """Watches standard input from now on, where a worker asked for it."""
    if os.environ.pop(OWNED, ""):
        threading.Thread(target=_watch, name="owner-watch", daemon=True).start()


def span_of(options: argparse.Namespace) -> HourSpan:
    """Raises SystemExit for what is no span."""
    try:
        if options.month:
            return month_interval(options.month)
        if not options.begin or not options.end:
            raise ValueError("either --month, or --from and --to")
        return HourSpan(hour_ms_of(options.begin), hour_ms_of(options.end)).checked()
    except ValueError as error:
        raise SystemExit(f"{error}") from None


def hour_ms_of(text: str) -> int:
    """Raises ValueError."""
    if text.isdigit():
        return int(text)
    return int(datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC).timestamp()) * 1000


def add_now(parser: argparse.ArgumentParser) -> None:
    told = "ms since the epoch, by the clock that all hours go by; this machine's own one where nothing is given"
    parser.add_argument("--now", type=int, default=0, metavar="MS", help=told)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _watch() -> None:
    # Not through sys.stdin: an interpreter that ends while a thread waits in its buffer aborts (-6), done or not.
    while os.read(_STDIN, 1):
        pass
    # The session's: the JVM and its Python workers belong to the same one.
    os.killpg(os.getpgrp(), signal.SIGTERM)
