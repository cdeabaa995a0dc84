"""The command line of jobs: what is missing is said, spans are read strictly, a job that is done ends well. No Spark is
started here."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import pytest

from deploy.installation import ROOT
from workers.spark_jobs import __main__ as program
from workers.spark_jobs.jobs.command import OWNED, job_parser, span_of
from workers.spark_jobs.limits import HOUR_MS
from workers.spark_jobs.spans import HourSpan, month_interval

DAY_MS = 24 * HOUR_MS
JOB = "import time; from workers.spark_jobs.jobs.command import end_with_owner; end_with_owner(); time.sleep(0.2)"
ENDS_S_MAX = 30


def parsed(*arguments: str) -> argparse.Namespace:
    return job_parser("settle", "x").parse_args(["--lake", "x", *arguments])


def test_job_without_java_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "missing_parts", lambda: ["install this"])
    assert program.main(["settle"]) == program.EXIT_MISSING
    told = capsys.readouterr()
    assert json.loads(told.out) == {"missing": ["install this"]} and told.err == "install this\n"


def test_job_that_is_not_there_is_refused_with_the_names_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["bake"]) == program.EXIT_USAGE
    assert "ingest, ingest_files, quantities" in capsys.readouterr().err


def test_span_is_a_month_or_two_hours() -> None:
    month = span_of(parsed("--month", "2026-02"))
    assert month.to_ms - month.from_ms == 28 * DAY_MS and month == month_interval("2026-02")
    assert month_interval("2026-12").to_ms == month_interval("2027-01").from_ms
    begin = month.from_ms
    assert span_of(parsed("--from", "2026-02-01T05", "--to", str(begin + DAY_MS))) == HourSpan(
        begin + 5 * HOUR_MS, begin + DAY_MS
    )


@pytest.mark.parametrize(
    "arguments",
    [(), ("--month", "2026-13"), ("--from", "0"), ("--from", "0", "--to", "5"), ("--from", "3600000", "--to", "0")],
)
def test_what_is_no_span_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match=r".+"):
        span_of(parsed(*arguments))


def test_job_that_is_done_ends_well_while_its_owner_lives() -> None:
    environment = {**os.environ, OWNED: "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", JOB]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=ROOT, start_new_session=True) as job:
        assert job.wait(ENDS_S_MAX) == 0
