"""Deleted queues that are kept: their messages come back whole (docs/deletion.md), on real nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.test_fifo_and_dead_letters import drain, new_queue, receive
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow
QUEUE_GONE = "AWS.SimpleQueueService.NonExistentQueue"


@pytest.fixture
def rest(installation: RunningInstallation) -> Iterator[Any]:
    found = installation.rest()
    assert found.patch("/v1/account", json={"deletion_grace_days": 1}).status_code == 200
    yield found
    found.patch("/v1/account", json={"deletion_grace_days": 0, "deletion_protection": False})


def restored(rest: Any, name: str) -> None:
    queues = rest.get("/v1/deleted-queues", params={"page_size": 1000}).json()["queues"]
    (queue_id,) = [one["queue_id"] for one in queues if one["name"] == name]
    answer = rest.post(f"/v1/deleted-queues/{queue_id}/restoration", json={})
    assert answer.status_code == 200, answer.text


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_gone(sqs: Any, url: str) -> bool:
    try:
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    except sqs.exceptions.QueueDoesNotExist as error:
        assert error.response["Error"]["Code"] == QUEUE_GONE
        return True
    return False


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_restored_queue_has_every_message_that_it_held(
    installation: RunningInstallation, rest: Any, suffix: str
) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs, suffix, VisibilityTimeout="2")
    name = url.rpartition("/")[2]
    for number in range(30):
        extra = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)} if suffix else {}
        sqs.send_message(QueueUrl=url, MessageBody=f"m{number}", **extra)
    held = receive(sqs, url, wait_s=2)[0]
    sqs.delete_queue(QueueUrl=url)
    until(lambda: is_gone(sqs, url))
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=held["ReceiptHandle"])
    restored(rest, name)
    until(lambda: not is_gone(sqs, url))
    bodies = [message["Body"] for message in drain(sqs, url, 30)]
    wanted = [f"m{number}" for number in range(30)]
    assert (bodies if suffix else sorted(bodies)) == (wanted if suffix else sorted(wanted))


def test_stock_client_hears_why_a_protected_queue_stays(installation: RunningInstallation, rest: Any) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs)
    rest.patch("/v1/account", json={"deletion_protection": True})
    with pytest.raises(sqs.exceptions.UnsupportedOperation, match="Deletion protection is on"):
        sqs.delete_queue(QueueUrl=url)
    rest.patch("/v1/account", json={"deletion_protection": False})
    assert sqs.delete_queue(QueueUrl=url)["ResponseMetadata"]["HTTPStatusCode"] == 200
