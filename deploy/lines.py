"""Lines of bytes as SQS message bodies, and back: what `send` writes, `receive` reads.

An SQS body is text of at least one character, of the characters XML 1.0 allows. A line that is such text travels as it
is. Any other line travels in a form that the message attribute `Penstock.Encoding` names:

    base64   the body is the base64 of the line (bytes that are not UTF-8, or hold control characters)
    empty    the line is empty; the body is a single `-`
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from deploy import limits

ATTRIBUTE = "Penstock.Encoding"
# XML 1.0 Char, which is what SQS accepts in a body.
_NOT_ALLOWED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def encode_line(line: bytes) -> tuple[str, str | None]:
    """The body for a line, and the encoding's name where it is not plain text."""
    if not line:
        return "-", "empty"
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return base64.b64encode(line).decode(), "base64"
    if _NOT_ALLOWED.search(text):
        return base64.b64encode(line).decode(), "base64"
    return text, None


def decode_message(message: dict[str, Any]) -> bytes:
    """The line of a received message; messages of other senders are their text."""
    encoding = message.get("MessageAttributes", {}).get(ATTRIBUTE, {}).get("StringValue")
    if encoding == "empty":
        return b""
    if encoding == "base64":
        return base64.b64decode(message["Body"], validate=True)
    return str(message["Body"]).encode()


def read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines without their newline; the last one may lack it. A carriage return belongs to its line."""
    for line in stream:
        yield line.removesuffix(b"\n")


def batches(lines: Iterable[bytes]) -> Iterator[list[dict[str, Any]]]:
    """Entries for SendMessageBatch: at most ten, and no more bytes than a batch may have."""
    entries: list[dict[str, Any]] = []
    size_bytes = 0
    for line in lines:
        body, encoding = encode_line(line)
        body_bytes = len(body.encode()) + (len(ATTRIBUTE) + len("Stringbase64") if encoding else 0)
        if entries and (len(entries) == limits.BATCH_MESSAGES or size_bytes + body_bytes > limits.BATCH_BYTES_MAX):
            yield entries
            entries, size_bytes = [], 0
        entry: dict[str, Any] = {"Id": str(len(entries)), "MessageBody": body}
        if encoding:
            entry["MessageAttributes"] = {ATTRIBUTE: {"DataType": "String", "StringValue": encoding}}
        entries.append(entry)
        size_bytes += body_bytes
    if entries:
        yield entries
