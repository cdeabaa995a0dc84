"""Scheduled messages and cron schedules as users see them, on real nodes, with processes killed in between."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow


def receive(sqs: Any, url: str, wait_s: int = 0) -> list[Any]:
    """Receives and deletes."""
    answer = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=wait_s, MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
    )  # fmt: skip
    messages: list[Any] = answer.get("Messages", [])
    for message in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return messages


def delayed(sqs: Any, url: str) -> int:
    name = "ApproximateNumberOfMessagesDelayed"
    return int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_message_is_scheduled_cancelled_rescheduled_and_comes_when_due_after_a_leader_died(
    installation: RunningInstallation, suffix: str
) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    name = f"scheduled-{time.monotonic_ns()}{suffix}"
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if suffix else {}
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    due = datetime.now(UTC) + timedelta(seconds=6)
    grouped = {"MessageGroupId": "g"} if suffix else {}
    sent = sqs.send_message(
        QueueUrl=url, MessageBody="due", **grouped,
        MessageAttributes={"Penstock.DeliverAt": {"DataType": "String", "StringValue": due.isoformat()}},
    )  # fmt: skip
    rest_group = {"group": "g"} if suffix else {}
    year_ms = 365 * 86_400_000
    far = rest.post(f"/v1/queues/{name}/messages", json={"body": "far", "delay_ms": year_ms, **rest_group}).json()
    gone = rest.post(f"/v1/queues/{name}/messages", json={"body": "gone", "delay_ms": 5_000, **rest_group}).json()
    assert delayed(sqs, url) == 3
    listed = rest.get(f"/v1/queues/{name}/scheduled").json()["messages"]
    assert [one["body"] for one in listed] == ["gone", "due", "far"]
    assert listed[1]["id"] == sent["MessageId"]
    answer = rest.post(f"/v1/queues/{name}/scheduled/cancel", json={"ids": [gone["schedule_id"]]})
    assert answer.json() == {"done": 1, "failed": []}
    installation.kill("storage-node", installation.node_ids()[0])
    came: list[Any] = []
    wait_until(lambda: bool(came.extend(receive(sqs, url, wait_s=1)) or came), 30)
    (message,) = [*came, *(one for _ in range(2) for one in receive(sqs, url, wait_s=1))]
    assert message["Body"] == "due" and message["MessageId"] == sent["MessageId"]
    assert int(message["Attributes"]["SentTimestamp"]) >= int(due.timestamp() * 1000)
    answer = rest.post(f"/v1/queues/{name}/scheduled/reschedule", json={"ids": [far["schedule_id"]], "delay_ms": 100})
    assert answer.json() == {"done": 1, "failed": []}
    (message,) = receive(sqs, url, wait_s=10)
    assert message["Body"] == "far" and message["MessageId"] == far["id"]
    refused = rest.post(f"/v1/queues/{name}/scheduled/cancel", json={"ids": [far["schedule_id"]]})
    assert (refused.status_code, refused.json()["code"]) == (409, "not-scheduled")
    installation.wait_healthy()


def test_cron_schedule_sends_one_message_a_tick_while_the_worker_is_killed(
    installation: RunningInstallation,
) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    name = f"cron-{time.monotonic_ns()}"
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    payload = {"name": "often", "cron": "* * * * * *", "time_zone": "Europe/Paris", "body": "tick"}
    created = rest.post(f"/v1/queues/{name}/schedules", json=payload)
    assert created.status_code == 201, created.text
    ticks: list[float] = []

    def collect() -> None:
        for message in receive(sqs, url, wait_s=1):
            assert message["Body"] == "tick"
            ticks.append(int(message["Attributes"]["SentTimestamp"]) / 1000)

    def some(count: int) -> bool:
        collect()
        return len(ticks) >= count

    def fired() -> int:
        return int(rest.get(f"/v1/queues/{name}/schedules/often").json()["fired"])

    wait_until(lambda: some(3), 60, 0.1)
    installation.kill("worker")
    wait_until(lambda: some(15), 90, 0.1)
    paused = rest.post(f"/v1/queues/{name}/schedules/often/pause").json()
    assert paused["enabled"] is False and paused["gaps"] == 0
    # What was handed over before the pause still comes.
    wait_until(lambda: some(fired()), 30, 0.1)
    for _ in range(2):
        collect()
    assert len(ticks) == fired(), "one message a tick"
    assert rest.delete(f"/v1/queues/{name}/schedules/often").status_code == 204


def test_fifo_queue_gets_other_partitions_only_when_nothing_is_scheduled_there(
    installation: RunningInstallation,
) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    name = f"spread-{time.monotonic_ns()}.fifo"
    fast = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    given = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "Penstock.Partitions": "2", **fast}
    url = sqs.create_queue(QueueName=name, Attributes=given)["QueueUrl"]
    sent = [
        rest.post(f"/v1/queues/{name}/messages", json={"body": f"b{n}", "group": f"g{n}", "delay_ms": 3_600_000}).json()
        for n in range(8)
    ]
    with pytest.raises(sqs.exceptions.ClientError) as caught:
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Penstock.Partitions": "3"})
    assert caught.value.response["Error"]["Code"] == "InvalidAttributeValue"
    assert "holds 8 scheduled messages" in str(caught.value)
    listed = rest.get(f"/v1/queues/{name}/scheduled").json()["messages"]
    assert {one["schedule_id"] for one in listed} == {one["schedule_id"] for one in sent}
    ids = [one["schedule_id"] for one in sent]
    soon = rest.post(f"/v1/queues/{name}/scheduled/reschedule", json={"ids": ids[:2], "delay_ms": 100})
    assert soon.json() == {"done": 2, "failed": []}
    answer = rest.post(f"/v1/queues/{name}/scheduled/cancel", json={"ids": ids[2:]})
    assert answer.json() == {"done": 6, "failed": []}
    wait_until(lambda: delayed(sqs, url) == 0)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Penstock.Partitions": "3"})
    bodies = {message["Body"] for _ in range(4) for message in receive(sqs, url, wait_s=1)}
    assert bodies == {"b0", "b1"}
