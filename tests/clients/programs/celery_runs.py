"""Celery with its SQS transport: workers as processes, tasks sent to them, and what they noted read back.

    python -m tests.clients.programs.celery_runs [--short]

`--short` runs the checks that take the least time. Which protocol is spoken is the affair of the boto3 in the
environment; kombu reads with code of its own, apart from boto3's client.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore
import celery
import kombu

from tests.clients.programs.checks import Check, endpoint, new_name, run_checks, wait_until

WORKER_START_TIMEOUT_S = 60.0
TASKS_TIMEOUT_S = 90.0
LAST_WORDS_CHARACTERS = 1500
MANY_TASKS = 200
MANY_QUEUES = 20
# From this botocore on SQS speaks JSON, and AWS_ENDPOINT_URL_SQS is read.
JSON_FROM = (1, 31, 81)


def speaks_json() -> bool:
    return tuple(int(part) for part in botocore.__version__.split(".")[:3]) >= JSON_FROM


class Runs:
    """A directory for notes and logs; what is left of it says what a failed check's workers did."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-celery-"))
        self.sqs = boto3.client("sqs", endpoint_url=endpoint())

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    @contextlib.contextmanager
    def application(self, **settings: Any) -> Iterator[Application]:
        made = Application(self, settings)
        try:
            yield made
        finally:
            made.close()


class Application:
    """One Celery application with a queue of its own: sends tasks, starts and stops workers, reads notes."""

    def __init__(self, runs: Runs, settings: dict[str, Any]) -> None:
        name = new_name("celery")
        self._sqs = runs.sqs
        self.notes_path = runs.directory / f"{name}.notes"
        self.notes_path.touch()
        self.settings: dict[str, Any] = {
            "queues": [name],
            "notes": str(self.notes_path),
            "by_url": not speaks_json(),
        } | settings
        self._log_path = runs.directory / f"{name}.log"
        self._workers: list[subprocess.Popen[bytes]] = []

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start one and wait until it consumes; it leads a process group of its own."""
        number = len(self._workers)
        command = [sys.executable, "-m", "celery", "-A", "tests.clients.programs.celery_tasks", "worker"]
        command += ["--loglevel", "INFO", "--concurrency", "2", "--hostname", f"w{number}@%h", *options]
        with open(self._log_path, "ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment(), start_new_session=True)
        self._workers.append(process)
        ready = f"w{number}@"
        self.wait(
            lambda: any(ready in line and " ready." in line for line in self._log().splitlines()),
            f"worker {number} is ready",
            WORKER_START_TIMEOUT_S,
        )
        return process

    def send(self, *calls: tuple[str, list[Any], dict[str, Any]]) -> None:
        """Send tasks (name, arguments, options of apply_async) from a process of its own, as a web server would."""
        program = (
            "import json, sys\n"
            "from tests.clients.programs import celery_tasks as tasks\n"
            "for name, arguments, options in json.load(sys.stdin):\n"
            "    getattr(tasks, name).apply_async(arguments, **options)\n"
        )
        self.python(program, json.dumps(calls))

    def python(self, program: str, text: str = "") -> str:
        answer = subprocess.run(
            [sys.executable, "-c", program],
            input=text,
            capture_output=True,
            text=True,
            timeout=TASKS_TIMEOUT_S,
            env=self._environment(),
        )
        assert answer.returncode == 0, answer.stderr[-2000:]
        return answer.stdout

    def notes(self, what: str = "done") -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.notes_path.read_text().splitlines()]
        return [line for line in lines if line["what"] == what]

    def done(self) -> Counter[str]:
        return Counter(note["task"] for note in self.notes())

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = TASKS_TIMEOUT_S) -> None:
        try:
            wait_until(condition, what, timeout_s)
        except AssertionError as late:
            said = self._log()[-LAST_WORDS_CHARACTERS:]
            raise AssertionError(f"{late}; done: {len(self.done())}; the workers said {said}") from None

    def wait_done(self, count: int) -> None:
        """Until that many different tasks are done."""
        self.wait(lambda: len(self.done()) >= count, f"{count} tasks done")

    def wait_queues_empty(self) -> None:
        """Every message was deleted, not just hidden."""
        for name in self.settings["queues"]:
            url = self._sqs.get_queue_url(QueueName=name)["QueueUrl"]
            self.wait(functools.partial(self._is_empty, url), f"nothing left in {name}")

    def close(self) -> None:
        for process in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _is_empty(self, url: str) -> bool:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return all(found[name] == "0" for name in names)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "CLIENT_CELERY": json.dumps(self.settings)}

    def _log(self) -> str:
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""


def quick(count: int, **options: Any) -> list[tuple[str, list[Any], dict[str, Any]]]:
    return [("quick", [f"t{number}"], options) for number in range(count)]


def check_many_tasks(runs: Runs) -> None:
    """200 tasks over two workers: each exactly once, all deleted."""
    with runs.application() as application:
        application.worker()
        application.worker()
        application.send(*quick(MANY_TASKS))
        application.wait_done(MANY_TASKS)
        application.wait_queues_empty()
        assert set(application.done().values()) == {1}, application.done()
        assert len({note["pid"] for note in application.notes()}) > 1, "one process did everything"


def check_countdown(runs: Runs) -> None:
    """A countdown and an ETA within the visibility timeout: not early, exactly once."""
    with runs.application() as application:
        application.worker()
        sent_at = time.time()
        eta = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(sent_at + 6))
        application.send(("quick", ["countdown"], {"countdown": 4}), ("quick", ["eta"], {"eta": eta}))
        application.wait_done(2)
        application.wait_queues_empty()
        ran_after_s = {note["task"]: note["at"] - sent_at for note in application.notes()}
        assert ran_after_s["countdown"] >= 4 and ran_after_s["eta"] >= 5, ran_after_s
        assert application.done() == {"countdown": 1, "eta": 1}


def check_eta_beyond_visibility(runs: Runs) -> None:
    """A countdown beyond the visibility timeout: not early, at least once (SQS redelivers), all deleted in the end."""
    with runs.application(visibility_timeout=4) as application:
        application.worker()
        sent_at = time.time()
        application.send(("quick", ["late"], {"countdown": 11}))
        application.wait_done(1)
        application.wait_queues_empty()
        assert min(note["at"] for note in application.notes()) - sent_at >= 11
        # A copy for each visibility timeout that went by, no more.
        assert application.done()["late"] <= 4, application.done()


def check_delay_by_the_queue(runs: Runs) -> None:
    """delay_seconds: the queue holds the task back, the worker does not."""
    with runs.application(visibility_timeout=4) as application:
        application.worker()
        sent_at = time.time()
        application.send(("quick", ["held"], {"delay_seconds": 8}))
        application.wait_done(1)
        application.wait_queues_empty()
        assert application.notes()[0]["at"] - sent_at >= 7.9
        assert application.done() == {"held": 1}


def check_retry(runs: Runs) -> None:
    """self.retry with a countdown: three attempts, the last succeeds."""
    with runs.application() as application:
        application.worker()
        application.send(("flaky", ["again", 1], {}))
        application.wait_done(1)
        application.wait_queues_empty()
        tried = application.notes("tried")
        assert [note["retries"] for note in tried] == [0, 1, 2], tried
        assert tried[1]["at"] - tried[0]["at"] >= 1 and tried[2]["at"] - tried[1]["at"] >= 1


def check_killed_worker(runs: Runs) -> None:
    """A worker killed with kill -9 in the middle of a task (acks_late): another one does it, once."""
    with runs.application(visibility_timeout=12) as application:
        first = application.worker()
        application.send(("slow", ["survives", 5], {}))
        application.wait(lambda: bool(application.notes("started")), "the first worker began")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        assert not application.done()
        application.worker()
        application.wait_done(1)
        application.wait_queues_empty()
        started = application.notes("started")
        assert len(started) == 2 and started[0]["pid"] != started[1]["pid"], started
        assert application.done() == {"survives": 1}


def check_warm_shutdown(runs: Runs) -> None:
    """A worker stopped with SIGTERM in the middle: it ends its tasks, what it prefetched goes to another, each once."""
    with runs.application(visibility_timeout=20) as application:
        first = application.worker()
        application.send(*(("slow", [f"t{number}", 0.5], {}) for number in range(30)))
        application.wait(lambda: len(application.notes()) >= 4, "some are done")
        first.send_signal(signal.SIGTERM)
        first.wait(timeout=WORKER_START_TIMEOUT_S)
        after_first = len(application.done())
        assert after_first < 30, "the first worker did everything"
        application.worker()
        application.wait_done(30)
        application.wait_queues_empty()
        assert set(application.done().values()) == {1}, application.done()


def check_predefined_queues(runs: Runs) -> None:
    """Predefined queues with key and URL of their own; a backoff policy that changes visibility after a failure."""
    name = new_name("celery-predefined")
    url = runs.sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "300"})["QueueUrl"]
    queue = {
        "url": url,
        "access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "backoff_policy": dict.fromkeys(range(1, 5), 2),
        "backoff_tasks": ["tests.clients.programs.celery_tasks.fails_twice"],
    }
    predefined = {"queues": [name], "predefined_queues": {name: queue}, "acks_on_failure": False}
    with runs.application(**predefined) as application:
        application.worker()
        application.send(*quick(20), ("fails_twice", ["backed off"], {}))
        application.wait_done(21)
        tried = application.notes("tried")
        assert len(tried) == 3 and tried[2]["at"] - tried[0]["at"] >= 3.5, tried
        application.wait_queues_empty()
        assert set(application.done().values()) == {1}, application.done()


def check_many_queues(runs: Runs) -> None:
    """One worker on twenty queues that it makes itself: tasks of each, every one once."""
    queues = [new_name("celery-many") for _ in range(MANY_QUEUES)]
    with runs.application(queues=queues) as application:
        application.worker()
        calls = [("quick", [f"{queue} {number}"], {"queue": queue}) for queue in queues for number in range(3)]
        application.send(*calls)
        application.wait_done(len(calls))
        application.wait_queues_empty()
        assert set(application.done().values()) == {1}, application.done()


def check_chain(runs: Runs) -> None:
    """A chain: each task sends the next one from the worker."""
    program = (
        "from celery import chain\n"
        "from tests.clients.programs.celery_tasks import append\n"
        'chain(append.s("a", "b"), append.s("c"), append.s("d")).apply_async()\n'
    )
    with runs.application() as application:
        application.worker()
        application.python(program)
        application.wait_done(3)
        application.wait_queues_empty()
        assert application.done() == {"ab": 1, "abc": 1, "abcd": 1}


def check_purge(runs: Runs) -> None:
    """app.control.purge empties the queue, nothing of it runs later."""
    program = "from tests.clients.programs.celery_tasks import app; print(app.control.purge())"
    with runs.application() as application:
        application.send(*quick(15))
        # kombu adds up the queue's length ten times over: only that there was something can be compared.
        assert int(application.python(program)) >= 15
        application.worker()
        application.send(("quick", ["after"], {}))
        application.wait_done(1)
        application.wait_queues_empty()
        assert application.done() == {"after": 1}


def check_fifo(runs: Runs) -> None:
    """A FIFO queue that kombu makes: 40 tasks of one group, one at a time, in the order they were sent, each once."""
    with runs.application(queues=[new_name("celery") + ".fifo"]) as application:
        application.worker("--concurrency", "1")
        application.send(*quick(40))
        application.wait_done(40)
        application.wait_queues_empty()
        assert [note["task"] for note in application.notes()] == [f"t{number}" for number in range(40)]


SHORT: list[Check] = [check_many_tasks, check_countdown, check_retry, check_killed_worker]
CHECKS: list[Check] = [
    *SHORT,
    check_eta_beyond_visibility,
    check_warm_shutdown,
    check_predefined_queues,
    check_many_queues,
    check_chain,
    check_purge,
    check_fifo,
]


def main(arguments: list[str]) -> int:
    checks = SHORT if "--short" in arguments else CHECKS
    if speaks_json() and checks is CHECKS:
        # kombu of the older environment does not have it.
        checks = [*CHECKS, check_delay_by_the_queue]
    runs = Runs()
    name = f"Celery, SQS transport ({'JSON' if speaks_json() else 'query'} protocol)"
    version = f"{celery.__version__}, kombu {kombu.__version__}, boto3 {boto3.__version__}"
    code = run_checks(name, version, checks, lambda: runs)
    if code == 0:
        runs.remove()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
