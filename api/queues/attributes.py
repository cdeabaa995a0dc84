"""Queue names, attributes and tags: what SQS allows (its API reference, CreateQueue and SetQueueAttributes).

Pure. Attributes travel and are stored as strings under their SQS names. A queue's stored attributes always hold the
ones of `defaults_of` its name; the optional ones (policies, KMS names) only where they were set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from api import limits
from frontend.authz import PolicyError, PolicyKind, PolicyProblem, compile_policy
from frontend.queues.encryption import REUSE_PERIOD_S_DEFAULT
from frontend.queues.extensions import (
    ACKS,
    DEDUPLICATION_WINDOW,
    EXTENSIONS,
    PARK_GROUPS,
    PAUSED,
    UNCOUNTED_RELEASE,
    acks_of,
    dedup_window_ms,
)
from frontend.queues.names import FIFO_SUFFIX, QueueArn, format_arn, parse_arn
from frontend.strict_json import repeated_member

__all__ = ["FIFO_SUFFIX", "QueueArn", "format_arn", "parse_arn"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_INTEGER = re.compile(r"[0-9]{1,10}", re.ASCII)
_FIFO_VALUES: dict[str, tuple[str, ...]] = {
    "FifoQueue": ("true",),
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}

DEFAULTS: dict[str, str] = {
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
_FIFO_DEFAULTS: dict[str, str] = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
_RANGES: dict[str, tuple[int, int]] = {
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (1_024, 1_048_576),
    "MessageRetentionPeriod": (60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "VisibilityTimeout": (0, 43_200),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
    "Penstock.Partitions": (1, limits.PARTITIONS_PER_LEVEL_MAX),
    "Penstock.PriorityLevels": (1, limits.PRIORITY_LEVELS_MAX),
}
_UNSET: dict[str, str] = {
    "KmsDataKeyReusePeriodSeconds": str(REUSE_PERIOD_S_DEFAULT),
    "RedriveAllowPolicy": json.dumps({"redrivePermission": "allowAll"}),
    "Penstock.Partitions": "1",
    "Penstock.PriorityLevels": "1",
    ACKS: acks_of(None).name.lower(),
    DEDUPLICATION_WINDOW: str(dedup_window_ms({}) // 1000),
    **dict.fromkeys((PARK_GROUPS, PAUSED, UNCOUNTED_RELEASE), "false"),
}
_STANDARD_ONLY = frozenset({"Penstock.PriorityLevels"})
_FIFO_THROUGHPUT = frozenset({"DeduplicationScope", "FifoThroughputLimit"})
_FIFO_ONLY = frozenset(_FIFO_VALUES) | {name for name, extension in EXTENSIONS.items() if extension.fifo_only}
# An empty value takes these away again.
_REMOVABLE = frozenset({"Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId", *EXTENSIONS})


class QueueProblem(Exception):
    """A refusal in the words of SQS: `code` is the JSON error name; `pointer` names the member of REST."""

    def __init__(self, code: str, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.pointer = pointer


class RedriveRefused(QueueProblem):
    """Of a RedrivePolicy, which the refusal shows: as it was checked, until the caller's own text takes its place."""

    def __init__(self, policy: str, why: str) -> None:
        shown = policy[: limits.POLICY_BYTES_SHOWN_MAX]
        text = f"Value {shown} for parameter RedrivePolicy is invalid. Reason: {why}"
        super().__init__("InvalidParameterValueException", text)
        self.why = why

    def showing(self, given: object) -> QueueProblem:
        """The same of the attributes that a caller gave."""
        policy = given.get("RedrivePolicy") if isinstance(given, dict) else None
        return RedriveRefused(policy, self.why) if isinstance(policy, str) else self


class Redrive(NamedTuple):
    target: QueueArn
    receives_max: int


def check_name(name: object) -> str:
    """A name that a queue can have; that of a FIFO queue ends in `.fifo`, which counts."""
    if not isinstance(name, str) or not name:
        raise QueueProblem("MissingRequiredParameterException", "The request must contain the parameter QueueName.")
    if len(name) > limits.QUEUE_NAME_CHARACTERS_MAX or not _NAME.fullmatch(name.removesuffix(FIFO_SUFFIX)):
        raise _bad_name()
    return name


def is_fifo(name: str) -> bool:
    return name.endswith(FIFO_SUFFIX)


def defaults_of(name: str) -> dict[str, str]:
    """What every queue of such a name has stored."""
    return {**DEFAULTS, **_FIFO_DEFAULTS} if is_fifo(name) else DEFAULTS


def check_new(given: object, name: str) -> dict[str, str]:
    """The attributes a new queue of this name is asked to have, in normal form, without defaults."""
    attributes = _string_map(given, "Attributes")
    if attributes.get("FifoQueue", "").lower() == "true" and not is_fifo(name):
        raise QueueProblem(
            "InvalidParameterValueException",
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
            f"must end with {FIFO_SUFFIX} suffix and be 1 to {limits.QUEUE_NAME_CHARACTERS_MAX} in length.",
        )
    if is_fifo(name) and not attributes.get("FifoQueue"):
        raise _bad_name()
    checked = _normalise(attributes, name)
    check_together(merged(defaults_of(name), checked))
    return checked


def check_change(given: object, name: str) -> dict[str, str]:
    """The attributes of this queue to be changed, in normal form; an empty string takes an optional one away."""
    attributes = _string_map(given, "Attributes")
    if not attributes:
        raise QueueProblem("MissingRequiredParameterException", "The request must contain the parameter Attributes.")
    if is_fifo(name) and attributes.get("FifoQueue", "true").lower() != "true":
        raise _bad_value("FifoQueue", "Modifying queue type is not supported.")
    return _normalise(attributes, name)


def check_together(attributes: Mapping[str, str]) -> None:
    """Raises QueueProblem where checked attributes do not go together."""
    per_group = attributes.get("FifoThroughputLimit") == "perMessageGroupId"
    if per_group and attributes.get("DeduplicationScope") != "messageGroup":
        raise _bad_value(
            "FifoThroughputLimit", "perMessageGroupId is allowed only when the DeduplicationScope is messageGroup."
        )
    partitions = int(attributes.get("Penstock.Partitions", "1")) * int(attributes.get("Penstock.PriorityLevels", "1"))
    if partitions > limits.PARTITIONS_PER_QUEUE_MAX:
        raise _bad_value(
            "Penstock.Partitions",
            f"A queue has at most {limits.PARTITIONS_PER_QUEUE_MAX} partitions, of all its priority levels together.",
        )


def check_spread(before: Mapping[str, str], after: Mapping[str, str], change: Mapping[str, str]) -> None:
    """Raises QueueProblem where a queue cannot come to the partitions that checked attributes ask for."""
    if "FifoQueue" in after:
        asked = int(change.get("Penstock.Partitions", "1"))
        if asked > 1 and after["FifoThroughputLimit"] != "perMessageGroupId":
            raise _bad_value(
                "Penstock.Partitions", "A FIFO queue has several only with FifoThroughputLimit perMessageGroupId."
            )
        return
    for name in ("Penstock.Partitions", "Penstock.PriorityLevels"):
        if int(after.get(name, "1")) < int(before.get(name, "1")):
            raise _bad_value(name, f"It is {before[name]} and cannot be lowered: messages may be in any of them.")


def check_tags(given: object) -> dict[str, str]:
    tags = _string_map(given, "Tags")
    if len(tags) > limits.QUEUE_TAGS_MAX:
        raise QueueProblem("InvalidParameterValueException", f"Too many tags: at most {limits.QUEUE_TAGS_MAX}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= limits.TAG_KEY_CHARACTERS_MAX or len(value) > limits.TAG_VALUE_CHARACTERS_MAX:
            raise QueueProblem("InvalidParameterValueException", "Tag keys have 1 to 128 characters, values up to 256.")
        if key.lower().startswith("aws:"):
            raise QueueProblem("InvalidParameterValueException", "The tag prefix aws: is reserved.")
        if "\0" in key or "\0" in value:
            raise QueueProblem("InvalidParameterValueException", "A tag holds a character that is not allowed.")
    return tags


def check_tag_keys(given: object) -> list[str]:
    """Keys to be taken away; naming one that no tag has is no error."""
    if not isinstance(given, list) or not given:
        raise QueueProblem("MissingRequiredParameterException", "The request must contain the parameter TagKeys.")
    if len(given) > limits.QUEUE_TAGS_MAX:
        text = f"Maximum number of tag keys per request are {limits.QUEUE_TAGS_MAX}. You have sent {len(given)}."
        raise QueueProblem("InvalidParameterValueException", text)
    if not all(isinstance(key, str) for key in given):
        raise QueueProblem("InvalidParameterValueException", "TagKeys must be a list of strings.")
    return given


def merged_tags(stored: Mapping[str, str], change: Mapping[str, str], queue_name: str) -> dict[str, str]:
    """`stored` with `change`, which has passed `check_tags`, in it. Raises QueueProblem for too many."""
    result = {**stored, **change}
    if len(result) > limits.QUEUE_TAGS_MAX:
        raise QueueProblem("InvalidParameterValueException", f"Too many tags added for queue {queue_name}.")
    return result


def merged(stored: Mapping[str, str], change: Mapping[str, str]) -> dict[str, str]:
    """`stored` with `change` in it. Start from `defaults_of` for a new queue."""
    result = dict(stored)
    for name, value in change.items():
        if value == "" and name in _REMOVABLE:
            result.pop(name, None)
        else:
            result[name] = value
    if change.get("KmsMasterKeyId") == "" or change.get("SqsManagedSseEnabled") == "true":
        result.pop("KmsDataKeyReusePeriodSeconds", None)
    if change.get("KmsMasterKeyId"):
        # The two kinds of encryption at rest exclude each other; naming both is refused in _normalise.
        result["SqsManagedSseEnabled"] = "false"
    elif change.get("SqsManagedSseEnabled") == "true":
        result.pop("KmsMasterKeyId", None)
    return result


def first_difference(stored: Mapping[str, str], asked: Mapping[str, str]) -> str | None:
    """The first attribute that the queue would have another value of; what it has not stored has its default."""
    after = merged(stored, asked)
    for name in sorted(asked):
        unset = _unset(name, stored)
        if (stored.get(name) or unset) != (after.get(name) or unset):
            return name
    return None


def _unset(name: str, stored: Mapping[str, str]) -> str:
    """What an optional attribute means that is not stored; "" where it means nothing."""
    if name == "Penstock.Partitions" and stored.get("FifoThroughputLimit") == "perMessageGroupId":
        return str(limits.FIFO_PARTITIONS_DEFAULT)
    return _UNSET.get(name, "")


def redrive_of(attributes: Mapping[str, str]) -> Redrive | None:
    """The dead-letter target named by checked attributes. Raises ValueError, KeyError, TypeError for others."""
    text = attributes.get("RedrivePolicy")
    if not text:
        return None
    policy = json.loads(text)
    target = parse_arn(policy["deadLetterTargetArn"])
    if target is None:
        raise ValueError("the target is not the ARN of a queue")
    return Redrive(target, policy["maxReceiveCount"])


def redrive_target(text: str) -> QueueArn | None:
    """What a RedrivePolicy as a caller wrote it names; None where it will be refused."""
    try:
        redrive = redrive_of({"RedrivePolicy": _redrive_policy("RedrivePolicy", text)})
    except QueueProblem:
        return None
    return None if redrive is None else redrive.target


def allows_source(attributes: Mapping[str, str], source_arn: str) -> bool:
    """Does a dead-letter queue with these attributes take messages from this source?"""
    text = attributes.get("RedriveAllowPolicy")
    if not text:
        return True
    policy = json.loads(text)
    permission = policy["redrivePermission"]
    return permission == "allowAll" or (permission == "byQueue" and source_arn in policy["sourceQueueArns"])


# --- values -------------------------------------------------------------------------------------------------


def _normalise(attributes: dict[str, str], queue_name: str) -> dict[str, str]:
    result = {}
    for name, value in attributes.items():
        check = _CHECKS.get(name)
        fifo = is_fifo(queue_name)
        if name in _FIFO_THROUGHPUT and not fifo:
            text = f"You can specify the {name} only when FifoQueue is set to true."
            raise QueueProblem("InvalidAttributeName", text)
        if check is None or (name in _FIFO_ONLY and not fifo) or (name in _STANDARD_ONLY and fifo):
            raise QueueProblem("InvalidAttributeName", f"Unknown Attribute {name[:100]}.")
        result[name] = "" if value == "" and name in _REMOVABLE else check(name, value)
    if result.get("KmsMasterKeyId") and result.get("SqsManagedSseEnabled") == "true":
        raise QueueProblem(
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or "
            "SQS SSE.",
        )
    return result


def _integer(name: str, value: str) -> str:
    low, high = _RANGES[name]
    if not _INTEGER.fullmatch(value) or not low <= int(value) <= high:
        raise _bad_value(name, f"Must be an integer from {low} to {high}.")
    return str(int(value))


def _boolean(name: str, value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise _bad_value(name, "Must be true or false.")
    return value.lower()


def _kms_key(name: str, value: str) -> str:
    if len(value) > 2048 or not value.isprintable():
        raise _bad_value(name, "Must be the id, ARN or alias of a key.")
    return value


def _policy(name: str, value: str) -> str:
    """A policy that would not be understood when it is asked is not stored."""
    try:
        compile_policy(value, PolicyKind.RESOURCE, name)
    except PolicyError as error:
        if error.problem is PolicyProblem.TOO_MANY:
            raise QueueProblem("OverLimit", error.text) from None
        raise _bad_value(name, str(error)) from None
    return value


def _redrive_policy(name: str, value: str) -> str:
    try:
        policy = _json_object(name, value)
    except QueueProblem:
        raise RedriveRefused(value, "Redrive policy is not a valid JSON map.") from None
    unknown = set(policy) - {"deadLetterTargetArn", "maxReceiveCount"}
    if unknown:
        raise RedriveRefused(value, f"Redrive policy contains unknown attribute: {_shown(min(unknown))}.")
    for member in ("deadLetterTargetArn", "maxReceiveCount"):
        if member not in policy:
            raise RedriveRefused(value, f"Redrive policy does not contain mandatory attribute: {member}.")
    if parse_arn(policy["deadLetterTargetArn"]) is None:
        raise RedriveRefused(value, "Invalid value for deadLetterTargetArn.")
    receives = given = policy["maxReceiveCount"]
    if isinstance(receives, str) and _INTEGER.fullmatch(receives):
        receives = int(receives)
    if type(receives) is not int or not 1 <= receives <= limits.REDRIVE_RECEIVES_MAX:
        bounds = f"valid values are from 1 to {limits.REDRIVE_RECEIVES_MAX} both inclusive"
        shown = given if isinstance(given, str) else json.dumps(given)
        raise RedriveRefused(value, f"Invalid value for maxReceiveCount: {_shown(shown)}, {bounds}.")
    return json.dumps({"deadLetterTargetArn": policy["deadLetterTargetArn"], "maxReceiveCount": receives})


def _redrive_allow_policy(name: str, value: str) -> str:
    policy = _json_object(name, value)
    unknown = set(policy) - {"redrivePermission", "sourceQueueArns"}
    if unknown:
        raise _bad_value(name, f"There is no member {_shown(min(unknown))}.")
    permission = policy.get("redrivePermission", "allowAll")
    if permission not in ("allowAll", "denyAll", "byQueue"):
        raise _bad_value(name, "redrivePermission must be allowAll, denyAll or byQueue.")
    sources = policy.get("sourceQueueArns")
    if permission != "byQueue":
        if sources:
            raise _bad_value(name, "sourceQueueArns is for redrivePermission byQueue only.")
        return json.dumps({"redrivePermission": permission})
    if not isinstance(sources, list) or not 1 <= len(sources) <= limits.REDRIVE_SOURCES_MAX:
        raise _bad_value(name, f"sourceQueueArns must name 1 to {limits.REDRIVE_SOURCES_MAX} queues.")
    if any(parse_arn(source) is None for source in sources):
        raise _bad_value(name, "sourceQueueArns must hold ARNs of queues.")
    return json.dumps({"redrivePermission": permission, "sourceQueueArns": sources})


def _fifo_value(name: str, value: str) -> str:
    for allowed in _FIFO_VALUES[name]:
        if value == allowed or (allowed in ("true", "false") and value.lower() == allowed):
            return allowed
    raise _bad_value(name, f"Must be {' or '.join(_FIFO_VALUES[name])}.")


def _extension(name: str, value: str) -> str:
    extension = EXTENSIONS[name]
    normal = extension.normal(value)
    if normal is None:
        raise _bad_value(name, f"Must be {extension.must_be}.")
    return normal


def _shown(text: str) -> str:
    """Of what JSON escaped: half of a surrogate pair, which no answer can hold, is shown as `?`."""
    return text[:100].encode(errors="replace").decode()


def _json_object(name: str, value: str) -> dict[str, object]:
    try:
        parsed = json.loads(value)
        repeated = repeated_member(value.encode(errors="surrogatepass"))
    except (ValueError, RecursionError):
        raise _bad_value(name, "Must be valid JSON.") from None
    if repeated is not None:
        raise _bad_value(name, "A member is named twice.")
    if not isinstance(parsed, dict):
        raise _bad_value(name, "Must be a JSON object.")
    return parsed


def _string_map(given: object, parameter: str) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise QueueProblem("InvalidParameterValueException", f"{parameter} must map names to strings.")
    return given


def _bad_value(name: str, why: str) -> QueueProblem:
    return QueueProblem("InvalidAttributeValue", f"Invalid value for the parameter {name}. Reason: {why}")


def _bad_name() -> QueueProblem:
    return QueueProblem(
        "InvalidParameterValueException",
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        "/name",
    )


_CHECKS: dict[str, Callable[[str, str], str]] = {
    **dict.fromkeys(_RANGES, _integer),
    **dict.fromkeys(_FIFO_VALUES, _fifo_value),
    "SqsManagedSseEnabled": _boolean,
    "KmsMasterKeyId": _kms_key,
    "Policy": _policy,
    "RedrivePolicy": _redrive_policy,
    "RedriveAllowPolicy": _redrive_allow_policy,
    **dict.fromkeys(EXTENSIONS, _extension),
}
assert set(DEFAULTS) | set(_FIFO_DEFAULTS) <= set(_CHECKS)
