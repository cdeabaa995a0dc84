"""The Celery application under test: what users write, with the SQS transport, and a file in which each run is noted.

Settings come as JSON in CLIENT_CELERY, so that each check has queues and workers of its own:

    {"notes": file, "queues": [names], "visibility_timeout": s, "predefined_queues": {...}, "by_url": bool}
"""

from __future__ import annotations

import json
import os
import time
from typing import Any
from urllib.parse import quote, urlsplit

from celery import Celery
from kombu import Queue

from tests.clients.programs.checks import endpoint

SETTINGS = json.loads(os.environ["CLIENT_CELERY"])
RETRIES = 2
LONG_POLL_S = 2


def broker_url() -> str:
    """`sqs://` alone where boto3 reads AWS_ENDPOINT_URL_SQS; key and address in it for the older ones."""
    if not SETTINGS.get("by_url"):
        return "sqs://"
    key, secret = (quote(os.environ[name], safe="") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    return f"sqs://{key}:{secret}@{urlsplit(endpoint()).netloc}"


def predefined_queues() -> dict[str, Any]:
    """JSON made text of the numbers of tries, by which kombu looks up a backoff policy."""
    queues: dict[str, Any] = SETTINGS.get("predefined_queues", {})
    for queue in queues.values():
        queue["backoff_policy"] = {int(tries): seconds for tries, seconds in queue["backoff_policy"].items()}
    return queues


app = Celery("penstock-clients", broker=broker_url())
app.conf.update(
    broker_transport_options={
        "region": os.environ["AWS_REGION"],
        "visibility_timeout": SETTINGS.get("visibility_timeout", 60),
        "wait_time_seconds": LONG_POLL_S,
        "polling_interval": 0.2,
        "is_secure": False,
        "predefined_queues": predefined_queues(),
    },
    broker_connection_retry_on_startup=True,
    task_default_queue=SETTINGS["queues"][0],
    # kombu looks up a predefined queue's backoff policy by the routing key.
    task_queues=[Queue(name, routing_key=name) for name in SETTINGS["queues"]],
    task_acks_late=True,
    task_acks_on_failure_or_timeout=SETTINGS.get("acks_on_failure", True),
    worker_prefetch_multiplier=1,
    # SQS has no fanout, which these are made of.
    worker_enable_remote_control=False,
    worker_send_task_events=False,
)


def note(what: str, task: str, **more: Any) -> None:
    """One line, appended in one write: several processes note in the same file."""
    line = json.dumps({"what": what, "task": task, "pid": os.getpid(), "at": time.time(), **more})
    with open(SETTINGS["notes"], "a") as file:
        file.write(line + "\n")


@app.task
def quick(name: str) -> None:
    note("done", name)


@app.task
def slow(name: str, seconds: float) -> None:
    note("started", name)
    time.sleep(seconds)
    note("done", name)


@app.task(bind=True, max_retries=RETRIES)
def flaky(self: Any, name: str, countdown: float) -> None:
    """Fails until its last retry."""
    note("tried", name, retries=self.request.retries)
    if self.request.retries < RETRIES:
        raise self.retry(countdown=countdown)
    note("done", name)


@app.task(bind=True)
def fails_twice(self: Any, name: str) -> None:
    """Fails on its first two deliveries; what redelivers it is the queue."""
    note("tried", name)
    with open(SETTINGS["notes"]) as file:
        tries = sum(json.loads(line)["task"] == name for line in file)
    if tries <= RETRIES:
        raise RuntimeError("fails, so that the queue delivers again")
    note("done", name)


@app.task
def append(text: str, more: str) -> str:
    """A link of a chain: passes on what it got."""
    note("done", text + more)
    return text + more
