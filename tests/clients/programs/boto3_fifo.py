"""boto3 on FIFO queues, dead-letter queues and message move tasks: checks that `boto3_actions` runs too."""

from __future__ import annotations

import json
from typing import Any

from tests.clients.programs.boto3_subject import SIMPLE, Subject, error_code
from tests.clients.programs.checks import Check, new_name, wait_until

GROUPS = ("red", "green", "blue")


def fifo_queue(subject: Subject, **attributes: str) -> str:
    wanted = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} | attributes
    return str(subject.sqs.create_queue(QueueName=new_name() + ".fifo", Attributes=wanted)["QueueUrl"])


def arn(subject: Subject, url: str) -> str:
    asked = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
    return str(subject.sqs.get_queue_attributes(**asked)["Attributes"]["QueueArn"])


def send(subject: Subject, url: str, group: str, body: str, **more: str) -> Any:
    return subject.sqs.send_message(QueueUrl=url, MessageGroupId=group, MessageBody=body, **more)


def check_order_in_groups(subject: Subject) -> None:
    """FIFO: three groups sent in turn, each comes in its order with rising sequence numbers."""
    url = fifo_queue(subject)
    for number in range(30):
        group = GROUPS[number % 3]
        entry = {"Id": "one", "MessageBody": f"{group} {number:02}", "MessageGroupId": group}
        assert not subject.sqs.send_message_batch(QueueUrl=url, Entries=[entry]).get("Failed")
    came: dict[str, list[tuple[str, int]]] = {group: [] for group in GROUPS}
    while sum(map(len, came.values())) < 30:
        messages = subject.receive(url, AttributeNames=["All"])
        assert messages, came
        for message in messages:
            attributes = message["Attributes"]
            came[attributes["MessageGroupId"]].append((message["Body"], int(attributes["SequenceNumber"])))
            subject.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert all(bodies == sorted(bodies) for bodies in came.values()), came
    assert all([number for _, number in one] == sorted({number for _, number in one}) for one in came.values()), came


def check_group_is_held(subject: Subject) -> None:
    """FIFO: while a message is in flight its group waits, other groups do not; deleted or given back, it goes on."""
    url = fifo_queue(subject)
    for group, body in (("a", "a1"), ("a", "a2"), ("b", "b1")):
        send(subject, url, group, body)
    (first,) = subject.receive(url, MaxNumberOfMessages=1)
    (other,) = subject.receive(url)
    assert (first["Body"], other["Body"]) == ("a1", "b1")
    assert not subject.receive(url, WaitTimeSeconds=0)
    subject.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = subject.receive(url, MaxNumberOfMessages=1)
    assert again["Body"] == "a1"
    subject.sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    (second,) = subject.receive(url)
    assert second["Body"] == "a2"


def check_deduplication(subject: Subject) -> None:
    """FIFO: the same deduplication id, or the same body, is stored once, and answered with the first one's id."""
    url = fifo_queue(subject)
    by_id = [send(subject, url, "g", body, MessageDeduplicationId="same") for body in ("first", "second")]
    by_body = [send(subject, url, "g", "third") for _ in range(2)]
    for one, other in (by_id, by_body):
        assert one["MessageId"] == other["MessageId"] and one["SequenceNumber"] == other["SequenceNumber"]
    bodies = [message["Body"] for message in subject.receive(url)]
    assert bodies == ["first", "third"], bodies


def check_fifo_errors(subject: Subject) -> None:
    """FIFO: no group, no deduplication id, a delay of a message's own, a name without its suffix: refused."""
    url = fifo_queue(subject, ContentBasedDeduplication="false")
    sqs = subject.sqs
    message = {"QueueUrl": url, "MessageBody": "x"}
    assert error_code(sqs.send_message, **message) == "MissingParameter"
    assert error_code(sqs.send_message, **message, MessageGroupId="g") == "InvalidParameterValue"
    whole = message | {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    assert error_code(sqs.send_message, **whole, DelaySeconds=5) == "InvalidParameterValue"
    made = {"QueueName": new_name(), "Attributes": {"FifoQueue": "true"}}
    assert error_code(sqs.create_queue, **made) == "InvalidParameterValue"


def check_dead_letters(subject: Subject) -> None:
    """A message received maxReceiveCount times goes to the dead-letter queue, with its attributes."""
    target = subject.queue()
    policy = json.dumps({"deadLetterTargetArn": arn(subject, target), "maxReceiveCount": 2})
    source = subject.queue(RedrivePolicy=policy, VisibilityTimeout="0")
    attributes = {"kept": {"DataType": "String", "StringValue": "yes"}}
    sent = subject.sqs.send_message(QueueUrl=source, MessageBody="poison", MessageAttributes=attributes)
    for _ in range(2):
        assert [message["Body"] for message in subject.receive(source)] == ["poison"]
    assert not subject.receive(source, WaitTimeSeconds=1)
    (dead,) = subject.receive(target, WaitTimeSeconds=10, MessageAttributeNames=["All"])
    assert (dead["MessageId"], dead["Body"]) == (sent["MessageId"], "poison")
    assert dead["MessageAttributes"] == attributes
    assert subject.sqs.list_dead_letter_source_queues(QueueUrl=target)["queueUrls"] == [source]


def check_move_task(subject: Subject) -> None:
    """start_message_move_task brings dead letters back; list_message_move_tasks tells how far it is."""
    target = subject.queue()
    policy = json.dumps({"deadLetterTargetArn": arn(subject, target), "maxReceiveCount": 1})
    source = subject.queue(RedrivePolicy=policy, VisibilityTimeout="0")
    for number in range(5):
        subject.sqs.send_message(QueueUrl=source, MessageBody=str(number))
    wait_until(lambda: not subject.receive(source, WaitTimeSeconds=0) and depth(subject, target) == 5, "five dead")
    dead = arn(subject, target)
    assert subject.sqs.start_message_move_task(SourceArn=dead)["TaskHandle"]

    def task() -> Any:
        return subject.sqs.list_message_move_tasks(SourceArn=dead)["Results"][0]

    wait_until(lambda: task()["Status"] == "COMPLETED", "the move is over", timeout_s=60)
    assert task()["ApproximateNumberOfMessagesMoved"] == 5 and depth(subject, target) == 0
    code = error_code(subject.sqs.start_message_move_task, SourceArn=arn(subject, source))
    assert code in ("InvalidParameterValue", SIMPLE + "UnsupportedOperation"), code


def depth(subject: Subject, url: str) -> int:
    asked = {"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessages"]}
    return int(subject.sqs.get_queue_attributes(**asked)["Attributes"]["ApproximateNumberOfMessages"])


CHECKS: list[Check] = [
    check_order_in_groups,
    check_group_is_held,
    check_deduplication,
    check_fifo_errors,
    check_dead_letters,
    check_move_task,
]
