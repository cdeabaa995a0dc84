"""Refusals in the words of REST and push: what SQS calls a parameter is a member of the body here. Pure.

The rules of messages are shared by all wires, and their refusals name the parameters of SQS.
"""

from __future__ import annotations

import re

_MEMBERS = {
    "DelaySeconds": "delay_seconds",
    "MaxNumberOfMessages": "max_messages",
    "MessageAttributes": "attributes",
    "MessageBody": "body",
    "MessageDeduplicationId": "deduplication_id",
    "MessageGroupId": "group",
    "QueueName": "name",
    "ReceiptHandle": "receipt",
    "ReceiveRequestAttemptId": "attempt",
    "VisibilityTimeout": "visibility_seconds",
    "WaitTimeSeconds": "wait_seconds",
}
# What stands in quotation marks was sent by the caller, and so was a value that is told with its parameter.
_PARAMETER = re.compile(rf"\"[^\"]*\"|'[^']*'|(?<![.\w])(?:{'|'.join(_MEMBERS)})\b")
_VALUE = re.compile(r"Value .* for parameter (?=\w+ is invalid\. Reason: )", re.DOTALL)


def in_members(message: str) -> str:
    """The message of a request error, with the names of members."""
    told = _VALUE.match(message)
    start = told.end() if told else 0
    return message[:start] + _PARAMETER.sub(lambda found: _MEMBERS.get(found[0], found[0]), message[start:])
