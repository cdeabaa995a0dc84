"""What queues do beyond SQS, over the wires that customers use, on real nodes (docs/beyond_sqs.md)."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from tests.e2e.test_fifo_and_dead_letters import drain, new_queue, receive, redrive
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


def bury_after(sqs: Any, receives: int, suffix: str = "", **attributes: str) -> tuple[str, str]:
    """(queue, its dead-letter queue)."""
    dead_url = new_queue(sqs, suffix)
    return new_queue(sqs, suffix, RedrivePolicy=redrive(sqs, dead_url, receives), **attributes), dead_url


def test_released_receives_do_not_count(installation: RunningInstallation) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    url, dead_url = bury_after(sqs, 2)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    for _ in range(4):
        (message,) = receive(sqs, url, wait_s=2)
        assert message["Attributes"]["ApproximateReceiveCount"] == "1"
        assert post(rest, url, "messages/release", {"receipts": [message["ReceiptHandle"]]})["done"] == 1
    for count in ("1", "2"):
        (message,) = receive(sqs, url, wait_s=2, VisibilityTimeout=0)
        assert message["Attributes"]["ApproximateReceiveCount"] == count
    assert receive(sqs, url) == []
    (letter,) = post(rest, dead_url, "messages/receive", {"wait_seconds": 5})["messages"]
    assert (letter["body"], letter["death"]["reason"], letter["death"]["receives"]) == ("x", "max_receives", 2)


def test_visibility_of_zero_does_not_count_where_the_queue_says_so(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs, **{"Penstock.UncountedRelease": "true"})
    sqs.send_message(QueueUrl=url, MessageBody="x")
    for _ in range(3):
        (message,) = receive(sqs, url, wait_s=2)
        assert message["Attributes"]["ApproximateReceiveCount"] == "1"
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)


def test_retry_policy_spaces_the_receives(installation: RunningInstallation) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    policy = {"kind": "exponential", "delay_ms": 400, "max_ms": 2_000}
    url = new_queue(sqs, **{"Penstock.RetryPolicy": json.dumps(policy)})
    sqs.send_message(QueueUrl=url, MessageBody="x")
    failed_s = [0.0]
    for pause_s in (0.0, 0.4, 0.8, 1.6, 2.0):
        (message,) = receive(sqs, url, wait_s=10)
        assert time.monotonic() - failed_s[-1] >= pause_s - 0.05
        asked = {"receipts": [message["ReceiptHandle"]], "count": True}
        failed_s.append(time.monotonic())
        assert post(rest, url, "messages/release", asked)["done"] == 1


def test_group_of_a_dead_letter_is_held_until_it_is_released(installation: RunningInstallation) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    url, dead_url = bury_after(sqs, 1, ".fifo", **{"Penstock.ParkGroups": "true", "ContentBasedDeduplication": "true"})
    for body in ("a1", "a2", "a3", "b1"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[0])
    (message,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
    assert message["Body"] == "a1"
    assert [letter["Body"] for letter in drain(sqs, dead_url, 1)] == ["a1"]
    assert [letter["Body"] for letter in drain(sqs, url, 1)] == ["b1"]
    newest = max(installation.status()["partitions"], key=lambda row: row["partition"])
    installation.kill("storage-node", newest["leader"])  # whoever leads: the hold is part of the log
    assert receive(sqs, url, wait_s=2) == []
    shown = rest.get(f"/v1/queues/{name_of(url)}/parked-groups").json()
    assert [(one["group"], one["dead_letter_id"]) for one in shown["groups"]] == [("a", message["MessageId"])]
    assert post(rest, url, "parked-groups/release", {"groups": ["a"]}) == {"released": 1, "not_parked": []}
    assert [one["Body"] for one in receive(sqs, url, wait_s=5)] == ["a2", "a3"]
    installation.wait_healthy()


@pytest.mark.parametrize("acks", ["all", "quorum", "leader", "none"])
def test_messages_arrive_whatever_acks_their_queue_or_they_themselves_ask_for(
    installation: RunningInstallation, acks: str
) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    url = new_queue(sqs, **{"Penstock.Acks": acks})
    sqs.send_message(QueueUrl=url, MessageBody="queue")
    attribute = {"Penstock.Acks": {"DataType": "String", "StringValue": acks}}
    sqs.send_message(QueueUrl=url, MessageBody="message", MessageAttributes=attribute)
    post(rest, url, "messages", {"body": "rest", "acks": acks})
    found = drain(sqs, url, 3)
    assert {message["Body"] for message in found} == {"queue", "message", "rest"}


def test_acks_of_none_with_a_delete_before_the_work_is_at_most_once(installation: RunningInstallation) -> None:
    """docs/guarantees.md: the producer sends once and never again, the consumer deletes before it works."""
    sqs, url = installation.sqs(), new_queue(installation.sqs(), **{"Penstock.Acks": "none"})
    for number in range(100):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    works: list[str] = []
    for message in drain(sqs, url, 100):
        works.append(message["Body"])
    assert len(works) == len(set(works)) <= 100 and works


def test_send_to_a_queue_that_does_not_exist_makes_it_where_the_account_allows_it(
    installation: RunningInstallation,
) -> None:
    sqs, rest = installation.sqs(), installation.rest()
    url = new_queue(sqs).rpartition("/")[0] + f"/made-{time.time_ns()}"
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.send_message(QueueUrl=url, MessageBody="x")
    try:
        assert rest.patch("/v1/account", json={"auto_create_queues": True}).status_code == 200
        end_s = time.monotonic() + 10
        while True:  # front ends hear of it a moment later
            try:
                sqs.send_message(QueueUrl=url, MessageBody="x")
                break
            except sqs.exceptions.QueueDoesNotExist:
                assert time.monotonic() < end_s
    finally:
        rest.patch("/v1/account", json={"auto_create_queues": False})
    assert [message["Body"] for message in drain(sqs, url, 1)] == ["x"]
