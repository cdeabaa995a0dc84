"""Lines of bytes as message bodies, and back: what `send` writes, `receive` reads.

An SQS body is text of at least one character, of the characters XML 1.0 allows. A line that is such text travels as it
is. Any other line travels in a form that the message attribute `Penstock.Encoding` names:

    base64   the body is the base64 of the line (bytes that are not UTF-8, or hold control characters)
    empty    the line is empty; the body is a single `-`
"""

from __future__ import annotations

import base64
import io
import re
import select
from collections.abc import Iterable, Iterator

from deploy import limits

ATTRIBUTE = "Penstock.Encoding"
# A body, and the name of its encoding where it is not plain text.
EncodedLine = tuple[str, str | None]
# XML 1.0 Char, which is what SQS accepts in a body.
_NOT_ALLOWED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def encode_line(line: bytes) -> EncodedLine:
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


def decode_line(body: str, attribute: tuple[str, str] | None) -> bytes:
    """The line of a received message, with the type and value of its attribute. Those of other senders are their
    text."""
    encoding = None if attribute is None else attribute[1]
    if encoding == "empty":
        return b""
    if encoding == "base64":
        return base64.b64decode(body, validate=True)
    return body.encode()


def read_lines(stream: io.BufferedIOBase) -> Iterator[bytes | None]:
    """Lines without their newline; the last one may lack it. A carriage return belongs to its line. None: no more is
    there for now, as from a pipe whose other end writes a line now and then."""
    pieces: list[bytes] = []  # of a line that is not whole
    while chunk := stream.read1(limits.READ_BYTES):
        if b"\n" not in chunk:
            pieces.append(chunk)
            continue
        first, *lines, rest = chunk.split(b"\n")
        yield b"".join([*pieces, first])
        yield from lines
        pieces = [rest] if rest else []
        if not _has_more(stream):
            yield None
    if pieces:
        yield b"".join(pieces)


def _has_more(stream: io.BufferedIOBase) -> bool:
    try:
        return bool(select.select([stream], [], [], limits.SEND_LINGER_S)[0])
    except (OSError, ValueError):  # no file of the system
        return True


def batches(lines: Iterable[bytes | None]) -> Iterator[list[EncodedLine]]:
    """Encoded lines, as many at a time as one frame takes well, and what is there where no more comes for now."""
    batch: list[EncodedLine] = []
    size_bytes = 0
    for line in lines:
        if line is None:
            if batch:
                yield batch
                batch, size_bytes = [], 0
            continue
        encoded = encode_line(line)
        body_bytes = len(encoded[0].encode())
        if batch and (len(batch) == limits.BATCH_MESSAGES or size_bytes + body_bytes > limits.BATCH_BYTES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append(encoded)
        size_bytes += body_bytes
    if batch:
        yield batch
