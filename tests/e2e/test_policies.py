"""What queues do beyond SQS, over the wires that customers use, on real nodes (docs/beyond_sqs.md)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.e2e.test_fifo_and_dead_letters import new_queue, receive
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def post(rest: Any, url: str, path: str, body: Any = None) -> Any:
    answer = rest.post(f"/v1/queues/{name_of(url)}/{path}", json={} if body is None else body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_paused_queue_gives_nothing_until_it_is_resumed(installation: RunningInstallation) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    url = new_queue(sqs)
    assert post(rest, url, "pause")["paused"] is True
    sqs.send_message(QueueUrl=url, MessageBody="kept")
    assert receive(sqs, url, wait_s=1) == []
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (shown["Penstock.Paused"], shown["ApproximateNumberOfMessages"]) == ("true", "1")
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.extend(receive(sqs, url, wait_s=20)))
    waiting.start()
    time.sleep(0.5)
    assert not found
    started_s = time.monotonic()
    post(rest, url, "resume")
    waiting.join(timeout=10)
    assert [message["Body"] for message in found] == ["kept"] and time.monotonic() - started_s < 10
