"""Drafts: messages that passed the rules of the queue they are sent to, ready to be sealed. Pure.

All ways in use these rules: a message that REST takes can be received over SQS, and the other way round.

Surface: other planes may import this module.
"""

from __future__ import annotations

import hashlib

import msgspec

from frontend.crypto.envelope import Content
from frontend.errors import RequestError, invalid
from frontend.limits import DELAY_S_MAX
from frontend.messages.due_time import Headers, with_due_time
from frontend.messages.outgoing import OutgoingMessage
from frontend.parameters import bad_value
from frontend.queues.fifo import FifoRules, check_dedup_id, check_fifo_group, check_group, choose_dedup_id, dedup_key
from frontend.queues.resolver import SendRules
from storage_nodes.model import Acks
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DELAY_MS, HEADER_GROUP, HEADER_TAG


class Draft(msgspec.Struct, gc=False):
    """`headers` are clear, in storage; `size_bytes` is what limits count; `acks` says when its send is answered.

    group         FIFO: the bytes of its message group
    is_scheduled  it is delivered later, at a time of its own
    level         its priority level; 0 where its queue has none
    """

    content: Content
    headers: Headers
    size_bytes: int
    acks: Acks
    group: bytes
    is_scheduled: bool
    level: int = 0

    @property
    def body_md5(self) -> str:
        """For the wires that tell it."""
        return hashlib.md5(self.content.body.encode(), usedforsecurity=False).hexdigest()


class MessageTooLong(RequestError):
    """Of a batch it counts all the same: what is too long together is refused together."""

    __slots__ = ("size_bytes",)

    def __init__(self, size_bytes: int, bytes_max: int) -> None:
        super().__init__(
            "InvalidParameterValueException",
            f"One or more parameters are invalid. Reason: Message must be shorter than {bytes_max} bytes.",
        )
        self.size_bytes = size_bytes


def draft_message(message: OutgoingMessage, rules: SendRules) -> Draft:
    """Checks one message. Raises RequestError."""
    raw_body = message.raw_body
    size_bytes = len(raw_body) + message.attributes_bytes
    if size_bytes > rules.message_bytes_max:
        raise MessageTooLong(size_bytes, rules.message_bytes_max)
    group = b""
    if rules.fifo is not None:
        group, dedup_id, headers = _fifo_headers(message, rules.delay_ms, rules.fifo)
    elif rules.delay_ms or message.delay_s is not None or message.group is not None or message.dedup_id is not None:
        dedup_id, headers = _standard_headers(message, rules)
    else:
        dedup_id, headers = "", ()
    if rules.fifo is None and message.tag is not None:
        headers += ((HEADER_TAG, message.tag),)
    if message.due is not None:
        if message.delay_s:
            raise invalid("A message with a delivery time of its own takes no DelaySeconds.")
        headers = with_due_time(headers, message.due)
    return Draft(
        Content(message.body, message.attributes, message.trace_header, dedup_id),
        headers,
        size_bytes,
        rules.acks if message.acks is None else message.acks,
        group,
        message.due is not None,
    )


def _standard_headers(message: OutgoingMessage, rules: SendRules) -> tuple[str, Headers]:
    """(deduplication id, headers) of a message of a standard queue."""
    delay_ms = rules.delay_ms
    if message.delay_s is not None:
        delay_ms = check_delay_s(message.delay_s) * 1000
    dedup_id = message.dedup_id
    if dedup_id is not None and not rules.dedups:
        reason = "The request includes a parameter that is not valid for this queue type."
        raise bad_value(dedup_id, "MessageDeduplicationId", reason)
    headers: Headers = ()
    if delay_ms:
        headers = ((HEADER_DELAY_MS, str(delay_ms).encode()),)
    if message.group is not None:
        headers += ((HEADER_GROUP, check_group(message.group)),)
    if dedup_id is None:
        return "", headers
    return dedup_id, (*headers, (HEADER_DEDUP, check_dedup_id(dedup_id)))


def _fifo_headers(message: OutgoingMessage, delay_ms: int, fifo: FifoRules) -> tuple[bytes, str, Headers]:
    """(group, deduplication id, headers). A delay is for the whole queue: one message must not overtake another."""
    if message.delay_s is not None and check_delay_s(message.delay_s):
        raise bad_value(
            message.delay_s,
            "DelaySeconds",
            "The request include parameter that is not valid for this queue type.",
        )
    group = check_fifo_group(message.group)
    dedup_id = choose_dedup_id(fifo, message.dedup_id, message.raw_body)
    headers: Headers = ((HEADER_GROUP, group), (HEADER_DEDUP, dedup_key(fifo, group, dedup_id)))
    if delay_ms:
        headers += ((HEADER_DELAY_MS, str(delay_ms).encode()),)
    return group, dedup_id, headers


def check_delay_s(seconds: int) -> int:
    """Raises RequestError."""
    if not 0 <= seconds <= DELAY_S_MAX:
        raise bad_value(seconds, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {DELAY_S_MAX}.")
    return seconds
