"""Starts a job of `workers/spark_jobs` as a process of its own, and stays with it: no settings, and no claim, no job.

The process gets no address or password of the database or the broker, and of the installation's keys only that of its
own certificate. It ends with the worker: its standard input is a pipe from here, and it ends itself when that is
closed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import structlog

from workers import limits
from workers.spark_jobs.java import find_java
from workers.spark_jobs.jobs.command import OWNED

_log = structlog.get_logger(__name__)
_ROOT = Path(__file__).resolve().parent.parent.parent
# Of the environment: what a Python and a Java need, Spark's own settings, how much a job logs, and whose certificate it
# shows to storage nodes, which it reads the stream of usage from.
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "JAVA_HOME", "PENSTOCK_LOG_LEVEL")
_FRAME = re.compile(r"\s+(at \S|\.\.\. \d+ more)|[\w.$/<>]+\((\w+\.(java|scala):\d+|Native Method)\)$")
# What Java says when it begins.
_BANNER = "WARNING: Using incubator modules"
_NO_MASTER = re.compile(r"Failed to connect to master (\S+)")
_PASSED_PREFIXES = ("SPARK_", "PYSPARK_", "PENSTOCK_SPARK_", "PENSTOCK_INNER_")


class JobFailed(Exception):
    """The job ended without an answer; the text has its last words."""


class ClaimLost(Exception):
    """Another worker may be at it: the job was stopped."""


def run_job(name: str, arguments: Sequence[str], holds_claim: Callable[[], bool], time_s_max: float) -> dict[str, Any]:
    """The job's answer. `holds_claim` renews the claim, and is asked every few seconds. Raises JobFailed, ClaimLost."""
    command = [sys.executable, "-P", "-m", "workers.spark_jobs", name, *arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=err, env=job_environment(), start_new_session=True
        )
        try:
            # Counting waits for everything else that this machine does.
            os.setpriority(os.PRIO_PROCESS, process.pid, limits.USAGE_JOB_NICE)
            _stay_with(process, holds_claim, time_s_max)
        finally:
            _stop(process)
        out.seek(0)
        lines = out.read().decode(errors="replace").splitlines()
        if process.returncode != 0 or not lines:
            raise JobFailed(f"{name} ended with {process.returncode}: {_last_words(err)}")
    answer = json.loads(lines[-1])
    _log.info("usage_job_done", job=name, seconds=answer.get("seconds"))
    return dict(answer)


def job_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    java = find_java()
    if java is not None:
        kept["JAVA_HOME"] = java.home
    # A worker that was started in this folder finds the code without it; a job has no current folder in its path.
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**kept, OWNED: "1"}


def _stay_with(process: subprocess.Popen[bytes], holds_claim: Callable[[], bool], time_s_max: float) -> None:
    deadline = monotonic() + time_s_max
    while True:
        try:
            process.wait(limits.USAGE_CLAIM_RENEW_S)
            return
        except subprocess.TimeoutExpired:
            if not holds_claim():
                raise ClaimLost("the claim of the usage run is lost") from None
            if monotonic() > deadline:
                raise JobFailed(f"not done after {time_s_max:.0f} s") from None


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The whole session: Python, the JVM, and the JVM's Python workers."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(limits.USAGE_JOB_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            continue


def _last_words(err: Any) -> str:
    """Without the frames of Java, which say nothing to an operator and leave no room for what does."""
    size = err.seek(0, os.SEEK_END)
    err.seek(max(0, size - limits.USAGE_LAST_WORDS_READ_BYTES))
    lines = err.read().decode(errors="replace").splitlines()
    said = "\n".join(line for line in lines if line.strip() and not line.startswith(_BANNER) and not _FRAME.match(line))
    found = _NO_MASTER.search(said)
    hint = f"the cluster's master {found[1]} does not answer (SPARK_MASTER)\n" if found else ""
    return hint + said[-limits.USAGE_LAST_WORDS_CHARACTERS :].strip()
