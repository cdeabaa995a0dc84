"""Records: the unit that is sent, stored and read. Codec of one record's body, shared by clients and nodes.

A record body is the part of a Kafka v2 record that does not depend on its place in a batch:

    varint   key length (-1 = no key)      zigzag, LEB128
    bytes    key
    varint   value length
    bytes    value
    varint   number of headers
      varint header key length, bytes header key (ASCII)
      varint header value length, bytes header value

so a client encodes a message once, nodes copy it, and only the final reader decodes it.
`storage_nodes/log/record_batch.py` draws what stands in front of the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Clear headers that the queue machine understands. One byte each, because they are stored with every message.
HEADER_DELAY_MS = b"d"  # ASCII decimal: not before append time + this many milliseconds
HEADER_GROUP = b"g"  # message group id: those of a FIFO queue that share it keep their order; fairness goes by it
HEADER_DEDUP = b"u"  # deduplication id: a second message with it, within the window, is dropped
HEADER_TAG = b"t"  # receives may ask for messages with it
HEADER_DUE = b"a"  # scheduled: due at this time, ASCII decimal, ms since the epoch; "+n": n ms after the append time
HEADER_RELEASED = b"r"  # a scheduled message that became due, once more: "offset/due_ms" of where it was scheduled
HEADER_DEAD_SOURCE = b"x"  # where a dead letter comes from: msgpack `DeadSource` of protocol/messages.py

NO_HEADERS: tuple[tuple[bytes, bytes], ...] = ()


class RecordError(ValueError):
    """A record body that does not parse. Input from outside: the caller answers INVALID_REQUEST."""


class Record(NamedTuple):
    """A decoded record body."""

    key: bytes | None
    value: bytes
    headers: Sequence[tuple[bytes, bytes]]


def encode_varint(value: int) -> bytes:
    """Zigzag LEB128 of a signed integer (Kafka's varint)."""
    raw = (value << 1) ^ (value >> 63)
    if raw < 0x80:
        return _ONE_BYTE[raw]
    out = bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def decode_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """(value, next position). Raises RecordError past the end or beyond 10 bytes."""
    raw = shift = 0
    if at < len(data) and data[at] < 0x80:  # most are one byte
        raw = data[at]
        return (raw >> 1) ^ -(raw & 1), at + 1
    for _ in range(10):
        if at >= len(data):
            raise RecordError("varint runs past the end of the record")
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise RecordError("varint is longer than 10 bytes")


_ONE_BYTE = [bytes([n]) for n in range(128)]
_KEYLESS = encode_varint(-1)
_NO_KEY = _KEYLESS[0]
# Of headers as `read_headers` meets them: the length of a name of one byte, and those names as numbers.
_ONE_BYTE_LONG = encode_varint(1)[0]
_OTHER = -1
_DELAY_MS, _GROUP, _DEDUP, _TAG = HEADER_DELAY_MS[0], HEADER_GROUP[0], HEADER_DEDUP[0], HEADER_TAG[0]
_DUE, _RELEASED, _DEAD_SOURCE = HEADER_DUE[0], HEADER_RELEASED[0], HEADER_DEAD_SOURCE[0]


def encode_body(value: bytes, key: bytes | None = None, headers: Sequence[tuple[bytes, bytes]] = NO_HEADERS) -> bytes:
    """Encode one message for `StorageClient.send`."""
    key_part = _KEYLESS if key is None else encode_varint(len(key)) + key
    if not headers:
        return b"%b%b%b\x00" % (key_part, encode_varint(len(value)), value)
    parts = [key_part, encode_varint(len(value)), value, encode_varint(len(headers))]
    for name, content in headers:
        parts += (encode_varint(len(name)), name, encode_varint(len(content)), content)
    return b"".join(parts)


def decode_body(body: bytes | memoryview) -> Record:
    """The inverse of `encode_body`. Raises RecordError on anything that is not exactly one body."""
    key_length, at = decode_varint(body, 0)
    key: bytes | None = None
    if key_length >= 0:
        key, at = _take(body, at, key_length)
    value_length, at = decode_varint(body, at)
    value, at = _take(body, at, value_length)
    header_count, at = decode_varint(body, at)
    if header_count == 0 and at == len(body):
        return Record(key, value, NO_HEADERS)
    if header_count < 0 or header_count > len(body):
        raise RecordError("negative or impossible header count")
    headers = []
    for _ in range(header_count):
        name_length, at = decode_varint(body, at)
        name, at = _take(body, at, name_length)
        content_length, at = decode_varint(body, at)
        content, at = _take(body, at, content_length)
        headers.append((name, content))
    if at != len(body):
        raise RecordError("bytes left over after the last header")
    return Record(key, value, headers)


def read_headers(
    body: bytes,
) -> tuple[bytes | None, bytes | None, bytes | None, bytes | None, bytes | None, bytes | None, bytes | None]:
    """Contents of the headers that the queue machine understands: (delay in ms, group, deduplication id, source of a
    dead letter, tag, due time, what a release is of), the last of each name, None where there is none.

    Raises RecordError where the body does not parse. Every replica does this for every message that has headers: key,
    value and other headers are stepped over, not copied; lengths of one byte, and of two for the value, are read in
    place.
    """
    size = len(body)
    delay_ms = group = dedup_id = dead_source = tag = due = release = None
    try:
        at = 1
        if body[0] != _NO_KEY:
            key_length, at = decode_varint(body, 0)
            at += max(key_length, 0)
        length = body[at]
        if length < 0x80:
            at += 1
        elif body[at + 1] < 0x80:
            length = length & 0x7F | body[at + 1] << 7
            at += 2
        else:
            value_length, at = decode_varint(body, at)
            length = value_length << 1 if value_length >= 0 else 1
        if length & 1:
            raise RecordError("negative value length")
        count, at = decode_varint(body, at + (length >> 1))
        if count < 0 or count > size:
            raise RecordError("negative or impossible header count")
        for _ in range(count):
            name = _OTHER
            if body[at] == _ONE_BYTE_LONG:
                name = body[at + 1]
                at += 2
            else:
                length, at = decode_varint(body, at)
                if length < 0:
                    raise RecordError("negative header name length")
                at += length
            length = body[at]
            if length & 0x81:  # longer than a byte, or negative
                length, at = decode_varint(body, at)
                if length < 0:
                    raise RecordError("negative header length")
            else:
                length >>= 1
                at += 1
            start, at = at, at + length
            if name == _GROUP:
                group = body[start:at]
            elif name == _DEDUP:
                dedup_id = body[start:at]
            elif name == _DELAY_MS:
                delay_ms = body[start:at]
            elif name == _TAG:
                tag = body[start:at]
            elif name == _DUE:
                due = body[start:at]
            elif name == _DEAD_SOURCE:
                dead_source = body[start:at]
            elif name == _RELEASED:
                release = body[start:at]
    except IndexError:
        raise RecordError("the record ends before its last header does") from None
    if at != size:
        raise RecordError("the headers do not end where the record does")
    return delay_ms, group, dedup_id, dead_source, tag, due, release


def origin_offset(headers: Sequence[tuple[bytes, bytes]], offset: int) -> int:
    """Where a message that lies at `offset` was sent to: a scheduled one moved as it became due. Raises RecordError."""
    for name, content in headers:
        if name == HEADER_RELEASED:
            origin = content.partition(b"/")[0]
            if not origin.isdigit():
                raise RecordError("where a scheduled message lay does not parse")
            return int(origin)
    return offset


def _take(data: bytes | memoryview, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if length < 0 or end > len(data):
        raise RecordError("length runs past the end of the record")
    return bytes(data[at:end]), end
