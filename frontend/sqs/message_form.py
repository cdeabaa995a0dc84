"""The form of a message on the SQS wire: its fields read into an `OutgoingMessage`; the MD5 of attributes.

SDKs compute the digest of what they sent, and compare it with the one of the answer:

    for each attribute, by name:  length, name - length, data type - 1 (string, number) or 2 (binary) - length, value

Lengths are 4 bytes, big-endian; texts are UTF-8.
"""

from __future__ import annotations

import hashlib
from struct import pack

from frontend.crypto.envelope import Attributes
from frontend.errors import RequestError, invalid
from frontend.limits import TRACE_HEADER_CHARS_MAX
from frontend.messages.attributes import check_data_type, read_binary, read_text
from frontend.messages.outgoing import OutgoingMessage, outgoing_message
from frontend.parameters import check_text, shortened
from frontend.sqs.requests import AttributeIn, MessageFields

TRACE_HEADER = "AWSTraceHeader"


def read_message(fields: MessageFields, trace_header: str = "") -> OutgoingMessage:
    """`trace_header` is that of a message that names none itself. Raises RequestError."""
    message = outgoing_message(fields.message_body, fields.message_attributes, _read_attribute)
    message.delay_s = fields.delay_seconds
    message.group = fields.message_group_id
    message.dedup_id = fields.message_deduplication_id
    if fields.message_system_attributes:
        message.trace_header = _read_system_attributes(fields.message_system_attributes)
    else:
        message.trace_header = trace_header
    return message


def read_trace_header(value: bytes) -> str:
    """The trace that an HTTP header names. One that cannot be a system attribute is no reason to refuse a message."""
    text = value.decode("latin-1")
    return text if len(text) <= TRACE_HEADER_CHARS_MAX and text.isascii() and text.isprintable() else ""


def attributes_md5(attributes: Attributes) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for name, (data_type, value) in sorted(attributes.items()):
        raw_name, raw_type = name.encode(), data_type.encode()
        kind = b"\x02" if data_type.startswith("Binary") else b"\x01"
        digest.update(pack(">I", len(raw_name)) + raw_name + pack(">I", len(raw_type)) + raw_type + kind)
        digest.update(pack(">I", len(value)) + value)
    return digest.hexdigest()


def trace_md5(trace_header: str) -> str:
    """The digest of the one system attribute that may be sent."""
    return attributes_md5({TRACE_HEADER: ("String", trace_header.encode())})


def _read_attribute(name: str, given: AttributeIn) -> tuple[str, bytes]:
    data_type = check_data_type(name, given.data_type)
    if given.string_list_values or given.binary_list_values:
        text = "Message attribute lists in SendMessage operations are not supported."
        raise RequestError("UnsupportedOperation", text)
    if (given.string_value is None) == (given.binary_value is None):
        raise invalid(f"The message attribute '{name}' must contain exactly one value.")
    if data_type.startswith("Binary") != (given.binary_value is not None):
        raise invalid(f"The message attribute '{name}' with type '{data_type}' must use field of that kind.")
    if given.binary_value is not None:
        return data_type, read_binary(name, given.binary_value)
    assert given.string_value is not None
    return data_type, read_text(name, data_type, given.string_value)


def _read_system_attributes(given: dict[str, AttributeIn]) -> str:
    """The trace header, the one system attribute that may be sent."""
    if not given:
        return ""
    for name in given:
        if name != TRACE_HEADER:
            raise invalid(f"Message system attribute name '{shortened(name)}' is invalid.")
    attribute = given[TRACE_HEADER]
    if attribute.data_type != "String" or not attribute.string_value or attribute.binary_value is not None:
        raise invalid(f"The message system attribute '{TRACE_HEADER}' must be a non-empty String.")
    if len(attribute.string_value) > TRACE_HEADER_CHARS_MAX:
        raise invalid(f"The message system attribute '{TRACE_HEADER}' is too long.")
    check_text(attribute.string_value)
    return attribute.string_value
