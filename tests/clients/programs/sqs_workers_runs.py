"""sqs-workers: jobs with backoff, batches and dead letters, processed in this process.

`python -m tests.clients.programs.sqs_workers_runs`
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

from sqs_workers import SQSEnv, create_fifo_queue, create_standard_queue
from sqs_workers.backoff_policies import ConstantBackoff
from sqs_workers.batching import BatchMessages
from sqs_workers.core import RedrivePolicy
from sqs_workers.deadletter_queue import DeadLetterQueue
from sqs_workers.shutdown_policies import IdleShutdown

from tests.clients.programs.checks import new_name, run_checks

JOBS = 45


def new_env(**options: Any) -> Any:
    return SQSEnv(queue_prefix=f"{new_name('workers')}_", **options)


def work(queue: Any, idle_s: int = 2) -> None:
    """Until nothing has come for a while."""
    queue.process_queue(shutdown_policy=IdleShutdown(idle_s), wait_second=1)


def check_jobs(_: Any) -> None:
    """45 jobs added one by one and in batches of ten, with their context in message attributes: each once."""
    env, ran = new_env(), []
    create_standard_queue(env, "jobs", visibility_timeout=60, message_retention_period=600)
    queue = env.queue("jobs")
    note = queue.processor("note")(lambda number: ran.append(number))
    env.context["tenant"] = "blue"
    for number in range(5):
        note.delay(number=number)
    with queue.add_batch():
        for number in range(5, JOBS):
            note.delay(number=number)
    work(queue)
    assert sorted(ran) == list(range(JOBS))


def check_backoff(_: Any) -> None:
    """A job that fails is hidden for the backoff, by change_message_visibility_batch, and comes again, counted."""
    env, ran = new_env(backoff_policy=ConstantBackoff(1)), []
    create_standard_queue(env, "unsteady", visibility_timeout=60)
    queue = env.queue("unsteady")

    def unsteady() -> None:
        ran.append(1)
        if len(ran) < 3:
            raise ValueError("not yet")

    queue.processor("unsteady")(unsteady).delay()
    work(queue, 3)
    assert len(ran) == 3


def check_dead_letters(_: Any) -> None:
    """A redrive policy with its count as text: what failed twice is dead; the library's own push back revives it."""
    env, ran = new_env(backoff_policy=ConstantBackoff(0)), []
    create_standard_queue(env, "dead")
    create_standard_queue(env, "alive", redrive_policy=RedrivePolicy(env, "dead", 2))
    queue, is_well = env.queue("alive"), []

    def job() -> None:
        ran.append(1)
        if not is_well:
            raise ValueError("not well")

    queue.processor("job")(job).delay()
    work(queue)
    assert len(ran) == 2
    is_well.append(True)
    work(env.queue("dead", DeadLetterQueue.maker(queue)))
    work(queue, 3)
    assert len(ran) == 3


def check_fifo(_: Any) -> None:
    """FIFO with deduplication by content: jobs of a group run in order, the same job twice is one."""
    env, ran = new_env(), []
    create_fifo_queue(env, "orders.fifo", content_based_deduplication=True)
    queue = env.queue("orders.fifo")
    queue.processor("note")(lambda number: ran.append(number))
    for number in (0, 1, 1, 2, 3):
        queue.add_job("note", _group_id="g", number=number)
    work(queue)
    assert ran == [0, 1, 2, 3]


def check_batch_reads(_: Any) -> None:
    """A processor that is given all messages of several receives at once, and deletes them in batches."""
    env, sizes = new_env(), []
    create_standard_queue(env, "batches")
    queue = env.queue("batches", batching_policy=BatchMessages(25))
    queue.processor("many")(lambda messages: sizes.append(len(messages)))
    many = queue.get_processor("many")
    assert many is not None
    with queue.add_batch():
        for number in range(25):
            queue.add_job("many", number=number)
    work(queue)
    assert sum(sizes) == 25 and queue.drain_queue(wait_seconds=1) == 0


CHECKS = [check_jobs, check_backoff, check_dead_letters, check_fifo, check_batch_reads]


if __name__ == "__main__":
    sys.exit(run_checks("sqs-workers", version("sqs-workers"), CHECKS, lambda: None))
