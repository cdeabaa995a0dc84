"""The rules of FIFO queues: groups, deduplication, sequence numbers. Pure.

    group     every message names one; messages of a group are given in the order of their sends, one batch at a time
    dedup     an id, given or the SHA-256 of the body; the same id again within five minutes is the same message

Storage compares one opaque key per message: the id where the whole queue is the scope, group and id where each group
is a scope of its own. The id itself travels inside the envelope, so that receivers see it and storage nodes do not
have to. (Where the scope is the queue the key is the id; a content hash tells a node that two bodies are equal.)

Surface: other planes may import this module.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from frontend.errors import RequestError, missing
from frontend.limits import DEDUP_KEY_BYTES_MAX, SEQUENCE_DIGITS
from frontend.parameters import bad_value, check_id


class FifoIdMissing(RequestError):
    """A message without an id that its queue needs. In a batch it fails the whole call, as on SQS."""

    __slots__ = ()


class FifoRules(NamedTuple):
    """How a FIFO queue is configured. `per_group`: a deduplication id counts within its group only."""

    content_dedup: bool
    per_group: bool

    @classmethod
    def of(cls, attributes: dict[str, str]) -> FifoRules:
        return cls(
            attributes.get("ContentBasedDeduplication") == "true",
            attributes.get("DeduplicationScope") == "messageGroup",
        )


def check_group(group: str) -> bytes:
    """The bytes of a MessageGroupId. Raises RequestError."""
    return check_id(group, "MessageGroupId")


def check_fifo_group(group: str | None) -> bytes:
    if group is None:
        error = missing("MessageGroupId")
        raise FifoIdMissing(error.code, error.message)
    return check_group(group)


def check_dedup_id(dedup_id: str) -> bytes:
    """The bytes of a MessageDeduplicationId. Raises RequestError."""
    return check_id(dedup_id, "MessageDeduplicationId")


def choose_dedup_id(rules: FifoRules, given: str | None, raw_body: bytes) -> str:
    """The deduplication id of a message: what its sender gave goes before the hash of its body. Raises RequestError."""
    if given is not None:
        check_dedup_id(given)
        return given
    if not rules.content_dedup:
        raise FifoIdMissing(
            "InvalidParameterValueException",
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly",
        )
    return hashlib.sha256(raw_body).hexdigest()


def dedup_key(rules: FifoRules, group: bytes, dedup_id: str) -> bytes:
    """What storage compares: 1 to DEDUP_KEY_BYTES_MAX bytes."""
    if not rules.per_group:
        return dedup_id.encode()
    # Neither part can hold a NUL, and a group is never empty: the two forms never meet.
    key = group + b"\0" + dedup_id.encode()
    return key if len(key) <= DEDUP_KEY_BYTES_MAX else b"\0" + hashlib.sha256(key).digest()


def check_attempt(attempt: str | None, fifo: bool) -> bytes:
    """The ReceiveRequestAttemptId as storage takes it; empty where none was given. Raises RequestError."""
    if attempt is None:
        return b""
    if not fifo:
        raise bad_value(
            attempt[:80],
            "ReceiveRequestAttemptId",
            "The request include parameter that is not valid for this queue type.",
        )
    return check_id(attempt, "ReceiveRequestAttemptId")


def sequence_number(place: int) -> str:
    """Of a message at that place in its partition, and in the sets of partitions that its queue has had."""
    return f"{place:0{SEQUENCE_DIGITS}d}"
