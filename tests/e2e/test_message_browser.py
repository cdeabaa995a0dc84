"""The message browser and redrive on a real installation: looked at without a trace, changed with one."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow

COUNTS = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]


class Browser:
    """A queue with a dead-letter queue, and the ways to it."""

    def __init__(self, installation: RunningInstallation, suffix: str = "") -> None:
        self.sqs, self.rest = installation.sqs(), installation.rest()
        stem = f"q-{uuid.uuid4().hex[:12]}"
        self.name, self.dead = stem + suffix, stem + "-dead" + suffix
        fifo = {"FifoQueue": "true"} if suffix else {}
        self.dead_url = self.sqs.create_queue(QueueName=self.dead, Attributes=fifo)["QueueUrl"]
        answer = self.sqs.get_queue_attributes(QueueUrl=self.dead_url, AttributeNames=["QueueArn"])
        policy = json.dumps({"deadLetterTargetArn": answer["Attributes"]["QueueArn"], "maxReceiveCount": 1})
        self.url = self.sqs.create_queue(QueueName=self.name, Attributes={"RedrivePolicy": policy, **fifo})["QueueUrl"]

    def send(self, body: str, **more: Any) -> str:
        return str(self.sqs.send_message(QueueUrl=self.url, MessageBody=body, **more)["MessageId"])

    def call(self, what: str, queue: str | None = None, **ask: Any) -> Any:
        answer = self.rest.post(f"/v1/queues/{queue or self.name}/messages/{what}", json=ask)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def peek(self, queue: str | None = None, **ask: Any) -> list[Any]:
        messages: list[Any] = self.call("peek", queue, limit=100, **ask)["messages"]
        return messages

    def counts(self) -> list[int]:
        """Waiting, in flight, delayed."""
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=COUNTS)["Attributes"]
        return [int(found[name]) for name in COUNTS]

    def fail(self, count: int) -> None:
        """Everything is received once and given back, until so many are dead."""

        def dead() -> bool:
            self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10, VisibilityTimeout=0)
            return len(self.peek(self.dead)) >= count

        wait_until(dead, 30, 0.1)

    def move(self, **ask: Any) -> Any:
        """A task, when it has ended."""
        started = self.rest.post(f"/v1/queues/{self.dead}/moves", json=ask)
        assert started.status_code == 201, started.text
        path = f"/v1/queues/{self.dead}/moves/{started.json()['id']}"
        wait_until(lambda: self.rest.get(path).json()["status"] not in ("running", "cancelling"), 60, 0.2)
        return self.rest.get(path).json()


def test_peek_leaves_counts_receive_counts_and_visibility_as_they_are(installation: RunningInstallation) -> None:
    browser = Browser(installation)
    browser.send("leased")
    (held,) = browser.sqs.receive_message(QueueUrl=browser.url, VisibilityTimeout=600)["Messages"]
    browser.send("waits", MessageAttributes={"a": {"DataType": "String", "StringValue": "1"}})
    browser.send("later", DelaySeconds=600)
    # A lease is given before it is committed: the message browser sees it once it is.
    wait_until(lambda: browser.peek()[0]["state"] == "in_flight")
    before = browser.counts()
    assert before == [1, 1, 1]
    looks = [browser.peek() for _ in range(5)]
    assert all(look == looks[0] for look in looks) and browser.counts() == before
    assert [(one["body"], one["state"], one["receive_count"]) for one in looks[0]] == [
        ("leased", "in_flight", 1), ("waits", "waiting", 0), ("later", "delayed", 0),
    ]  # fmt: skip
    (message,) = browser.sqs.receive_message(
        QueueUrl=browser.url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
    )["Messages"]
    assert (message["Body"], message["Attributes"]["ApproximateReceiveCount"]) == ("waits", "1")
    browser.sqs.delete_message(QueueUrl=browser.url, ReceiptHandle=held["ReceiptHandle"])
    assert [one["body"] for one in browser.peek()] == ["waits", "later"]


def test_one_message_is_found_deleted_changed_and_moved(installation: RunningInstallation) -> None:
    browser = Browser(installation)
    ids = [browser.send(f"order {number}") for number in range(250)]
    ask: dict[str, Any] = {"filter": {"ids": [ids[237]]}}
    while not (found := browser.call("find", **ask))["messages"]:
        ask["cursor"] = found["cursor"]
    (message,) = found["messages"]
    assert message["body"] == "order 237"
    assert browser.call("delete", message=message["message"], reason="poison")["id"] == ids[237]
    gone = browser.rest.post(f"/v1/queues/{browser.name}/messages/delete", json={"message": message["message"]})
    assert gone.status_code == 404 and browser.counts()[0] == 249
    (message,) = browser.call("find", filter={"body_contains": "order 42"})["messages"]
    sent = browser.call("resend", message=message["message"], body="order 42, corrected")
    (new,) = browser.call("find", filter={"body_contains": "corrected"})["messages"]
    assert (new["id"], new["history"]["id"]) == (sent["id"], ids[42]) and browser.counts()[0] == 249
    (message,) = browser.call("find", filter={"body_contains": "order 99"})["messages"]
    browser.call("dead-letter", message=message["message"], reason="no such customer")
    (dead,) = browser.peek(browser.dead)
    death = dead["dead_letter"]
    assert (death["source"], death["reason"], death["note"]) == (browser.name, "moved", "no such customer")
    assert dead["id"] == ids[99]
    (by_sqs,) = browser.sqs.receive_message(
        QueueUrl=browser.dead_url, MessageSystemAttributeNames=["All", "Penstock.DeadLetterReason"]
    )["Messages"]
    assert json.loads(by_sqs["Attributes"]["Penstock.DeadLetterReason"])["note"] == "no such customer"
    assert by_sqs["Attributes"]["DeadLetterQueueSourceArn"].endswith(browser.name)
    assert browser.counts()[0] == 248


def test_chosen_dead_letters_go_back_with_their_history_and_the_rest_stays(installation: RunningInstallation) -> None:
    browser = Browser(installation)
    ids = {f"m{number}": browser.send(f"m{number}") for number in range(12)}
    browser.fail(12)
    dry = browser.move(filter={"body_contains": "m1"}, dry_run=True)
    assert (dry["status"], dry["matched"], dry["moved"], dry["scanned"]) == ("completed", 3, 0, 12)
    assert len(browser.peek(browser.dead)) == 12 and browser.peek() == []
    done = browser.move(filter={"body_contains": "m1"}, returned_max=5)
    assert (done["status"], done["moved"], done["skipped"]) == ("completed", 3, 0)
    back = browser.peek()
    assert sorted(one["body"] for one in back) == ["m1", "m10", "m11"]
    assert all(one["id"] == ids[one["body"]] == one["history"]["id"] for one in back)
    assert all(one["history"]["receive_count"] >= 1 and one["history"]["task"] == done["id"] for one in back)
    assert len(browser.peek(browser.dead)) == 9


def test_fifo_group_keeps_its_order_through_a_filtered_redrive(installation: RunningInstallation) -> None:
    browser = Browser(installation, ".fifo")
    for number in range(8):
        browser.send(f"{'ab'[number % 2]}{number}", MessageGroupId="ab"[number % 2], MessageDeduplicationId=str(number))
    browser.fail(8)
    done = browser.move(filter={"groups": ["a"]})
    assert (done["status"], done["moved"]) == ("completed", 4)
    assert [one["body"] for one in browser.peek()] == ["a0", "a2", "a4", "a6"]
    assert [one["body"] for one in browser.peek(browser.dead)] == ["b1", "b3", "b5", "b7"]
    received = browser.sqs.receive_message(QueueUrl=browser.url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in received] == ["a0", "a2", "a4", "a6"]


def test_paused_task_moves_nothing_until_it_is_resumed(installation: RunningInstallation) -> None:
    browser = Browser(installation)
    for number in range(6):
        browser.send(f"m{number}")
    browser.fail(6)
    started = browser.rest.post(f"/v1/queues/{browser.dead}/moves", json={"messages_per_second": 1}).json()
    path = f"/v1/queues/{browser.dead}/moves/{started['id']}"
    wait_until(lambda: browser.rest.get(path).json()["moved"] >= 1, 30, 0.1)
    assert browser.rest.post(path + "/pause").json()["status"] == "paused"
    # One batch may be under way when it is paused.
    wait_until(lambda: browser.rest.get(path).json()["moved"] == len(browser.peek()), 10, 0.2)
    moved = browser.rest.get(path).json()["moved"]
    assert moved < 6
    assert browser.rest.post(path + "/resume").json()["status"] == "running"
    wait_until(lambda: browser.rest.get(path).json()["status"] == "completed", 60, 0.2)
    assert len(browser.peek()) == 6 and browser.peek(browser.dead) == []
