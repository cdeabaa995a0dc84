"""Queue attributes: which exist, which may be set, and their ranges. Pure.

The control plane decides what is stored; what cannot be right is refused here, before it is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from frontend.authz.policy_limits import QUEUE_POLICY_BYTES_MAX
from frontend.errors import RequestError, invalid
from frontend.limits import (
    PARTITIONS_PER_LEVEL_MAX,
    PRIORITY_LEVELS_MAX,
    QUEUE_NAME_CHARS_MAX,
    TAG_KEY_CHARS_MAX,
    TAG_VALUE_CHARS_MAX,
    TAGS_MAX,
)
from frontend.metadata.records import QueueRecord
from frontend.parameters import is_text
from frontend.queues.encryption import REUSE_PERIOD_S_DEFAULT
from frontend.queues.extensions import EXTENSIONS
from frontend.queues.names import FIFO_SUFFIX, bad_queue_name, format_arn
from frontend.queues.priority import PRIORITY_LEVELS
from storage_nodes.protocol.messages import QueueStats

_INTEGERS: dict[str, tuple[int, int]] = {
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (1_024, 1_048_576),
    "MessageRetentionPeriod": (60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "VisibilityTimeout": (0, 43_200),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
    "Penstock.Partitions": (1, PARTITIONS_PER_LEVEL_MAX),
    PRIORITY_LEVELS: (1, PRIORITY_LEVELS_MAX),
}
_STANDARD_ONLY = frozenset((PRIORITY_LEVELS,))
_DEFAULTS: dict[str, str] = {
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "VisibilityTimeout": "30",
    "SqsManagedSseEnabled": "true",
}
_FIFO_DEFAULTS: dict[str, str] = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
_KMS_DEFAULTS: dict[str, str] = {"KmsDataKeyReusePeriodSeconds": str(REUSE_PERIOD_S_DEFAULT)}
_DOCUMENTS = frozenset(("Policy", "RedrivePolicy", "RedriveAllowPolicy"))
_BOOLEANS = frozenset(("SqsManagedSseEnabled",))
_TEXTS = frozenset(("KmsMasterKeyId",))
_FIFO: dict[str, tuple[str, ...]] = {
    "FifoQueue": ("true",),
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
_FIFO_THROUGHPUT = frozenset(("DeduplicationScope", "FifoThroughputLimit"))
_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
# Of ours, for who asks by name; `All` is what SQS has. Of the partitions that there are: those that take messages, and
# those that are being emptied for good.
_PARTITIONS = ("Penstock.PartitionsOpen", "Penstock.PartitionsDraining")
# Of ours too. As the leaders know it at this moment.
_OUR_COUNTS: dict[str, Callable[[list[QueueStats]], int]] = {
    "Penstock.MessageGroups": lambda stats: sum(one.groups for one in stats),
    "Penstock.NoisyGroups": lambda stats: sum(one.noisy_groups for one in stats),
    "Penstock.NoisyGroupMessages": lambda stats: sum(one.noisy_waiting for one in stats),
    "Penstock.OldestMessageTimestamp": lambda stats: min(
        (s.oldest_sent_ms for s in stats if s.oldest_sent_ms), default=0
    ),
}
_READ_ONLY = frozenset(("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", *_COUNTS, *_PARTITIONS, *_OUR_COUNTS))
_SETTABLE = frozenset(_INTEGERS) | _DOCUMENTS | _BOOLEANS | _TEXTS | frozenset(_FIFO) | frozenset(EXTENSIONS)
_FIFO_ONLY = frozenset(_FIFO) | {name for name, extension in EXTENSIONS.items() if extension.fifo_only}
_KNOWN = _SETTABLE | _READ_ONLY | {"All"}

_INTEGER = re.compile(r"[0-9]{1,10}", re.ASCII)


def check_creatable(name: str, attributes: dict[str, str]) -> None:
    """Raises RequestError unless a queue of this name may be made with these attributes."""
    fifo = name.endswith(FIFO_SUFFIX)
    if attributes.get("FifoQueue", "").lower() == "true" and not fifo:
        raise invalid(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
            f"must end with {FIFO_SUFFIX} suffix and be 1 to {QUEUE_NAME_CHARS_MAX} in length."
        )
    if fifo and attributes.get("FifoQueue", "") == "":
        raise bad_queue_name()
    for attribute, value in attributes.items():
        _check_settable(attribute, value, fifo)


def check_settable(attributes: dict[str, str], name: str) -> None:
    """Raises RequestError unless every attribute may be set on the queue of this name and has a value in range."""
    fifo = name.endswith(FIFO_SUFFIX)
    for attribute, value in attributes.items():
        if attribute == "FifoQueue" and fifo and value.lower() != "true":
            raise _bad_value(attribute, "Modifying queue type is not supported.")
        _check_settable(attribute, value, fifo)


def check_tags(tags: dict[str, str] | None, queue_name: str) -> None:
    """Raises RequestError unless the tags may be given to a queue."""
    if tags is None:
        return
    if len(tags) > TAGS_MAX:
        raise invalid(f"Too many tags added for queue {queue_name}.")
    for key, value in tags.items():
        check_tag_keys((key,))
        if len(value) > TAG_VALUE_CHARS_MAX:
            raise invalid(f"Tag values must be between 0 and {TAG_VALUE_CHARS_MAX} characters in length.")
        if key.lower().startswith("aws:"):
            raise invalid("The tag prefix aws: is reserved.")
        if not is_text(key + value):
            raise invalid("A tag holds a character that is not allowed.")


def check_tag_keys(keys: Sequence[str]) -> None:
    """Raises RequestError where there is none, one that no tag can have, or more than a queue can have: a policy may
    compare each with each of its patterns."""
    if len(keys) > TAGS_MAX:
        raise invalid(f"Maximum number of tag keys per request are {TAGS_MAX}. You have sent {len(keys)}.")
    if not keys or not all(1 <= len(key) <= TAG_KEY_CHARS_MAX for key in keys):
        raise invalid(f"Tag keys must be between 1 and {TAG_KEY_CHARS_MAX} characters in length.")


def check_asked(names: list[str] | None) -> frozenset[str]:
    """The attributes a GetQueueAttributes asks for. Raises RequestError for a name that does not exist."""
    for name in names or ():
        if name not in _KNOWN:
            raise RequestError("InvalidAttributeName", f"Unknown Attribute {name[:80]}.")
    return frozenset(names or ())


def wants_counts(asked: frozenset[str]) -> bool:
    return "All" in asked or not asked.isdisjoint(_COUNTS) or not asked.isdisjoint(_OUR_COUNTS)


def queue_attributes(
    record: QueueRecord, region: str, stats: list[QueueStats], asked: frozenset[str]
) -> dict[str, str]:
    """The attributes asked for, as strings; those never set appear with their defaults."""
    values = {
        **_DEFAULTS,
        **(_FIFO_DEFAULTS if record.fifo else {}),
        **(_KMS_DEFAULTS if "KmsMasterKeyId" in record.attributes else {}),
        **record.attributes,
        "QueueArn": format_arn(region, record.account_id, record.name),
        "CreatedTimestamp": str(record.created_ms // 1000),
        "LastModifiedTimestamp": str(record.modified_ms // 1000),
        _COUNTS[0]: str(sum(one.waiting for one in stats)),
        _COUNTS[1]: str(sum(one.in_flight for one in stats)),
        _COUNTS[2]: str(sum(one.delayed for one in stats)),
    }
    if not asked.isdisjoint(_PARTITIONS):
        draining = sum(one.closed and not one.drained for one in record.layout)
        closed = sum(one.closed for one in record.layout)
        values |= zip(_PARTITIONS, (str(len(record.partitions) - closed), str(draining)), strict=True)
    ours = {name: str(count(stats)) for name, count in _OUR_COUNTS.items() if name in asked}
    if "All" in asked:
        return values | ours
    return {name: value for name, value in values.items() if name in asked} | ours


def _check_settable(attribute: str, value: str, fifo: bool) -> None:
    if attribute in _FIFO_THROUGHPUT and not fifo:
        text = f"You can specify the {attribute} only when FifoQueue is set to true."
        raise RequestError("InvalidAttributeName", text)
    if attribute not in _SETTABLE or (attribute in _FIFO_ONLY and not fifo) or (attribute in _STANDARD_ONLY and fifo):
        raise RequestError("InvalidAttributeName", f"Unknown Attribute {attribute[:80]}.")
    if not _is_valid(attribute, value):
        raise RequestError("InvalidAttributeValue", f"Invalid value for the parameter {attribute}.")


def _bad_value(attribute: str, reason: str) -> RequestError:
    return RequestError("InvalidAttributeValue", f"Invalid value for the parameter {attribute}. Reason: {reason}")


def _is_valid(name: str, value: str) -> bool:
    if name in _INTEGERS:
        low, high = _INTEGERS[name]
        return _INTEGER.fullmatch(value) is not None and low <= int(value) <= high
    if name in _FIFO:
        return value in _FIFO[name] or ("true" in _FIFO[name] and value.lower() in _FIFO[name])
    if name in _BOOLEANS:
        return value.lower() in ("true", "false")
    extension = EXTENSIONS.get(name)
    if extension is not None:
        return value == "" or extension.normal(value) is not None
    return is_text(value) and len(value.encode()) <= QUEUE_POLICY_BYTES_MAX
