"""The same as a form, as text to copy: boto3, the AWS command line, curl, Terraform. Pure."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple


class Snippet(NamedTuple):
    title: str
    text: str


def creating(endpoint: str, region: str, name: str, attributes: Mapping[str, str]) -> list[Snippet]:
    """A queue of this name with these attributes."""
    shown = name or "my-queue"
    given = dict(attributes)
    return [
        Snippet("boto3", _boto3(endpoint, region, shown, given)),
        Snippet("AWS CLI", _aws(endpoint, region, shown, given)),
        Snippet("curl", _curl(endpoint, region, shown, given)),
        Snippet("Terraform", _terraform(endpoint, region, shown, given)),
    ]


def sending(endpoint: str, region: str, url: str, queue: str, message: Mapping[str, Any]) -> list[Snippet]:
    """A message, as REST takes it; `url` is the queue's for SQS clients."""
    asked = {"QueueUrl": url, **_of_sqs(message)}
    lines = "".join(f"    {key}={value!r},\n" for key, value in _with_bytes(asked).items())
    typed = {key: value if isinstance(value, str) else json.dumps(value) for key, value in asked.items()}
    options = " \\\n".join(f"  {_AWS_OPTIONS[key]} {shlex.quote(value)}" for key, value in typed.items())
    return [
        Snippet("boto3", f"{_boto3_client(endpoint, region)}\nsqs.send_message(\n{lines})"),
        Snippet("AWS CLI", f"{_aws_command('send-message', endpoint, region)} \\\n{options}"),
        *_sending_over_rest(endpoint, queue, message),
    ]


def receiving(endpoint: str, region: str, url: str) -> list[Snippet]:
    """One long poll of a queue; each message is deleted after the work."""
    return [
        Snippet(
            "boto3",
            f"{_boto3_client(endpoint, region)}\nurl = {url!r}\n"
            "answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)\n"
            'for message in answer.get("Messages", []):\n    print(message["Body"])\n'
            '    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])',
        ),
        Snippet(
            "AWS CLI",
            f"{_aws_command('receive-message', endpoint, region)} \\\n  --queue-url {shlex.quote(url)} \\\n"
            "  --max-number-of-messages 10 --wait-time-seconds 20\n"
            f"# After the work on a message:\n{_aws_command('delete-message', endpoint, region)} \\\n"
            f'  --queue-url {shlex.quote(url)} \\\n  --receipt-handle "$RECEIPT_HANDLE"',
        ),
    ]


def _boto3_client(endpoint: str, region: str) -> str:
    return f'import boto3\n\nsqs = boto3.client("sqs", endpoint_url={endpoint!r}, region_name={region!r})'


def _aws_command(name: str, endpoint: str, region: str) -> str:
    """With the region: without one, on a machine that has none configured, the command refuses to start."""
    return f"aws sqs {name} --endpoint-url {shlex.quote(endpoint)} --region {shlex.quote(region)}"


_AWS_OPTIONS = {
    "QueueUrl": "--queue-url",
    "MessageBody": "--message-body",
    "DelaySeconds": "--delay-seconds",
    "MessageGroupId": "--message-group-id",
    "MessageDeduplicationId": "--message-deduplication-id",
    "MessageAttributes": "--message-attributes",
}


def _of_sqs(message: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of SendMessage."""
    names = {
        "body": "MessageBody",
        "delay_seconds": "DelaySeconds",
        "group": "MessageGroupId",
        "deduplication_id": "MessageDeduplicationId",
    }
    asked = {names[key]: value for key, value in message.items() if key in names and value is not None}
    attributes = message.get("attributes") or {}
    for key, name in (
        ("tag", "Penstock.Tag"),
        ("priority", "Penstock.Priority"),
        ("deliver_at_ms", "Penstock.DeliverAt"),
    ):
        if message.get(key) is not None:
            kind = "String" if key == "tag" else "Number"
            attributes = {**attributes, name: {"type": kind, "value": str(message[key])}}
    if attributes:
        asked["MessageAttributes"] = {name: _attribute(one["type"], one["value"]) for name, one in attributes.items()}
    return asked


def _with_bytes(asked: dict[str, Any]) -> dict[str, Any]:
    """As boto3 takes binary values."""
    given = asked.get("MessageAttributes", {})
    attributes = {
        name: {**one, "BinaryValue": _decoded(one["BinaryValue"])} if "BinaryValue" in one else one
        for name, one in given.items()
    }
    return {**asked, "MessageAttributes": attributes} if given else asked


def _decoded(text: str) -> bytes | str:
    """What is no base64 stays: the service refuses it, and the form says so."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text


def _attribute(kind: str, value: str) -> dict[str, str]:
    """REST has binary values in base64, as the AWS command line does."""
    return {"DataType": kind, ("BinaryValue" if kind.startswith("Binary") else "StringValue"): value}


def _sending_over_rest(endpoint: str, queue: str, message: Mapping[str, object]) -> list[Snippet]:
    body = json.dumps({key: value for key, value in message.items() if value is not None}, ensure_ascii=False)
    text = (
        f"curl -sS {shlex.quote(f'{endpoint}/v1/queues/{queue}/messages')} \\\n"
        f'  -H "Authorization: Bearer $PENSTOCK_TOKEN" -H "Content-Type: application/json" \\\n  -d {shlex.quote(body)}'
    )
    return [Snippet("curl", text)]


def _boto3(endpoint: str, region: str, name: str, attributes: dict[str, str]) -> str:
    lines = [f"    QueueName={name!r},"]
    if attributes:
        inner = "".join(f"        {key!r}: {value!r},\n" for key, value in attributes.items())
        lines.append(f"    Attributes={{\n{inner}    }},")
    call = "\n".join(lines)
    return f"{_boto3_client(endpoint, region)}\nsqs.create_queue(\n{call}\n)"


def _aws(endpoint: str, region: str, name: str, attributes: dict[str, str]) -> str:
    text = f"{_aws_command('create-queue', endpoint, region)} \\\n  --queue-name {shlex.quote(name)}"
    return f"{text} \\\n  --attributes {shlex.quote(json.dumps(attributes))}" if attributes else text


def _curl(endpoint: str, region: str, name: str, attributes: dict[str, str]) -> str:
    """The JSON protocol of SQS, signed by curl itself."""
    asked: dict[str, object] = {"QueueName": name}
    if attributes:
        asked["Attributes"] = attributes
    return (
        f"curl -sS {shlex.quote(endpoint + '/')} --aws-sigv4 {shlex.quote(f'aws:amz:{region}:sqs')} \\\n"
        '  --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \\\n'
        "  -H 'Content-Type: application/x-amz-json-1.0' -H 'X-Amz-Target: AmazonSQS.CreateQueue' \\\n"
        f"  -d {shlex.quote(json.dumps(asked))}"
    )


_TERRAFORM = {
    "FifoQueue": "fifo_queue",
    "ContentBasedDeduplication": "content_based_deduplication",
    "DeduplicationScope": "deduplication_scope",
    "FifoThroughputLimit": "fifo_throughput_limit",
    "DelaySeconds": "delay_seconds",
    "MaximumMessageSize": "max_message_size",
    "MessageRetentionPeriod": "message_retention_seconds",
    "ReceiveMessageWaitTimeSeconds": "receive_wait_time_seconds",
    "VisibilityTimeout": "visibility_timeout_seconds",
    "SqsManagedSseEnabled": "sqs_managed_sse_enabled",
    "KmsMasterKeyId": "kms_master_key_id",
    "KmsDataKeyReusePeriodSeconds": "kms_data_key_reuse_period_seconds",
    "RedrivePolicy": "redrive_policy",
    "RedriveAllowPolicy": "redrive_allow_policy",
}


def _terraform(endpoint: str, region: str, name: str, attributes: dict[str, str]) -> str:
    known = {key: value for key, value in attributes.items() if key in _TERRAFORM}
    lines = [f"  name = {_quoted(name)}", *(f"  {_TERRAFORM[key]} = {_hcl(value)}" for key, value in known.items())]
    left_out = sorted(set(attributes) - set(known))
    note = f"\n# Not known to the AWS provider, set them here or by boto3: {', '.join(left_out)}" if left_out else ""
    provider = f'provider "aws" {{\n  region = {_quoted(region)}\n  endpoints {{ sqs = {_quoted(endpoint)} }}\n}}'
    label = "".join(char if char.isalnum() or char in "_-" else "_" for char in name)
    label = label if label[0].isalpha() else f"_{label}"
    resource = f'resource "aws_sqs_queue" {_quoted(label)} {{\n' + "\n".join(lines) + "\n}"
    return f"{provider}\n\n{resource}{note}"


def _hcl(value: str) -> str:
    if value in ("true", "false") or value.isdigit():
        return value
    return _quoted(value)


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")
