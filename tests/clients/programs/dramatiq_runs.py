"""Dramatiq with its SQS broker: actors whose worker runs in this process.

`python -m tests.clients.programs.dramatiq_runs`
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import dramatiq
from dramatiq.middleware import Retries
from dramatiq_sqs import SQSBroker

from tests.clients.programs.checks import new_name, run_checks, wait_until

TASKS = 100


class Ran:
    """What the actors were given."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self._lock = threading.Lock()

    def note(self, value: Any) -> None:
        with self._lock:
            self.given.append(value)


def new_broker(**options: Any) -> Any:
    retries = Retries(max_retries=2, min_backoff=1_000, max_backoff=1_000)
    return SQSBroker(namespace=new_name("dramatiq"), middleware=[retries], **options)


@contextlib.contextmanager
def working(broker: Any) -> Iterator[None]:
    worker = dramatiq.Worker(broker, worker_timeout=1_000, worker_threads=4)
    worker.start()
    try:
        yield
    finally:
        worker.stop()
        broker.close()


def check_tasks(_: Any) -> None:
    """100 tasks, each run once; the queue, with tags, is made by the broker and empty afterwards."""
    broker, ran = new_broker(tags={"made-by": "dramatiq"}), Ran()
    task = dramatiq.actor(ran.note, broker=broker, actor_name="note")
    for number in range(TASKS):
        task.send(number)
    with working(broker):
        wait_until(lambda: len(ran.given) == TASKS, "all tasks have run", 60)
        broker.join("default", timeout=30)
    assert Counter(ran.given) == Counter(range(TASKS))
    tags = broker.sqs.meta.client.list_queue_tags(QueueUrl=broker.queues["default"].url)["Tags"]
    assert tags == {"made-by": "dramatiq"}


def check_delay(_: Any) -> None:
    """A task with a delay comes after it, and not long after."""
    broker, ran = new_broker(), Ran()
    task = dramatiq.actor(lambda: ran.note(time.monotonic()), broker=broker, actor_name="late")
    sent_s = time.monotonic()
    task.send_with_options(delay=3_000)
    with working(broker):
        wait_until(lambda: bool(ran.given), "the task has run")
    assert 2.5 < ran.given[0] - sent_s < 10, ran.given[0] - sent_s


def check_retries(_: Any) -> None:
    """A task that fails is run again as a message of its own, until it passes."""
    broker, ran = new_broker(), Ran()

    def unsteady() -> None:
        ran.note(1)
        if len(ran.given) < 3:
            raise ValueError("not yet")

    task = dramatiq.actor(unsteady, broker=broker, actor_name="unsteady")
    task.send()
    with working(broker):
        wait_until(lambda: len(ran.given) == 3, "the third attempt", 60)
        broker.join("default", timeout=30)


def check_dead_letters(_: Any) -> None:
    """A task that never passes ends in the broker's dead-letter queue."""
    broker, ran = new_broker(dead_letter=True), Ran()

    def failing() -> None:
        ran.note(1)
        raise ValueError("never")

    task = dramatiq.actor(failing, broker=broker, actor_name="failing", max_retries=0)
    task.send()
    with working(broker):
        wait_until(lambda: bool(ran.given), "the attempt")
        broker.join("default", timeout=30)
    (dead,) = broker.dead_letter_queues["default"].receive_messages(WaitTimeSeconds=5)
    assert dead.body


def check_prefetched_tasks_go_back(_: Any) -> None:
    """A worker that stops gives back what it had fetched ahead: another one has all of it at once."""
    broker, ran = new_broker(), Ran()
    started = threading.Event()

    def slow(number: int) -> None:
        started.set()
        time.sleep(0.5)
        ran.note(number)

    task = dramatiq.actor(slow, broker=broker, actor_name="slow")
    for number in range(20):
        task.send(number)
    with working(broker):
        assert started.wait(30)
    with working(broker):
        wait_until(lambda: len(set(ran.given)) == 20, "the rest, long before the visibility timeout", 40)
        broker.join("default", timeout=30)


CHECKS = [check_tasks, check_delay, check_retries, check_dead_letters, check_prefetched_tasks_go_back]


if __name__ == "__main__":
    told = f"{version('dramatiq-sqs')}, dramatiq {dramatiq.__version__}"
    sys.exit(run_checks("dramatiq-sqs", told, CHECKS, lambda: None))
