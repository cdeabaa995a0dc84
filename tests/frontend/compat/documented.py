"""What SQS documents: the errors of each action, and every limit with its two ends. Data, apart from what is tested.

Errors come from botocore's model. Limits stand here by hand, because the model has them only in prose: `says` quotes
that prose, and a test finds the quotation in the model again. `matrix.py` holds the tests against both.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tests.frontend.compat.query_model import json_model

OPERATIONS: dict[str, Any] = json_model()["operations"]
SHAPES: dict[str, Any] = json_model()["shapes"]
MEMBERS: dict[str, Any] = {name: SHAPES[one["input"]["shape"]] for name, one in OPERATIONS.items()}

# --- errors ---

# JSON name -> query code, where they differ
QUERY_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    **{
        name: f"AWS.SimpleQueueService.{name}"
        for name in (
            "BatchEntryIdsNotDistinct",
            "BatchRequestTooLong",
            "EmptyBatchRequest",
            "InvalidBatchEntryId",
            "MessageNotInflight",
            "PurgeQueueInProgress",
            "QueueDeletedRecently",
            "TooManyEntriesInBatchRequest",
            "UnsupportedOperation",
        )
    },
    "KmsAccessDenied": "KMS.AccessDeniedException",
    "KmsDisabled": "KMS.DisabledException",
    "KmsInvalidState": "KMS.InvalidStateException",
    "KmsNotFound": "KMS.NotFoundException",
}


class Never(NamedTuple):
    """An error that an action documents and that cannot come here; `actions` empty: of every action that lists it."""

    error: str
    why: str
    actions: tuple[str, ...] = ()


_KMS = "encryption keys are Penstock's own: no other service is subscribed to, limits calls, or has keys for other uses"
_OF_KMS = ("InvalidKeyUsage", "OptInRequired", "Throttled")
NEVER: tuple[Never, ...] = (
    Never("InvalidIdFormat", "all receipt handles that were given can be read; others are ReceiptHandleIsInvalid"),
    *(Never(f"Kms{name}", _KMS) for name in _OF_KMS),
    Never(
        "InvalidAddress",
        "the action names no queue by URL and no account",
        ("CancelMessageMoveTask", "CreateQueue", "ListMessageMoveTasks", "ListQueues", "StartMessageMoveTask"),
    ),
    Never(
        "UnsupportedOperation",
        "every action is served, on queues of both types",
        tuple(name for name in OPERATIONS if name not in ("SendMessage", "SendMessageBatch")),
    ),
)


def errors_of(action: str) -> list[str]:
    """As the model names them."""
    return [one["shape"] for one in OPERATIONS[action]["errors"]]


def why_never(action: str, error: str) -> str:
    """Empty where the error can come."""
    for one in NEVER:
        if one.error == error and (not one.actions or action in one.actions):
            return one.why
    return ""


def asked_for(error: str) -> list[str]:
    """The actions that document an error which can come."""
    return [name for name in OPERATIONS if error in errors_of(name) and not why_never(name, error)]


# --- limits ---


class Bound(NamedTuple):
    """What is between `low` and `high`, both included, is taken. `of`: the member of the action's input that is
    bounded, "" where it is the action itself. `says`: a quotation from the model, or the name of another source."""

    action: str
    of: str
    what: str
    low: int
    high: int
    says: str


# Sources beside the model.
GUIDE = "Developer Guide"
SERVERS = "ElasticMQ"
OURS = "Penstock"

_GROUP_ID = "The length of MessageGroupId is 128 characters"
_ENTRY_ID = "This identifier can have up to 80 characters"
_ONE_MIB = "are both 1 MiB 1,048,576 bytes"
_PAGE = "Value range is 1 to 1000"
_SOURCES = "You can specify up to 10 source queue ARNs"
_KEPT = "between 60 seconds (1 minute) and 86,400 seconds (24 hours)"

# Of an entry of SendMessageBatch too.
_OF_A_MESSAGE = (
    Bound("SendMessage", "MessageBody", "MessageBody, bytes, MaximumMessageSize 1,024", 1, 1_024, GUIDE),
    Bound("SendMessage", "DelaySeconds", "DelaySeconds", 0, 900, "0 to 900"),
    Bound("SendMessage", "MessageGroupId", "MessageGroupId, characters", 1, 128, _GROUP_ID),
    Bound("SendMessage", "MessageGroupId", "FIFO, MessageGroupId, characters", 1, 128, _GROUP_ID),
    Bound("SendMessage", "MessageDeduplicationId", "FIFO, MessageDeduplicationId, characters", 1, 128,
          "length of MessageDeduplicationId is 128 characters"),
    Bound("SendMessage", "MessageAttributes", "MessageAttributes", 0, 10, GUIDE),
    Bound("SendMessage", "MessageAttributes", "attribute name, characters", 1, 256, GUIDE),
    Bound("SendMessage", "MessageAttributes", "attribute type with a label, characters", 8, 256, GUIDE),
    Bound("SendMessage", "MessageAttributes", "attribute of type Number, power of ten", 0, 126, SERVERS),
    Bound("SendMessage", "MessageAttributes", "attribute of type Number, negative, power of ten", 0, 128, SERVERS),
    Bound("SendMessage", "MessageSystemAttributes", "AWSTraceHeader, characters", 1, 2_048, OURS),
)  # fmt: skip

_OF_MESSAGES = (
    Bound("SendMessage", "MessageBody", "MessageBody, bytes", 1, 1_048_576,
          "The maximum size is 1 MiB or 1,048,576 bytes"),
    Bound("SendMessage", "MessageBody", "MessageBody with its attributes, bytes", 9, 1_048_576, GUIDE),
    *_OF_A_MESSAGE,
    Bound("SendMessage", "MessageDeduplicationId", "FIFO, seconds that an id is remembered", 300, 300,
          "during the 5-minute deduplication interval"),
    Bound("SendMessageBatch", "Entries", "Entries", 1, 10, "to send up to 10 messages to the specified queue"),
    Bound("SendMessageBatch", "Entries", "all messages, bytes", 2, 1_048_576, _ONE_MIB),
    Bound("SendMessageBatch", "Entries.Id", "Id, characters", 1, 80, _ENTRY_ID),
    Bound("SendMessageBatch", "Entries.MessageBody", "MessageBody, bytes", 1, 1_048_576, _ONE_MIB),
    *(bound._replace(action="SendMessageBatch", of=f"Entries.{bound.of}") for bound in _OF_A_MESSAGE),
    Bound("ReceiveMessage", "MaxNumberOfMessages", "MaxNumberOfMessages", 1, 10, "Valid values: 1 to 10"),
    Bound("ReceiveMessage", "VisibilityTimeout", "VisibilityTimeout", 0, 43_200, GUIDE),
    Bound("ReceiveMessage", "WaitTimeSeconds", "WaitTimeSeconds", 0, 20, GUIDE),
    Bound("ReceiveMessage", "ReceiveRequestAttemptId", "FIFO, ReceiveRequestAttemptId, characters", 1, 128,
          "The maximum length of ReceiveRequestAttemptId is 128 characters"),
    Bound("ReceiveMessage", "ReceiveRequestAttemptId", "FIFO, seconds that an attempt is remembered", 300, 300,
          "You can use ReceiveRequestAttemptId only for 5 minutes after a ReceiveMessage action"),
    Bound("ReceiveMessage", "", "messages in flight", 0, 120_000, GUIDE),
    Bound("DeleteMessageBatch", "Entries", "Entries", 1, 10, GUIDE),
    Bound("DeleteMessageBatch", "Entries.Id", "Id, characters", 1, 80, _ENTRY_ID),
    Bound("ChangeMessageVisibility", "VisibilityTimeout", "VisibilityTimeout", 0, 43_200, "Values range: 0 to 43200"),
    Bound("ChangeMessageVisibility", "VisibilityTimeout", "VisibilityTimeout, from the receive on", 20, 43_200,
          "The maximum is 12 hours"),
    Bound("ChangeMessageVisibilityBatch", "Entries", "Entries", 1, 10,
          "You can send up to 10 ChangeMessageVisibility requests with each ChangeMessageVisibilityBatch action"),
    Bound("ChangeMessageVisibilityBatch", "Entries.Id", "Id, characters", 1, 80, _ENTRY_ID),
    Bound("ChangeMessageVisibilityBatch", "Entries.VisibilityTimeout", "VisibilityTimeout", 0, 43_200, GUIDE),
    Bound("ChangeMessageVisibilityBatch", "Entries.VisibilityTimeout", "VisibilityTimeout, from the receive on",
          20, 43_200, GUIDE),
)  # fmt: skip

# Of CreateQueue and of SetQueueAttributes. The model words two of them differently for the two.
_OF_ATTRIBUTES = (
    ("DelaySeconds", 0, 900, "An integer from 0 to 900"),
    ("MaximumMessageSize", 1_024, 1_048_576, "An integer from 1,024 bytes (1 KiB)"),
    ("MessageRetentionPeriod", 60, 1_209_600, "1,209,600"),
    ("ReceiveMessageWaitTimeSeconds", 0, 20, "An integer from 0 to 20 (seconds)"),
    ("VisibilityTimeout", 0, 43_200, "An integer from 0 to 43,200 (12 hours)"),
    ("KmsDataKeyReusePeriodSeconds", 60, 86_400, _KEPT),
    ("Policy, bytes", 145, 8_192, GUIDE),
    ("Policy, statements", 1, 20, GUIDE),
    ("Policy, principals of a statement", 1, 50, GUIDE),
    ("Policy, actions of a statement", 1, 7, GUIDE),
    ("Policy, conditions of a statement", 0, 10, GUIDE),
    ("RedrivePolicy, maxReceiveCount", 1, 1_000, GUIDE),
    ("RedriveAllowPolicy, sourceQueueArns", 1, 10, _SOURCES),
)
_TAGS = "Adding more than 50 tags to a queue isn't recommended"

_OF_QUEUES = (
    Bound("CreateQueue", "QueueName", "QueueName, characters", 1, 80, "A queue name can have up to 80 characters"),
    Bound("CreateQueue", "QueueName", "FIFO, QueueName, characters with the suffix", 6, 80,
          "A queue name can have up to 80 characters"),
    Bound("CreateQueue", "QueueName", "seconds that a deleted name rests", 60, 60,
          "you must wait at least 60 seconds before creating a queue with the same name"),
    *(Bound("CreateQueue", "Attributes", what, low, high, says) for what, low, high, says in _OF_ATTRIBUTES),
    *(Bound("SetQueueAttributes", "Attributes", what, low, high, says) for what, low, high, says in _OF_ATTRIBUTES),
    Bound("CreateQueue", "tags", "tags", 0, 50, _TAGS),
    Bound("CreateQueue", "tags", "tag key, characters", 1, 128, GUIDE),
    Bound("CreateQueue", "tags", "tag value, characters", 0, 256, GUIDE),
    Bound("TagQueue", "Tags", "Tags, in one call", 1, 50, _TAGS),
    Bound("TagQueue", "Tags", "Tags, of the queue then", 1, 50, _TAGS),
    Bound("TagQueue", "Tags", "tag key, characters", 1, 128, GUIDE),
    Bound("TagQueue", "Tags", "tag value, characters", 0, 256, GUIDE),
    Bound("UntagQueue", "TagKeys", "TagKeys", 1, 50, OURS),
    Bound("GetQueueUrl", "QueueName", "QueueName, characters", 1, 80, "The name can be up to 80 characters long"),
    Bound("GetQueueUrl", "QueueOwnerAWSAccountId", "QueueOwnerAWSAccountId, digits", 12, 12, GUIDE),
    Bound("ListQueues", "MaxResults", "MaxResults", 1, 1_000, _PAGE),
    Bound("ListQueues", "", "names in an answer", 0, 1_000, "The response includes a maximum of 1,000 results"),
    Bound("ListDeadLetterSourceQueues", "MaxResults", "MaxResults", 1, 1_000, _PAGE),
    Bound("ListDeadLetterSourceQueues", "", "names in an answer", 0, 1_000,
          "the response includes a maximum of 1,000 results"),
    Bound("PurgeQueue", "", "seconds between two", 60, 60,
          "previously received a PurgeQueue request within the last 60 seconds"),
    Bound("AddPermission", "Label", "Label, characters", 1, 80, "Maximum 80 characters"),
    Bound("AddPermission", "Actions", "Actions", 1, 7, GUIDE),
    Bound("AddPermission", "AWSAccountIds", "AWSAccountIds", 1, 50, GUIDE),
    Bound("AddPermission", "AWSAccountIds", "AWSAccountIds, digits of one", 12, 12, GUIDE),
    Bound("AddPermission", "", "permissions of a queue", 1, 20, GUIDE),
    Bound("RemovePermission", "Label", "Label, characters", 1, 80, GUIDE),
    Bound("StartMessageMoveTask", "MaxNumberOfMessagesPerSecond", "MaxNumberOfMessagesPerSecond", 1, 500,
          "The maximum value for messages per second is 500"),
    Bound("StartMessageMoveTask", "", "active tasks of an account", 0, 100, GUIDE),
    Bound("StartMessageMoveTask", "", "hours of a task", 0, 36, GUIDE),
    Bound("ListMessageMoveTasks", "MaxResults", "MaxResults", 1, 10, "The upper limit is 10"),
)  # fmt: skip

BOUNDS: tuple[Bound, ...] = _OF_MESSAGES + _OF_QUEUES

# Members of any action that nothing bounds.
UNBOUNDED: dict[str, str] = {
    "QueueUrl": "a name of 80 characters in a URL; what is none is told as InvalidAddress",
    "ReceiptHandle": "what a receive gave",
    "Entries.ReceiptHandle": "what a receive gave",
    "AttributeNames": "names of a fixed list",
    "MessageSystemAttributeNames": "names of a fixed list",
    "MessageAttributeNames": "names that no message has find nothing",
    "QueueNamePrefix": "a prefix that no queue has finds nothing",
    "NextToken": "what a page gave",
    "SourceArn": "the ARN of a queue; what is none is told as ResourceNotFoundException",
    "DestinationArn": "the ARN of a queue; what is none is told as ResourceNotFoundException",
    "TaskHandle": "what StartMessageMoveTask gave",
}

# (action, what) -> value where the caller gives none
DEFAULTS: dict[tuple[str, str], str] = {
    ("CreateQueue", "DelaySeconds"): "0",
    ("CreateQueue", "MaximumMessageSize"): "1048576",
    ("CreateQueue", "MessageRetentionPeriod"): "345600",
    ("CreateQueue", "ReceiveMessageWaitTimeSeconds"): "0",
    ("CreateQueue", "VisibilityTimeout"): "30",
    ("CreateQueue", "maxReceiveCount"): "10",
    ("CreateQueue", "redrivePermission"): "allowAll",
    ("CreateQueue", "KmsDataKeyReusePeriodSeconds"): "300",
    ("ReceiveMessage", "MaxNumberOfMessages"): "1",
    ("ListMessageMoveTasks", "MaxResults"): "1",
}


def entry_of(shape: str) -> str:
    """The shape of the entries of a batch, "" where the shape is no list of structures."""
    member = SHAPES[shape].get("member", {}).get("shape", "")
    return member if member and SHAPES[member]["type"] == "structure" else ""


def members_of(action: str) -> list[str]:
    """Of its input, and of the entries in it."""
    found = []
    for name, member in MEMBERS[action]["members"].items():
        found.append(name)
        entry = entry_of(member["shape"])
        found += [f"{name}.{inner}" for inner in SHAPES[entry]["members"]] if entry else []
    return found


def prose_of(action: str) -> str:
    """All that the model says of an action, of its input and of its errors, without the HTML."""
    shapes = [OPERATIONS[action]["input"]["shape"], *errors_of(action)]
    shapes += [entry for member in MEMBERS[action]["members"].values() if (entry := entry_of(member["shape"]))]
    texts = [OPERATIONS[action]["documentation"]]
    for shape in shapes:
        described = [SHAPES[shape], *SHAPES[shape].get("members", {}).values()]
        texts += [one.get("documentation", "") for one in described]
    return " ".join(re.sub(r"<[^>]*>", "", " ".join(texts)).split())
