"""Queues of several partitions as boto3 sees them, on real nodes: order, duplicates, growth under traffic, levels."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow

FAST = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
GROUPS = 200


def new_queue(sqs: Any, suffix: str = "", **attributes: str) -> str:
    if suffix:
        attributes["FifoQueue"] = "true"
    name = f"q-{uuid.uuid4().hex[:12]}{suffix}"
    url: str = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url


def attribute(sqs: Any, url: str, name: str) -> int:
    return int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])


def leaders_of(installation: RunningInstallation, newer_than: int) -> list[int]:
    rows = installation.status()["partitions"]
    return [row["leader"] for row in rows if row["partition"] > newer_than and row["tag"].startswith("queue:")]


class Consumers:
    """Receive and delete in threads of their own; `seen` in the order in which messages were given."""

    def __init__(self, installation: RunningInstallation, url: str, count: int) -> None:
        self._url = url
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self.seen: list[dict[str, Any]] = []
        self._errors: list[Exception] = []
        clients = [installation.sqs() for _ in range(count)]
        self._threads = [threading.Thread(target=self._run, args=(client,)) for client in clients]
        for thread in self._threads:
            thread.start()

    def stop_when(self, done: Callable[[], bool], within_s: float) -> None:
        try:
            wait_until(lambda: bool(self._errors) or done(), within_s, 0.1)
        finally:
            self._ends.set()
            for thread in self._threads:
                thread.join()
            print(f"{len(self.seen)} messages came")
        assert not self._errors, self._errors

    def _run(self, sqs: Any) -> None:
        try:
            self._consume(sqs)
        except Exception as error:  # whatever it is, the test has failed
            self._errors.append(error)

    def _consume(self, sqs: Any) -> None:
        while not self._ends.is_set():
            answer = sqs.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=1, MessageSystemAttributeNames=["All"]
            )
            messages = answer.get("Messages", [])
            with self._lock:
                self.seen += messages
            if messages:
                entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
                answer = sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
                assert not answer.get("Failed"), answer


def check_order(seen: list[dict[str, Any]]) -> None:
    """Of each group bodies and sequence numbers rise, without a gap or a message twice."""
    bodies: dict[str, list[int]] = {}
    numbers: dict[str, list[int]] = {}
    for message in seen:
        group = message["Attributes"]["MessageGroupId"]
        bodies.setdefault(group, []).append(int(message["Body"]))
        numbers.setdefault(group, []).append(int(message["Attributes"]["SequenceNumber"]))
    for group, found in bodies.items():
        assert found == list(range(len(found))), f"{group}: {found}"
        assert numbers[group] == sorted(set(numbers[group])), group


def send_round(sqs: Any, url: str, number: int, groups: int = GROUPS) -> list[dict[str, Any]]:
    """One message of every group, in batches, sent again until it is there."""
    sent: list[dict[str, Any]] = []
    for first in range(0, groups, 10):
        entries = [
            {
                "Id": str(group),
                "MessageBody": str(number),
                "MessageGroupId": f"group-{group}",
                "MessageDeduplicationId": f"{group}-{number}",
            }
            for group in range(first, min(first + 10, groups))
        ]
        answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        assert not answer.get("Failed"), answer
        sent += answer["Successful"]
    return sent


def test_fifo_of_four_partitions_keeps_every_group_in_order(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    newest = max(row["partition"] for row in installation.status()["partitions"])
    url = new_queue(sqs, ".fifo", **FAST, **{"Penstock.Partitions": "4"})
    assert attribute(sqs, url, "Penstock.PartitionsOpen") == 4
    wait_until(lambda: len([one for one in leaders_of(installation, newest) if one]) == 4)
    assert len(set(leaders_of(installation, newest))) == 3, "partitions of a queue are led by different nodes"
    consumers = Consumers(installation, url, 2)
    ids = set()
    for number in range(5):
        sent = send_round(sqs, url, number)
        again = send_round(sqs, url, number)
        assert [one["MessageId"] for one in again] == [one["MessageId"] for one in sent], "a repeat is one message"
        ids |= {one["MessageId"] for one in sent}
    consumers.stop_when(lambda: len(consumers.seen) >= 5 * GROUPS, 60)
    assert len(consumers.seen) == 5 * GROUPS == len(ids)
    assert {message["MessageId"] for message in consumers.seen} == ids
    check_order(consumers.seen)


def test_attempt_repeats_on_several_partitions(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs, ".fifo", **FAST)
    assert attribute(sqs, url, "Penstock.PartitionsOpen") == 4, "what a queue for throughput has by default"
    send_round(sqs, url, 0, 1)
    (first,) = sqs.receive_message(QueueUrl=url, ReceiveRequestAttemptId="try", WaitTimeSeconds=5)["Messages"]
    send_round(sqs, url, 0, 40)
    for _ in range(5):
        (again,) = sqs.receive_message(QueueUrl=url, ReceiveRequestAttemptId="try")["Messages"]
        assert again["ReceiptHandle"] == first["ReceiptHandle"]


def test_fifo_queue_is_spread_under_traffic_and_no_group_overtakes_itself(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs, ".fifo")
    consumers = Consumers(installation, url, 2)
    sent = [send_round(sqs, url, number, 50) for number in range(3)]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={**FAST, "Penstock.Partitions": "3"})
    number = 3
    end = time.monotonic() + 30
    while attribute(sqs, url, "Penstock.PartitionsOpen") != 3 or attribute(sqs, url, "Penstock.PartitionsDraining"):
        sent.append(send_round(sqs, url, number, 50))
        number += 1
        assert time.monotonic() < end, "the queue was never spread"
    for _ in range(3):
        sent.append(send_round(sqs, url, number, 50))
        number += 1
    assert [one["MessageId"] for one in send_round(sqs, url, 0, 50)] == [one["MessageId"] for one in sent[0]]
    consumers.stop_when(lambda: len(consumers.seen) >= 50 * number, 60)
    assert len(consumers.seen) == 50 * number
    check_order(consumers.seen)
    numbers = [int(one["SequenceNumber"]) for round_sent in sent for one in round_sent if one["Id"] == "7"]
    assert numbers == sorted(set(numbers))


def test_standard_queue_grows_under_traffic_and_loses_nothing(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs)
    consumers = Consumers(installation, url, 2)
    for number in range(300):
        if number == 100:
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"Penstock.Partitions": "4"})
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    wait_until(lambda: attribute(sqs, url, "Penstock.PartitionsOpen") == 4)
    for number in range(300, 400):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    consumers.stop_when(lambda: len({message["Body"] for message in consumers.seen}) >= 400, 60)
    assert {message["Body"] for message in consumers.seen} == {str(number) for number in range(400)}
    assert attribute(sqs, url, "ApproximateNumberOfMessages") == 0
    with pytest.raises(sqs.exceptions.ClientError) as caught:
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Penstock.Partitions": "2"})
    assert "cannot be lowered" in str(caught.value)


def test_levels_are_received_from_the_highest_down(installation: RunningInstallation) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    url = new_queue(sqs, **{"Penstock.PriorityLevels": "3", "Penstock.Partitions": "2"})
    name = url.rpartition("/")[2]
    for number in range(30):
        level = {"DataType": "Number", "StringValue": str(number % 3)}
        sqs.send_message(QueueUrl=url, MessageBody=f"{number % 3}", MessageAttributes={"Penstock.Priority": level})
    found: list[str] = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=4).get("Messages"):
        found += [message["Body"] for message in messages]
    assert found == ["2"] * 10 + ["1"] * 10 + ["0"] * 10
    parked: list[Any] = []
    waiting = threading.Thread(
        target=lambda: parked.append(rest.post(f"/v1/queues/{name}/messages/receive", json={"wait_seconds": 10}))
    )
    waiting.start()
    time.sleep(0.5)
    assert rest.post(f"/v1/queues/{name}/messages", json={"body": "now", "priority": 2}).status_code == 200
    waiting.join()
    assert [message["body"] for message in parked[0].json()["messages"]] == ["now"]


def test_dead_letters_of_several_partitions_come_home_again(installation: RunningInstallation) -> None:
    import json

    sqs = installation.sqs()
    dead = new_queue(sqs, ".fifo", **FAST)
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = new_queue(sqs, ".fifo", **FAST, **{"Penstock.Partitions": "2", "RedrivePolicy": policy})
    for number in range(2):
        send_round(sqs, url, number, 20)

    def buried() -> bool:
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
        return attribute(sqs, dead, "ApproximateNumberOfMessages") >= 40

    wait_until(buried, 60, 0.02)
    consumers = Consumers(installation, url, 2)
    sqs.start_message_move_task(SourceArn=arn)
    consumers.stop_when(lambda: len(consumers.seen) >= 40, 60)
    check_order(consumers.seen)
    assert attribute(sqs, dead, "ApproximateNumberOfMessages") == 0
