"""What became of one client: its program's lines read back, so that nothing missing counts as passed.

A program announces its checks first (tests/clients/programs/checks.py says how). A check that was announced and never
reported, because the program died or hung, has failed; so has a program that announced nothing, and one that reports
only successes and then exits with an error.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

LAST_WORDS_CHARACTERS = 1500
KILLED_S_MAX = 5.0


@dataclass(frozen=True)
class CheckResult:
    title: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """`not_run` says why a client was not tried here; then there are no results, and it has not passed."""

    client: str
    version: str = ""
    results: tuple[CheckResult, ...] = field(default=())
    not_run: str = ""

    @property
    def passed(self) -> bool:
        return not self.not_run and bool(self.results) and all(result.passed for result in self.results)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if not result.passed)


def run_program(
    name: str, command: Sequence[str], environment: Mapping[str, str], directory: Path, timeout_s: float
) -> Outcome:
    """Run a client program to its end, or kill it and all it started."""
    process = subprocess.Popen(
        list(command),
        env=dict(environment),
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
        ended = f"ended with exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        kill_with_children(process)
        output, errors = process.communicate()
        ended = f"was not done after {timeout_s:.0f} s"
    finally:
        kill_with_children(process)
    return read_outcome(name, output, process.returncode, f"{ended}; {errors.strip()[-LAST_WORDS_CHARACTERS:]}")


def kill_with_children(process: subprocess.Popen[str]) -> None:
    """Children lead process groups and sessions of their own (Celery's workers do), so they are found by parentage."""
    if process.poll() is not None:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        killed = [*root.children(recursive=True), root]
        for one in killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        # A signal is on its way for a moment; who is gone, or waits for its parent to hear of it, runs no more.
        ends = time.monotonic() + KILLED_S_MAX
        while any(map(_runs, killed)) and time.monotonic() < ends:
            time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_outcome(name: str, output: str, exit_code: int, ended: str) -> Outcome:
    lines = [line for line in map(_record, output.splitlines()) if line is not None]
    announced = next((line for line in lines if "checks" in line), None)
    if announced is None:
        return Outcome(name, results=(CheckResult("the program starts", False, ended),))
    said = {line["check"]: line for line in lines if "check" in line}
    results = [
        CheckResult(title, bool(said[title]["passed"]), said[title]["detail"])
        if title in said
        else CheckResult(title, False, f"never came to it: the program {ended}")
        for title in announced["checks"]
    ]
    if exit_code != 0 and all(result.passed for result in results):
        results.append(CheckResult("the program ends well", False, ended))
    return Outcome(announced["client"], announced["version"], tuple(results))


def _record(line: str) -> dict[str, Any] | None:
    """A client library may print too; only JSON objects are ours."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
