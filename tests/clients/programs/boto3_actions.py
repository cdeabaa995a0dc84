"""boto3 as its users use it: client, resource and paginators. Which protocol it speaks is its version's affair.

Run in the environment of one boto3: `python -m tests.clients.programs.boto3_actions`. The suite runs the same checks
with the boto3 of the project, in both protocols.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from typing import Any

import boto3

from tests.clients.programs import boto3_fifo
from tests.clients.programs.boto3_subject import SIMPLE, Subject, endpoint_option, error_code, protocol
from tests.clients.programs.checks import Check, new_name, run_checks

BODY_BYTES_MAX = 1_048_576


def check_queue_is_made_and_found(subject: Subject) -> None:
    """create_queue twice, get_queue_url, list_queues by prefix, delete_queue."""
    name = new_name()
    url = subject.sqs.create_queue(QueueName=name)["QueueUrl"]
    assert url == subject.sqs.create_queue(QueueName=name)["QueueUrl"] and url.endswith("/" + name)
    assert subject.sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert subject.sqs.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    subject.sqs.delete_queue(QueueUrl=url)
    assert "QueueUrls" not in subject.sqs.list_queues(QueueNamePrefix=name)


def check_attributes(subject: Subject) -> None:
    """set_queue_attributes and get_queue_attributes, counts included."""
    url = subject.queue(VisibilityTimeout="7")
    subject.sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0", "MessageRetentionPeriod": "3600"})
    subject.sqs.send_message(QueueUrl=url, MessageBody="counted")
    found = subject.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (found["VisibilityTimeout"], found["MessageRetentionPeriod"]) == ("7", "3600"), found
    assert found["QueueArn"].endswith(url.rpartition("/")[2])
    count = subject.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    assert count["Attributes"] == {"ApproximateNumberOfMessages": "1"}


def check_tags(subject: Subject) -> None:
    """tag_queue, list_queue_tags, untag_queue."""
    url = subject.queue()
    subject.sqs.tag_queue(QueueUrl=url, Tags={"team": "größe", "stage": ""})
    assert subject.sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "größe", "stage": ""}
    subject.sqs.untag_queue(QueueUrl=url, TagKeys=["stage"])
    assert subject.sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "größe"}


def check_message_with_everything(subject: Subject) -> None:
    """A message with text, number and binary attributes: sent, MD5 compared, received, deleted."""
    url = subject.queue()
    attributes = {
        "text": {"DataType": "String", "StringValue": "x <&> é \U0001f600"},
        "number": {"DataType": "Number", "StringValue": "3.25"},
        "binary": {"DataType": "Binary.png", "BinaryValue": bytes(range(256))},
    }
    body = '<a b="1">&amp; größe \U0001f600\r\n\ttab</a>'
    sent = subject.sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
    assert sent["MD5OfMessageAttributes"] == md5_of_attributes(attributes)
    names = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    (message,) = subject.receive(url, **names)
    assert message["Body"] == body and message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == attributes, message["MessageAttributes"]
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1" and message["Attributes"]["SentTimestamp"]
    subject.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert not subject.receive(url, WaitTimeSeconds=0, VisibilityTimeout=0)


def md5_of_attributes(attributes: dict[str, Any]) -> str:
    """As the developer guide has it, and as the Java and Go SDKs compare it; boto3 does not."""
    digest = hashlib.md5()
    for name, value in sorted(attributes.items()):
        is_binary = "BinaryValue" in value
        raw = value["BinaryValue"] if is_binary else value["StringValue"].encode()
        for part in (name.encode(), value["DataType"].encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        digest.update((b"\x02" if is_binary else b"\x01") + len(raw).to_bytes(4, "big") + raw)
    return digest.hexdigest()


def check_largest_body(subject: Subject) -> None:
    """A body of 1 MiB comes back whole; a byte more is refused."""
    url = subject.queue()
    body = "é" * (BODY_BYTES_MAX // 2)
    subject.sqs.send_message(QueueUrl=url, MessageBody=body)
    (message,) = subject.receive(url)
    assert message["Body"] == body
    code = error_code(subject.sqs.send_message, QueueUrl=url, MessageBody=body + "x")
    assert code == "InvalidParameterValue", code


def check_batches(subject: Subject) -> None:
    """send_message_batch, change_message_visibility_batch and delete_message_batch, each with an entry that fails."""
    url = subject.queue()
    entries = [{"Id": f"m{number}", "MessageBody": f"body {number}"} for number in range(9)]
    wrong = {"Id": "bad", "MessageBody": "late", "DelaySeconds": 901}
    sent = subject.sqs.send_message_batch(QueueUrl=url, Entries=[*entries, wrong])
    assert [entry["Id"] for entry in sent["Successful"]] == [entry["Id"] for entry in entries]
    (failed,) = sent["Failed"]
    assert (failed["Id"], failed["SenderFault"], failed["Code"]) == ("bad", True, "InvalidParameterValue"), failed
    messages = subject.receive(url)
    assert sorted(message["Body"] for message in messages) == [entry["MessageBody"] for entry in entries]
    receipts = [{"Id": f"r{number}", "ReceiptHandle": one["ReceiptHandle"]} for number, one in enumerate(messages)]
    bad = {"Id": "bad", "ReceiptHandle": "no receipt"}
    longer = [entry | {"VisibilityTimeout": 60} for entry in [*receipts, bad]]
    changed = subject.sqs.change_message_visibility_batch(QueueUrl=url, Entries=longer)
    deleted = subject.sqs.delete_message_batch(QueueUrl=url, Entries=[*receipts, bad])
    for answer in (changed, deleted):
        assert len(answer["Successful"]) == 9, answer
        assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [("bad", "ReceiptHandleIsInvalid")], answer


def check_long_poll(subject: Subject) -> None:
    """A long poll is woken by a message, and ends empty after its time."""
    url = subject.queue()
    started = time.monotonic()
    assert not subject.receive(url, WaitTimeSeconds=1)
    assert 0.9 < time.monotonic() - started < 10
    sender = threading.Timer(1.0, lambda: subject.sqs.send_message(QueueUrl=url, MessageBody="wake"))
    sender.start()
    started = time.monotonic()
    (message,) = subject.receive(url, WaitTimeSeconds=20)
    sender.join()
    assert message["Body"] == "wake" and time.monotonic() - started < 12


def check_visibility(subject: Subject) -> None:
    """change_message_visibility gives a message back, or keeps it longer; it expires by itself."""
    url = subject.queue(VisibilityTimeout="30")
    subject.sqs.send_message(QueueUrl=url, MessageBody="again")
    (first,) = subject.receive(url)
    assert not subject.receive(url, WaitTimeSeconds=0)
    subject.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    (second,) = subject.receive(url, AttributeNames=["ApproximateReceiveCount"])
    assert second["Attributes"] == {"ApproximateReceiveCount": "2"}
    subject.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=4)
    assert not subject.receive(url, WaitTimeSeconds=0)
    (third,) = subject.receive(url, WaitTimeSeconds=15)
    assert third["MessageId"] == first["MessageId"]


def check_delay(subject: Subject) -> None:
    """DelaySeconds of a message and of a queue hide a message for a while."""
    for of_queue, of_message in (({}, {"DelaySeconds": 2}), ({"DelaySeconds": "2"}, {})):
        url = subject.queue(**of_queue)
        started = time.monotonic()
        subject.sqs.send_message(QueueUrl=url, MessageBody="later", **of_message)
        (message,) = subject.receive(url, WaitTimeSeconds=15)
        assert message["Body"] == "later" and time.monotonic() - started > 1.9


def check_purge(subject: Subject) -> None:
    """purge_queue empties; a second one within a minute is PurgeQueueInProgress."""
    url = subject.queue()
    subject.sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "gone"} for n in range(10)])
    subject.sqs.purge_queue(QueueUrl=url)
    assert not subject.receive(url, WaitTimeSeconds=1)
    code = error_code(subject.sqs.purge_queue, QueueUrl=url)
    assert code == SIMPLE + "PurgeQueueInProgress", code


def check_error_classes(subject: Subject) -> None:
    """Errors are the classes that client.exceptions names, with the codes that programs compare."""
    exceptions = subject.sqs.exceptions
    url = subject.queue()
    gone = url + "-none"
    wrong: list[tuple[Any, dict[str, Any], str, str]] = [
        (subject.sqs.get_queue_url, {"QueueName": "no-such-queue"}, "QueueDoesNotExist", SIMPLE + "NonExistentQueue"),
        (subject.sqs.receive_message, {"QueueUrl": gone}, "QueueDoesNotExist", SIMPLE + "NonExistentQueue"),
        (
            subject.sqs.delete_message,
            {"QueueUrl": url, "ReceiptHandle": "none"},
            "ReceiptHandleIsInvalid",
            "ReceiptHandleIsInvalid",
        ),
        (
            subject.sqs.send_message_batch,
            {"QueueUrl": url, "Entries": []},
            "EmptyBatchRequest",
            SIMPLE + "EmptyBatchRequest",
        ),
        (
            subject.sqs.send_message,
            {"QueueUrl": url, "MessageBody": "\x00"},
            "InvalidMessageContents",
            "InvalidMessageContents",
        ),
    ]
    for call, parameters, name, code in wrong:
        try:
            call(**parameters)
        except getattr(exceptions, name) as error:
            assert error.response["Error"]["Code"] == code, error.response
            assert 400 <= error.response["ResponseMetadata"]["HTTPStatusCode"] < 500
            assert error.response["ResponseMetadata"]["RequestId"]
        else:
            raise AssertionError(f"{name} did not come")


def check_foreign_keys_are_refused(subject: Subject) -> None:
    """A wrong secret and an unknown key are refused with the codes of AWS."""
    secret = subject.client(aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"], aws_secret_access_key="wrong")
    assert error_code(secret.list_queues) == "SignatureDoesNotMatch"
    unknown = subject.client(aws_access_key_id="AKPSAAAAAAAAAAAAAAAA", aws_secret_access_key="wrong")
    assert error_code(unknown.list_queues) == "InvalidClientTokenId"


def check_paginators(subject: Subject) -> None:
    """The paginators of list_queues and list_dead_letter_source_queues walk all pages."""
    prefix = new_name("page")
    target = subject.queue()
    arn = subject.sqs.get_queue_attributes(QueueUrl=target, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = {"RedrivePolicy": f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 3}}'}
    made = sorted(
        subject.sqs.create_queue(QueueName=f"{prefix}-{number}", Attributes=redrive)["QueueUrl"] for number in range(5)
    )
    pages = list(
        subject.sqs.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2})
    )
    assert len(pages) == 3 and sorted(url for page in pages for url in page["QueueUrls"]) == made
    sources = subject.sqs.get_paginator("list_dead_letter_source_queues")
    found = sources.paginate(QueueUrl=target, PaginationConfig={"PageSize": 2}).build_full_result()
    assert sorted(found["queueUrls"]) == made


def check_resource(subject: Subject) -> None:
    """The resource API: queues, messages, batches and their methods."""
    sqs = subject.resource()
    name = new_name()
    queue = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "20"})
    assert sqs.get_queue_by_name(QueueName=name).url == queue.url
    assert [one.url for one in sqs.queues.filter(QueueNamePrefix=name)] == [queue.url]
    assert queue.attributes["VisibilityTimeout"] == "20"
    queue.send_message(MessageBody="one", MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}})
    (message,) = queue.receive_messages(WaitTimeSeconds=5, MessageAttributeNames=["All"], AttributeNames=["All"])
    assert message.body == "one" and message.message_attributes["a"]["StringValue"] == "b"
    message.change_visibility(VisibilityTimeout=0)
    (again,) = queue.receive_messages(WaitTimeSeconds=5, AttributeNames=["All"])
    assert again.attributes["ApproximateReceiveCount"] == "2"
    again.delete()
    queue.send_messages(Entries=[{"Id": str(number), "MessageBody": str(number)} for number in range(3)])
    received = queue.receive_messages(WaitTimeSeconds=5, MaxNumberOfMessages=10)
    queue.delete_messages(
        Entries=[{"Id": str(n), "ReceiptHandle": one.receipt_handle} for n, one in enumerate(received)]
    )
    queue.reload()
    queue.delete()


def check_permissions_are_kept(subject: Subject) -> None:
    """add_permission shows in the policy, remove_permission takes it out."""
    url = subject.queue()
    asked = {"Label": "readers", "AWSAccountIds": ["123456789012"], "Actions": ["ReceiveMessage"]}
    subject.sqs.add_permission(QueueUrl=url, **asked)
    policy = subject.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    assert '"readers"' in policy
    subject.sqs.remove_permission(QueueUrl=url, Label="readers")
    after = subject.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"]).get("Attributes", {})
    assert "readers" not in after.get("Policy", "")


def check_environment_is_enough(subject: Subject) -> None:
    """A program that says only boto3.client("sqs"): AWS_ENDPOINT_URL_SQS and keys from the environment."""
    program = 'import boto3; print(boto3.client("sqs").get_queue_url(QueueName="{}")["QueueUrl"])'
    url = subject.queue()
    name = url.rpartition("/")[2]
    answer = subprocess.run(
        [sys.executable, "-c", program.format(name)], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert answer.stdout.strip() == url, answer.stderr


CHECKS: list[Check] = [
    check_queue_is_made_and_found,
    check_attributes,
    check_tags,
    check_message_with_everything,
    check_largest_body,
    check_batches,
    check_long_poll,
    check_visibility,
    check_delay,
    check_purge,
    check_error_classes,
    check_foreign_keys_are_refused,
    check_paginators,
    check_resource,
    check_permissions_are_kept,
    *boto3_fifo.CHECKS,
]


if __name__ == "__main__":
    chosen = [*CHECKS, check_environment_is_enough] if not endpoint_option() else CHECKS
    spoken = {"json": "JSON"}.get(protocol(Subject().sqs), "query")
    sys.exit(run_checks(f"boto3 ({spoken} protocol)", boto3.__version__, chosen, Subject))
