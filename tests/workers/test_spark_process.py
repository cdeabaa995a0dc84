"""The process in which a worker has a job of Spark done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage_nodes.trust.credentials import SETTINGS
from workers import limits
from workers.usage import jobs
from workers.usage.jobs import ClaimLost, JobFailed, job_environment, run_job


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limits, "USAGE_CLAIM_RENEW_S", 0.05)
    yield


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Python code in the place of a job."""
    monkeypatch.setattr(jobs, "find_java", lambda: None)  # it would start processes, too
    real = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return real([sys.executable, "-c", program, *command[5:]], **options)

    monkeypatch.setattr(jobs.subprocess, "Popen", start)


def test_program_of_the_jobs_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real command, with a job that there is not: the program refuses it, and Python does not."""
    monkeypatch.setattr(jobs, "find_java", lambda: None)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobFailed, match=r"ended with 2: .*ingest_files"):
        run_job("absent", [], lambda: True, 60)


def test_job_answers_with_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "import sys, json; print('noise'); print(json.dumps({'given': sys.argv[1:]}))")
    assert run_job("settle", ["--lake", "x"], lambda: True, 60) == {"given": ["--lake", "x"]}


def test_job_that_fails_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "import sys; sys.exit('no space left')")
    with pytest.raises(JobFailed, match="no space left"):
        run_job("settle", [], lambda: True, 60)


def test_last_words_of_a_job_are_no_frames_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = "\n\tat org.apache.spark.rpc.Some$.call(Some.scala:1)\npy4j.Gateway.invoke(Gateway.java:2)" * 200
    said = f"Failed to connect to master 10.0.0.1:7077{frames}\n\t... 4 more"
    program = f"import sys; sys.exit({said!r})"
    stand_in(monkeypatch, program)
    with pytest.raises(JobFailed) as failed:
        run_job("settle", [], lambda: True, 60)
    hint, last = str(failed.value).split("\n")
    assert hint == "settle ended with 1: the cluster's master 10.0.0.1:7077 does not answer (SPARK_MASTER)"
    assert last == "Failed to connect to master 10.0.0.1:7077"


def test_last_words_of_a_job_without_a_cluster_are_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    banner = "WARNING: Using incubator modules: jdk.incubator.vector"
    stand_in(
        monkeypatch, f"import sys; sys.stderr.write({banner!r} + chr(10) + 'no master\\nstart it\\n'); sys.exit(5)"
    )
    with pytest.raises(JobFailed) as failed:
        run_job("settle", [], lambda: True, 60)
    assert str(failed.value) == "settle ended with 5: no master\nstart it"


def test_job_is_stopped_when_its_claim_is_lost(monkeypatch: pytest.MonkeyPatch, quick: None, tmp_path: Path) -> None:
    """With all that it started: a JVM would otherwise go on."""
    child = "import time; time.sleep(60)"
    stand_in(
        monkeypatch,
        f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
time.sleep(60)
""",
    )
    place = tmp_path / "pid"
    with pytest.raises(ClaimLost):
        run_job("settle", [], lambda: not (place.exists() and place.read_text()), 60)
    pid = int(place.read_text())
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _lives(pid):
        time.sleep(0.05)
    assert not _lives(pid)


def test_job_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    stand_in(monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(JobFailed, match="not done after"):
        run_job("settle", [], lambda: True, 0.1)


def test_job_is_told_no_password_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"DATABASE_URL": "x", "CELERY_BROKER_URL": "x", "PENSTOCK_SECRETS_DIR": "x", "SPARK_MASTER": "spark://x"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert set(told) & set(job_environment()) == {"SPARK_MASTER"}


def test_job_shows_the_certificate_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.setenv(name, f"value of {name}")
    told = job_environment()
    assert {name: told.get(name) for name in SETTINGS} == {name: f"value of {name}" for name in SETTINGS}


def test_job_ends_with_the_worker_that_started_it() -> None:
    """However that ends: the pipe to the job's standard input is closed with it."""
    program = (
        "from workers.spark_jobs.jobs.command import end_with_owner; import time; end_with_owner(); time.sleep(60)"
    )
    environment = {**os.environ, "PENSTOCK_JOB_OWNED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, env=environment, start_new_session=True
    ) as job:
        time.sleep(0.5)
        assert job.poll() is None
        assert job.stdin is not None
        job.stdin.close()
        job.wait(20)


def test_usage_tasks_go_to_a_queue_that_other_workers_do_not_take() -> None:
    code = (
        "import json; from workers.application import app; import workers.tasks as t; "
        "route = app.amqp.router.route({}, t.settle_usage.name)['queue'].name; "
        "print(json.dumps([route, sorted(q.name for q in app.conf.task_queues), t.settle_usage.acks_late]))"
    )
    environment = {**os.environ, "CELERY_BROKER_URL": "redis://x/0"}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    route, taken, acks_late = json.loads(answer.stdout)
    assert route == "usage" and route not in taken and not acks_late


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_executors_show_the_certificate_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    session = pytest.importorskip("workers.spark_jobs.session")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(SETTINGS[1], "/certificates/ca.pem")
    told = session.settings("127.0.0.1", "/tmp/scratch", 512, 0)
    passed = {name: value for name, value in told.items() if name.startswith("spark.executorEnv.")}
    assert passed == {f"spark.executorEnv.{SETTINGS[1]}": "/certificates/ca.pem"}
