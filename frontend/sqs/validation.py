"""The rules of messages, batches and parameters: what passes here can be stored. Pure.

All ways in use these: a message that REST takes can be received over SQS, and the other way round.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import NamedTuple, TypeVar

from frontend.crypto.envelope import Attributes, Content
from frontend.errors import Refusal, invalid, missing
from frontend.limits import (
    ATTRIBUTE_NAME_CHARS_MAX,
    ATTRIBUTE_TYPE_CHARS_MAX,
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    BATCH_ENTRY_ID_CHARS_MAX,
    DELAY_S_MAX,
    MESSAGE_ATTRIBUTES_MAX,
    MESSAGE_BYTES_MAX,
    RECEIVE_MESSAGES_MAX,
    RECEIVE_WAIT_S_MAX,
    TRACE_HEADER_CHARS_MAX,
    VISIBILITY_S_MAX,
)
from frontend.sqs.asks import AttributeIn, MessageFields, ReceiptEntry, SendEntry
from frontend.sqs.attributes_md5 import attributes_md5
from frontend.sqs.extensions import ACKS, ACKS_WORDS
from frontend.sqs.fifo import FifoRules, check_dedup_id, check_fifo_group, check_group, choose_dedup_id, dedup_key
from frontend.sqs.scheduling import read_due, with_due
from frontend.sqs.tags import tag_headers
from storage_nodes.model import Acks
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DELAY_MS, HEADER_GROUP

TRACE_HEADER = "AWSTraceHeader"

# XML 1.0 characters; everything that is not one of them.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ASCII_ALLOWED = bytes((9, 10, 13, *range(0x20, 0x80)))
_ENTRY_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{BATCH_ENTRY_ID_CHARS_MAX}}}", re.ASCII)
# Letters and digits of any alphabet.
_ATTRIBUTE_NAME = re.compile(r"[\w.-]+")
_DATA_TYPE = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
# What an attribute of type Number may be.
_NUMBER_MIN, _NUMBER_MAX = Decimal("-1E128"), Decimal("1E126")


class Draft(NamedTuple):
    """A message that passed, ready to be sealed. `headers` are clear; `size_bytes` is what limits count; `acks` says
    when its send is answered."""

    content: Content
    headers: tuple[tuple[bytes, bytes], ...]
    size_bytes: int
    body_md5: str
    attributes_md5: str | None
    trace_md5: str | None
    acks: Acks
    due: bytes = b""  # of a scheduled message: the content of its HEADER_DUE


class MessageTooLong(Refusal):
    """Of a batch it counts all the same: what is too long together is refused together."""

    __slots__ = ("size_bytes",)

    def __init__(self, size_bytes: int, bytes_max: int) -> None:
        super().__init__(
            "InvalidParameterValueException",
            f"One or more parameters are invalid. Reason: Message must be shorter than {bytes_max} bytes.",
        )
        self.size_bytes = size_bytes


class SendRules(NamedTuple):
    """What a queue asks of the messages that are sent to it.

    delay_ms   of a message that names none
    fifo       its rules if it is a FIFO queue
    dedups     a standard queue that drops what repeats a deduplication id (`Penstock.DeduplicationWindow`)
    acks       when the send of a message is answered that says nothing of it (`Penstock.Acks`)
    """

    message_bytes_max: int = MESSAGE_BYTES_MAX
    delay_ms: int = 0
    fifo: FifoRules | None = None
    dedups: bool = False
    acks: Acks = Acks.QUORUM


def draft_message(fields: MessageFields, rules: SendRules) -> Draft:
    """Check one message. Raises Refusal."""
    bytes_max = rules.message_bytes_max
    body = fields.message_body
    if not body:
        raise missing("MessageBody")
    raw = check_text(body, "message body")
    size_bytes = len(raw)
    attributes: Attributes = {}
    attributes_digest = trace_digest = None
    due = b""
    trace_header = fields.trace_header or ""
    acks = rules.acks if fields.penstock_acks is None else _check_acks(fields.penstock_acks)
    tag: tuple[tuple[bytes, bytes], ...] = ()
    if fields.message_attributes:
        attributes, attribute_bytes = _check_attributes(fields.message_attributes)
        size_bytes += attribute_bytes
        attributes_digest = attributes_md5(attributes)
        due = read_due(attributes)
        if ACKS in attributes:
            acks = _check_acks(attributes[ACKS][1].decode(errors="replace"))
        tag = tag_headers(attributes)
    if fields.message_system_attributes:
        trace_header = _check_system_attributes(fields.message_system_attributes)
        trace_digest = attributes_md5({TRACE_HEADER: ("String", trace_header.encode())})
    if size_bytes > bytes_max:
        raise MessageTooLong(size_bytes, bytes_max)
    if rules.fifo is None:
        dedup_id, headers = _clear_headers(fields, rules)
        headers += tag
    else:
        dedup_id, headers = _fifo_headers(fields, rules.delay_ms, rules.fifo, raw)
    if due:
        if fields.delay_seconds:
            raise invalid("A message with a delivery time of its own takes no DelaySeconds.")
        headers = with_due(headers, due)
    return Draft(
        Content(body, attributes, trace_header, dedup_id),
        headers,
        size_bytes,
        hashlib.md5(raw, usedforsecurity=False).hexdigest(),
        attributes_digest,
        trace_digest,
        acks,
        due,
    )


def check_text(text: str, what: str) -> bytes:
    """The UTF-8 of a text of allowed characters. Raises Refusal."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise _bad_characters(what) from None
    if raw.translate(None, _ASCII_ALLOWED) if len(raw) == len(text) else FORBIDDEN.search(text):
        raise _bad_characters(what)
    return raw


def is_text(text: str) -> bool:
    """Only of characters that an answer in XML can hold?"""
    if text.isascii():
        return not text.encode().translate(None, _ASCII_ALLOWED)
    return FORBIDDEN.search(text) is None


def check_batch(action: str, entries: Sequence[SendEntry | ReceiptEntry] | None) -> Sequence[str]:
    """The ids of a batch, which must be 1 to 10, well-formed and distinct. Raises Refusal."""
    if not entries:
        raise Refusal("EmptyBatchRequest", f"There should be at least one {action}RequestEntry in the request.")
    if len(entries) > BATCH_ENTRIES_MAX:
        raise Refusal(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BATCH_ENTRIES_MAX}. You have sent {len(entries)}.",
        )
    ids = []
    for entry in entries:
        if entry.id is None or _ENTRY_ID.fullmatch(entry.id) is None:
            raise Refusal(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                f"It can be at most {BATCH_ENTRY_ID_CHARS_MAX} letters long.",
            )
        if entry.id in ids:
            raise Refusal("BatchEntryIdsNotDistinct", f"Id {entry.id} repeated.")
        ids.append(entry.id)
    return ids


def check_batch_size(drafts: Sequence[Draft | Refusal]) -> None:
    """Raises Refusal if the messages of a batch are too large together."""
    size_bytes = sum(draft.size_bytes for draft in drafts if isinstance(draft, Draft | MessageTooLong))
    if size_bytes > BATCH_BYTES_MAX:
        raise batch_too_long(size_bytes)


def batch_too_long(size_bytes: int) -> Refusal:
    return Refusal(
        "BatchRequestTooLong",
        f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent {size_bytes} bytes.",
    )


def check_messages_max(value: int | None) -> int:
    if value is None:
        return 1
    if not 1 <= value <= RECEIVE_MESSAGES_MAX:
        raise _bad_value(value, "MaxNumberOfMessages", f"Must be between 1 and {RECEIVE_MESSAGES_MAX}, if provided.")
    return value


def check_wait_s(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= RECEIVE_WAIT_S_MAX:
        raise _bad_value(value, "WaitTimeSeconds", f"Must be >= 0 and <= {RECEIVE_WAIT_S_MAX}, if provided.")
    return value


def check_visibility_s(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= VISIBILITY_S_MAX:
        raise _bad_value(value, "VisibilityTimeout", f"Must be >= 0 and <= {VISIBILITY_S_MAX}, if provided.")
    return value


def check_give_back_s(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= VISIBILITY_S_MAX:
        raise invalid(f"delay_seconds must be between 0 and {VISIBILITY_S_MAX}.")
    return value


T = TypeVar("T")


def attempt(check: Callable[[], T]) -> T | Refusal:
    """For batches: an entry that is refused is an answer, not the end of the request."""
    try:
        return check()
    except Refusal as refusal:
        return refusal


# --- parts of a message ---


def _check_acks(word: str) -> Acks:
    acks = ACKS_WORDS.get(word)
    if acks is None:
        raise _bad_value(word, ACKS, f"Must be one of {', '.join(ACKS_WORDS)}.")
    return acks


def _clear_headers(fields: MessageFields, rules: SendRules) -> tuple[str, tuple[tuple[bytes, bytes], ...]]:
    """(deduplication id, headers) of a message of a standard queue."""
    delay_ms = rules.delay_ms
    if fields.delay_seconds is not None:
        delay_ms = _check_delay_s(fields.delay_seconds) * 1000
    dedup_id = fields.message_deduplication_id
    if dedup_id is not None and not rules.dedups:
        raise invalid("The request includes a parameter that is not valid for this queue type: MessageDeduplicationId")
    group = fields.message_group_id
    if group is None and dedup_id is None and not delay_ms:
        return "", ()
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if delay_ms:
        headers = ((HEADER_DELAY_MS, str(delay_ms).encode()),)
    if group is not None:
        headers += ((HEADER_GROUP, check_group(group)),)
    if dedup_id is None:
        return "", headers
    return dedup_id, (*headers, (HEADER_DEDUP, check_dedup_id(dedup_id)))


def _fifo_headers(
    fields: MessageFields, delay_ms: int, fifo: FifoRules, raw_body: bytes
) -> tuple[str, tuple[tuple[bytes, bytes], ...]]:
    """(deduplication id, headers). A delay is for the whole queue only: one message must not overtake another."""
    if fields.delay_seconds is not None and _check_delay_s(fields.delay_seconds):
        raise _bad_value(
            fields.delay_seconds,
            "DelaySeconds",
            "The request include parameter that is not valid for this queue type.",
        )
    group = check_fifo_group(fields.message_group_id)
    dedup_id = choose_dedup_id(fifo, fields.message_deduplication_id, raw_body)
    headers: tuple[tuple[bytes, bytes], ...] = (
        (HEADER_GROUP, group),
        (HEADER_DEDUP, dedup_key(fifo, group, dedup_id)),
    )
    if delay_ms:
        headers += ((HEADER_DELAY_MS, str(delay_ms).encode()),)
    return dedup_id, headers


def _check_delay_s(seconds: int) -> int:
    if not 0 <= seconds <= DELAY_S_MAX:
        raise _bad_value(seconds, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {DELAY_S_MAX}.")
    return seconds


def _check_attributes(given: dict[str, AttributeIn]) -> tuple[Attributes, int]:
    if len(given) > MESSAGE_ATTRIBUTES_MAX:
        raise invalid(
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{MESSAGE_ATTRIBUTES_MAX}]."
        )
    attributes: Attributes = {}
    size_bytes = 0
    for name, attribute in given.items():
        _check_attribute_name(name)
        data_type, value = _check_attribute(name, attribute)
        attributes[name] = (data_type, value)
        size_bytes += len(name.encode()) + len(data_type.encode()) + len(value)
    return attributes, size_bytes


def _check_attribute_name(name: str) -> None:
    if len(name) > ATTRIBUTE_NAME_CHARS_MAX:
        raise invalid(f"Message attribute name must be at most {ATTRIBUTE_NAME_CHARS_MAX} characters long.")
    if _ATTRIBUTE_NAME.fullmatch(name) is None or name[0] == "." or name[-1] == "." or ".." in name:
        raise invalid(
            "The message attribute name can contain alphanumeric characters, hyphens, underscores and periods; "
            "it cannot start or end with a period or have periods in succession."
        )
    if name.lower().startswith(("aws.", "amazon.")):
        raise invalid("The message attribute name cannot start with a reserved prefix: AWS. or Amazon.")


def _check_attribute(name: str, attribute: AttributeIn) -> tuple[str, bytes]:
    data_type = attribute.data_type
    if not data_type:
        raise invalid(f"The message attribute '{name}' must contain a non-empty message attribute type.")
    if len(data_type) > ATTRIBUTE_TYPE_CHARS_MAX or _DATA_TYPE.fullmatch(data_type) is None:
        raise invalid(
            f"The message attribute '{name}' has an invalid message attribute type, "
            "the set of supported type prefixes is Binary, Number, and String."
        )
    check_text(data_type, "message attribute type")
    if attribute.string_list_values or attribute.binary_list_values:
        raise Refusal("UnsupportedOperation", "Message attribute lists in SendMessage operations are not supported.")
    if (attribute.string_value is None) == (attribute.binary_value is None):
        raise invalid(f"The message attribute '{name}' must contain exactly one value.")
    if data_type.startswith("Binary") != (attribute.binary_value is not None):
        raise invalid(f"The message attribute '{name}' with type '{data_type}' must use field of that kind.")
    if attribute.binary_value is not None:
        return data_type, _check_binary(name, attribute.binary_value)
    assert attribute.string_value is not None
    return data_type, _check_string(name, data_type, attribute.string_value)


def _check_binary(name: str, value: str) -> bytes:
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal("SerializationException", f"The value of '{name}' is not base64.") from None
    if not raw:
        raise _empty_value(name, "Binary")
    return raw


def _check_string(name: str, data_type: str, value: str) -> bytes:
    if not value:
        raise _empty_value(name, "String")
    if FORBIDDEN.search(value) is not None:
        raise invalid(f"Invalid characters found in the value of message (user) attribute '{name}'.")
    raw = value.encode()
    if data_type.startswith("Number") and not _is_number(value):
        raise invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    return raw


def _empty_value(name: str, kind: str) -> Refusal:
    return invalid(f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.")


def _is_number(value: str) -> bool:
    if _NUMBER.fullmatch(value) is None:
        return False
    return _NUMBER_MIN <= Decimal(value) <= _NUMBER_MAX


def _check_system_attributes(given: dict[str, AttributeIn]) -> str:
    """The trace header, the one system attribute that may be sent."""
    for name, attribute in given.items():
        if name != TRACE_HEADER:
            raise invalid(f"Message system attribute name '{_short(name)}' is invalid.")
        if attribute.data_type != "String" or not attribute.string_value:
            raise invalid(f"The message system attribute '{name}' must be a non-empty String.")
        if len(attribute.string_value) > TRACE_HEADER_CHARS_MAX:
            raise invalid(f"The message system attribute '{name}' is too long.")
        check_text(attribute.string_value, "message system attribute")
        return attribute.string_value
    return ""


def read_trace_header(value: bytes) -> str:
    """The trace that an HTTP header names. One that cannot be a system attribute is no reason to refuse a message."""
    text = value.decode("latin-1")
    return text if len(text) <= TRACE_HEADER_CHARS_MAX and text.isascii() and text.isprintable() else ""


def _bad_characters(what: str) -> Refusal:
    return Refusal("InvalidMessageContents", f"Invalid characters found in the {what}.")


def _bad_value(value: object, parameter: str, reason: str) -> Refusal:
    return invalid(f"Value {_short(str(value))} for parameter {parameter} is invalid. Reason: {reason}")


def _short(text: str) -> str:
    """Of what a caller sent, enough to recognise it: an answer must not grow with the question."""
    return text if len(text) <= 80 else text[:80] + "..."
