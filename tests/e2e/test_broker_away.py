"""Valkey stands still: queues are made, changed and deleted, schedules fire, and all is well afterwards."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator

import pytest

from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow

CREATE_S_MAX = 2.0
# Under a whole suite on two cores a single one may take longer; most do not.
CREATE_S_WORST = 8.0
QUEUES = 10


@pytest.fixture
def stopped_broker(installation: RunningInstallation) -> Iterator[None]:
    """Stopped and not killed: connections to it are taken, and nothing is ever answered."""
    pid = installation.processes("valkey")[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
    installation.wait_healthy()


def test_queues_live_and_die_without_the_broker_and_schedules_fire(
    installation: RunningInstallation, stopped_broker: None
) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    times: list[float] = []
    for _ in range(QUEUES):
        name, began = f"q-{uuid.uuid4().hex[:12]}", time.monotonic()
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        times.append(time.monotonic() - began)
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "700"})
        sqs.send_message(QueueUrl=url, MessageBody="x")
        sqs.delete_queue(QueueUrl=url)
    times.sort()
    assert times[QUEUES * 8 // 10] < CREATE_S_MAX and times[-1] < CREATE_S_WORST, times
    (valkey,) = installation.processes("valkey")
    assert valkey["health"] == "unhealthy" and valkey["not_up"]["since"]

    name, url = installation.new_queue()
    payload = {"name": "tick", "cron": "*/2 * * * * *", "body": "tick"}
    assert rest.post(f"/v1/queues/{name}/schedules", json=payload).status_code == 201
    ticks: list[str] = []

    def three_came() -> bool:
        ticks.extend(message["Body"] for message in receive())
        return len(ticks) >= 3

    def receive() -> list[dict[str, str]]:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2)
        return list(answer.get("Messages", ()))

    wait_until(three_came, 30)
    assert set(ticks) == {"tick"}
    sqs.delete_queue(QueueUrl=url)
