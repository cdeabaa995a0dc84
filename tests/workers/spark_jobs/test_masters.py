"""A cluster of Spark that does not answer is told in two lines, soon, and not by traces."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.spark_jobs.frames import java_or_skip
from workers.spark_jobs import masters
from workers.spark_jobs.jobs import report
from workers.spark_jobs.jobs.command import EXIT_NO_MASTER
from workers.spark_jobs.masters import MASTER, MasterAway, require_master

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def mute_master() -> Iterator[str]:
    """Takes connections and says nothing, as one that was stopped or that hangs."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"spark://127.0.0.1:{listening.getsockname()[1]}"


def closed_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def test_job_ends_at_once_with_what_does_not_answer_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Java is not started for it."""
    address = closed_address()
    monkeypatch.setenv(MASTER, f"spark://{address}")
    monkeypatch.setattr("workers.spark_jobs.session.find_java", lambda: pytest.fail("Java was looked for"))
    arguments = ["key", "--lake", str(tmp_path), "--month", "2026-10", "--out", str(tmp_path / "out.json")]
    assert report.main(arguments) == EXIT_NO_MASTER
    told = capsys.readouterr()
    first, second = told.err.splitlines()
    assert first == f"SPARK_MASTER: no master of spark://{address} answers: {address}: Connection refused"
    assert second == masters.NEXT_STEP and told.out == ""


def test_one_master_of_several_is_enough(mute_master: str) -> None:
    one, other, up = closed_address(), closed_address(), mute_master.removeprefix("spark://")
    require_master(f"spark://{one},{up}")
    with pytest.raises(MasterAway) as away:
        require_master(f"spark://{one},{other}")
    assert one in str(away.value) and other in str(away.value)


@pytest.mark.parametrize("master", ["local[*]", "yarn", "k8s://https://127.0.0.1:1", "spark://x", "spark://:7077"])
def test_what_is_no_address_of_a_master_is_left_to_spark(master: str) -> None:
    require_master(master)


def test_master_that_takes_no_connection_is_waited_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masters, "MASTER_CONNECT_S_MAX", 0.2)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        place = full.getsockname()
        waiting = [socket.socket() for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(place)
        began = time.monotonic()
        with pytest.raises(MasterAway, match="timed out"):
            require_master(f"spark://127.0.0.1:{place[1]}")
        assert time.monotonic() - began < 5
        for one in waiting:
            one.close()


@pytest.mark.spark
@pytest.mark.slow
def test_master_that_is_mute_ends_the_job_without_a_trace(mute_master: str, tmp_path: Path) -> None:
    java_or_skip()
    job = ["report", "key", "--lake", str(tmp_path), "--month", "2026-10", "--out", str(tmp_path / "out.json")]
    environment = {**os.environ, MASTER: mute_master, "PENSTOCK_SPARK_LOG_LEVEL": ""}
    ended = subprocess.run(
        [sys.executable, "-m", "workers.spark_jobs", *job], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    said = [line for line in ended.stderr.splitlines() if not line.startswith("WARNING: ")]
    assert said == [f"SPARK_MASTER: {mute_master} took no job: {masters.GAVE_UP}", masters.NEXT_STEP]
    assert (ended.returncode, ended.stdout) == (EXIT_NO_MASTER, "")
