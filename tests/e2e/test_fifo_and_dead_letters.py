"""FIFO queues, dead letters and move tasks as boto3 sees them, on real nodes, with processes killed in between."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest

from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow


def new_queue(sqs: Any, suffix: str = "", **attributes: str) -> str:
    if suffix:
        attributes["FifoQueue"] = "true"
    url: str = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex[:12]}{suffix}", Attributes=attributes)["QueueUrl"]
    return url


def arn_of(sqs: Any, url: str) -> str:
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(answer["Attributes"]["QueueArn"])


def redrive(sqs: Any, dead_url: str, receives: int = 1) -> str:
    return json.dumps({"deadLetterTargetArn": arn_of(sqs, dead_url), "maxReceiveCount": receives})


def receive(sqs: Any, url: str, wait_s: int = 0, **more: Any) -> list[Any]:
    answer = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=wait_s, MessageSystemAttributeNames=["All"], **more
    )
    messages: list[Any] = answer.get("Messages", [])
    return messages


def drain(sqs: Any, url: str, count: int, within_s: float = 30.0) -> list[Any]:
    """Receives and deletes until so many came."""
    found: list[Any] = []
    end = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < end:
        for message in receive(sqs, url, wait_s=1):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            found.append(message)
    return found


def fail_all(sqs: Any, url: str, dead_url: str, count: int) -> None:
    """Every message is received once and given back; the next look at it buries it."""

    def buried() -> bool:
        for message in receive(sqs, url, VisibilityTimeout=0):
            assert int(message["Attributes"]["ApproximateReceiveCount"]) == 1
        asked = ["ApproximateNumberOfMessages"]
        left = sqs.get_queue_attributes(QueueUrl=dead_url, AttributeNames=asked)["Attributes"][asked[0]]
        return int(left) >= count

    wait_until(buried, 30, 0.1)


def test_fifo_groups_keep_their_order_and_duplicates_are_one_message(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs, ".fifo")
    sent = {}
    for number in range(12):
        group = "ab"[number % 2]
        params = {"MessageGroupId": group, "MessageDeduplicationId": str(number)}
        first = sqs.send_message(QueueUrl=url, MessageBody=f"{group}{number}", **params)
        again = sqs.send_message(QueueUrl=url, MessageBody="another body", **params)
        assert (first["MessageId"], first["SequenceNumber"]) == (again["MessageId"], again["SequenceNumber"])
        sent[first["MessageId"]] = f"{group}{number}"
    found = drain(sqs, url, 12)
    assert {message["MessageId"]: message["Body"] for message in found} == sent
    for group in "ab":
        of_group = [message for message in found if message["Body"][0] == group]
        assert [message["Body"] for message in of_group] == [f"{group}{n}" for n in range(12) if "ab"[n % 2] == group]
        numbers = [message["Attributes"]["SequenceNumber"] for message in of_group]
        assert numbers == sorted(numbers)
    assert receive(sqs, url, wait_s=1) == []


def test_fifo_group_in_flight_waits_and_an_attempt_repeats(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs, ".fifo", ContentBasedDeduplication="true")
    for body in ("one", "two"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")
    (first,) = sqs.receive_message(QueueUrl=url, ReceiveRequestAttemptId="try")["Messages"]
    (again,) = sqs.receive_message(QueueUrl=url, ReceiveRequestAttemptId="try")["Messages"]
    assert (first["Body"], first["ReceiptHandle"]) == (again["Body"], again["ReceiptHandle"])
    assert receive(sqs, url) == []
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    (second,) = receive(sqs, url, wait_s=5, VisibilityTimeout=1)
    assert second["Body"] == "two"
    time.sleep(1.2)
    with pytest.raises(sqs.exceptions.ClientError) as caught:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_fifo_survives_its_leader_without_loss_or_double(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs, ".fifo")
    sqs.send_message(QueueUrl=url, MessageBody="0", MessageGroupId="g", MessageDeduplicationId="0")
    newest = max(installation.status()["partitions"], key=lambda row: row["partition"])
    for number in range(1, 60):
        if number == 20:
            installation.kill("storage-node", newest["leader"])
        params = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)}
        for _ in range(40):  # an error means unknown: sent again, and one message all the same
            try:
                sqs.send_message(QueueUrl=url, MessageBody=str(number), **params)
                break
            except Exception:  # a moment without a leader
                time.sleep(0.25)
        else:
            raise AssertionError(f"{number} was never acknowledged")
    found = drain(sqs, url, 60, 60.0)
    assert [message["Body"] for message in found] == [str(number) for number in range(60)]
    installation.wait_healthy()


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_dead_letters_are_read_and_moved_back(installation: RunningInstallation, suffix: str) -> None:
    sqs = installation.sqs()
    dead = new_queue(sqs, suffix)
    url = new_queue(sqs, suffix, RedrivePolicy=redrive(sqs, dead))
    ids = []
    for number in range(5):
        fifo = {"MessageGroupId": f"g{number}", "MessageDeduplicationId": str(number)} if suffix else {}
        ids.append(sqs.send_message(QueueUrl=url, MessageBody=f"m{number}", **fifo)["MessageId"])
    fail_all(sqs, url, dead, 5)
    letters = receive(sqs, dead, wait_s=2, VisibilityTimeout=0)
    assert {letter["MessageId"] for letter in letters} <= set(ids)
    assert all(letter["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, url) for letter in letters)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": redrive(sqs, dead, 10)})
    source = arn_of(sqs, dead)
    sqs.start_message_move_task(SourceArn=source)

    def ended() -> bool:
        (task,) = sqs.list_message_move_tasks(SourceArn=source)["Results"]
        assert task["Status"] in ("RUNNING", "COMPLETED"), task
        return bool(task["Status"] == "COMPLETED")

    wait_until(ended, 60, 0.2)
    back = drain(sqs, url, 5)
    assert sorted(message["Body"] for message in back) == [f"m{number}" for number in range(5)]
    assert set(ids).isdisjoint(message["MessageId"] for message in back)
    assert receive(sqs, dead) == []


def test_dead_letters_outlive_their_queue(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    dead = new_queue(sqs)
    url = new_queue(sqs, RedrivePolicy=redrive(sqs, dead))
    sqs.send_message(QueueUrl=url, MessageBody="kept")
    fail_all(sqs, url, dead, 1)
    sqs.delete_queue(QueueUrl=url)
    time.sleep(1)
    assert [message["Body"] for message in drain(sqs, dead, 1)] == ["kept"]


def test_move_goes_on_after_its_worker_was_killed(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    dead, target = new_queue(sqs), new_queue(sqs)
    url = new_queue(sqs, RedrivePolicy=redrive(sqs, dead))
    for start in range(0, 60, 10):
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(start, start + 10)]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    fail_all(sqs, url, dead, 60)
    source = arn_of(sqs, dead)
    sqs.start_message_move_task(SourceArn=source, DestinationArn=arn_of(sqs, target), MaxNumberOfMessagesPerSecond=10)

    def moved() -> int:
        (task,) = sqs.list_message_move_tasks(SourceArn=source)["Results"]
        assert task["Status"] in ("RUNNING", "COMPLETED"), task
        return int(task["ApproximateNumberOfMessagesMoved"]) if task["Status"] == "RUNNING" else 60

    wait_until(lambda: moved() >= 10, 30, 0.1)
    worker = installation.processes("worker")[0]
    installation.kill("worker", worker["id"])
    wait_until(lambda: moved() == 60, 120, 0.5)
    bodies = [message["Body"] for message in drain(sqs, target, 60)]
    assert sorted(bodies, key=int) == [str(number) for number in range(60)]
    installation.wait_healthy()
