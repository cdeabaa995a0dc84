"""A received message as the SQS wire shows it: what was asked for, and its digests.

SQS has no word for a filter by tags, so it stands among the names of message attributes a receive asks for, which no
client checks: `Penstock.Tag=red|blue` takes only messages with one of these tags, and asks for the attribute as well.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from frontend.crypto.envelope import Attributes
from frontend.errors import RequestError, invalid
from frontend.limits import RECEIVE_NAMES_MAX
from frontend.messages.opening import death_json
from frontend.messages.receive import Received
from frontend.messages.tags import TAG_ATTRIBUTE
from frontend.sqs.message_form import attributes_md5
from frontend.sqs.requests import ReceiveMessage

# Why a dead letter died, as JSON; given only where it is asked for by this name, so that nobody meets it unprepared.
DEATH = "Penstock.DeadLetterReason"

_SYSTEM_NAMES = frozenset(
    (
        "All",
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
        DEATH,
    )
)
# The old AttributeNames member also takes the names of queue attributes, which say nothing of a message.
_QUEUE_NAMES = frozenset(
    (
        "Policy",
        "VisibilityTimeout",
        "MaximumMessageSize",
        "MessageRetentionPeriod",
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
        "ApproximateNumberOfMessagesDelayed",
        "DelaySeconds",
        "ReceiveMessageWaitTimeSeconds",
        "RedrivePolicy",
        "FifoQueue",
        "ContentBasedDeduplication",
        "KmsMasterKeyId",
        "KmsDataKeyReusePeriodSeconds",
        "DeduplicationScope",
        "FifoThroughputLimit",
        "RedriveAllowPolicy",
        "SqsManagedSseEnabled",
    )
)


# Both mean all message attributes, as the prefix `.*` does.
_EVERY_NAME = frozenset(("All", "*"))
# Message attributes that say what SQS has no word for.
_OURS = "Penstock."
_FILTER_START = f"{TAG_ATTRIBUTE}="


class RequestedAttributes(NamedTuple):
    """Which attributes a receive asked for. A prefix stands without its `.*`; "" is every name."""

    system: frozenset[str]
    names: frozenset[str]
    prefixes: tuple[str, ...]
    # Does it name attributes that we add?
    ours: bool

    @classmethod
    def of(cls, parameters: ReceiveMessage) -> RequestedAttributes:
        """Raises RequestError for a system attribute that does not exist, and for more names than are looked at."""
        system_names = parameters.message_system_attribute_names or ()
        old_names = parameters.attribute_names or ()
        message_names = parameters.message_attribute_names or ()
        count = len(system_names) + len(old_names) + len(message_names)
        if not count:
            return _NOTHING_MORE
        if count > RECEIVE_NAMES_MAX:
            raise invalid(f"A receive may name {RECEIVE_NAMES_MAX} attributes at most. You have sent {count} names.")
        system = frozenset((*system_names, *old_names))
        unknown = system - _SYSTEM_NAMES - _QUEUE_NAMES
        if unknown:
            raise RequestError("InvalidAttributeName", f"Unknown Attribute {min(unknown)[:80]}.")
        names = frozenset(split_filters(message_names)[0])
        prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
        ours = any(name.startswith(_OURS) for name in names)
        return cls(system, names, ("", *prefixes) if names & _EVERY_NAME else prefixes, ours)

    def attributes(self, given: Attributes) -> Attributes:
        if not given or not self.names:
            return {}
        if "" in self.prefixes:
            return given
        return {name: value for name, value in given.items() if name in self.names or name.startswith(self.prefixes)}

    def added(self, given: Attributes) -> Attributes:
        """Attributes that we add are given to those who name them only: who asks for all gets what was sent."""
        prefixes = tuple(prefix for prefix in self.prefixes if prefix)
        return {name: value for name, value in given.items() if name in self.names or name.startswith(prefixes)}


_NOTHING_MORE = RequestedAttributes(frozenset(), frozenset(), (), False)


def received_json(message: Received, wanted: RequestedAttributes) -> dict[str, object]:
    content = message.content
    answer: dict[str, object] = {
        "MessageId": message.message_id,
        "ReceiptHandle": message.receipt_handle,
        "MD5OfBody": hashlib.md5(content.body.encode(), usedforsecurity=False).hexdigest(),
        "Body": content.body,
    }
    if wanted is _NOTHING_MORE:
        return answer
    if wanted.system:
        system = _system_attributes(message)
        if "All" not in wanted.system:
            system = {name: value for name, value in system.items() if name in wanted.system}
        if DEATH in wanted.system and message.death is not None and message.death.reason:
            system[DEATH] = json.dumps(death_json(message.death))
        if system:
            answer["Attributes"] = system
    attributes = wanted.attributes(content.attributes)
    if wanted.ours:
        attributes = {**wanted.added(_our_attributes(message)), **attributes}
    if attributes:
        answer["MD5OfMessageAttributes"] = attributes_md5(attributes)
        answer["MessageAttributes"] = {name: _attribute_json(*value) for name, value in attributes.items()}
    return answer


def split_filters(names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """(names of attributes, tags of the filters among them) of what a receive asks for."""
    plain: list[str] = []
    tags: list[str] = []
    for name in names or ():
        if name.startswith(_FILTER_START):
            tags += name[len(_FILTER_START) :].split("|")
            plain.append(TAG_ATTRIBUTE)
        else:
            plain.append(name)
    return plain, tags


def _our_attributes(message: Received) -> Attributes:
    attributes: Attributes = {}
    history = message.content.history
    if history is not None:
        attributes["Penstock.OriginalMessageId"] = ("String", history.message_id.encode())
        attributes["Penstock.OriginalQueue"] = ("String", history.queue.encode())
        attributes["Penstock.OriginalSentTimestamp"] = ("Number", str(history.sent_ms).encode())
        attributes["Penstock.OriginalReceiveCount"] = ("Number", str(history.receives).encode())
    return attributes


def _system_attributes(message: Received) -> dict[str, str]:
    attributes = {
        "SenderId": message.sender,
        "SentTimestamp": str(message.sent_ms),
        "ApproximateReceiveCount": str(message.delivery),
        "ApproximateFirstReceiveTimestamp": str(message.first_received_ms),
    }
    if message.group is not None:
        attributes["MessageGroupId"] = message.group
    if message.sequence_number is not None:
        attributes["SequenceNumber"] = message.sequence_number
    if message.dedup_id:
        attributes["MessageDeduplicationId"] = message.dedup_id
    if message.dead_letter_source is not None:
        attributes["DeadLetterQueueSourceArn"] = message.dead_letter_source
    if message.content.trace_header:
        attributes["AWSTraceHeader"] = message.content.trace_header
    return attributes


def _attribute_json(data_type: str, value: bytes) -> dict[str, str]:
    if data_type.startswith("Binary"):
        return {"DataType": data_type, "BinaryValue": base64.b64encode(value).decode()}
    return {"DataType": data_type, "StringValue": value.decode()}
