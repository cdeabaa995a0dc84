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
HEADER_RELEASED = (
    b"r"  # a message that became due, once more: "offset/due_ms" of where it waited; "/sent_ms" of a delayed one
)
HEADER_DEAD_SOURCE = b"x"  # where a dead letter comes from: msgpack `DeadSource` of protocol/messages/queues.py

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
# Most lengths there are, encoded.
LENGTHS_MAX = 4_096
LENGTHS = [encode_varint(length) for length in range(LENGTHS_MAX)]
_KEYLESS = encode_varint(-1)
_NO_KEY = _KEYLESS[0]
# Of headers as `read_headers` meets them: the length of a name of one byte, and those names as numbers.
_ONE_BYTE_LONG = encode_varint(1)[0]
_OTHER = -1
_DELAY_MS, _GROUP, _DEDUP, _TAG = HEADER_DELAY_MS[0], HEADER_GROUP[0], HEADER_DEDUP[0], HEADER_TAG[0]
_DUE, _RELEASED, _DEAD_SOURCE = HEADER_DUE[0], HEADER_RELEASED[0], HEADER_DEAD_SOURCE[0]
_GROUP_FIRST_OF_TWO = encode_varint(2) + encode_varint(1) + HEADER_GROUP
_ID_NEXT = encode_varint(1) + HEADER_DEDUP


def encode_plain_bodies(values: Sequence[bytes], keys: Sequence[bytes]) -> list[bytes]:
    """The same as `encode_body` for each, of messages without headers whose keys have the same length."""
    key_length = encode_varint(len(keys[0]))
    bodies = []
    for value, key in zip(values, keys, strict=True):
        length = len(value)
        value_length = LENGTHS[length] if length < LENGTHS_MAX else encode_varint(length)
        bodies.append(b"%b%b%b%b\x00" % (key_length, key, value_length, value))
    return bodies


def encode_body(value: bytes, key: bytes | None = None, headers: Sequence[tuple[bytes, bytes]] = NO_HEADERS) -> bytes:
    """Encode one message for `StorageClient.send`."""
    if key is None:
        key_part = _KEYLESS
    else:
        length = len(key)
        key_part = (LENGTHS[length] if length < LENGTHS_MAX else encode_varint(length)) + key
    length = len(value)
    value_length = LENGTHS[length] if length < LENGTHS_MAX else encode_varint(length)
    if not headers:
        return b"%b%b%b\x00" % (key_part, value_length, value)
    parts = [key_part, value_length, value, encode_varint(len(headers))]
    for name, content in headers:
        length = len(content)
        content_length = LENGTHS[length] if length < LENGTHS_MAX else encode_varint(length)
        parts += (encode_varint(len(name)), name, content_length, content)
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


def header_section(data: bytes, start: int, end: int) -> bytes:
    """The end of the body that stands at `start` to `end`, from the number of its headers on. Empty, which no such
    section is, where key and value do not parse.

    Lengths of one byte, and of two for the value, are read in place.
    """
    at = start + 1
    try:
        if data[start] != _NO_KEY:
            key_length = data[start]
            if key_length & 0x81:  # longer than a byte, or negative
                key_length, at = decode_varint(data, start)
                at += max(key_length, 0)
            else:
                at += key_length >> 1
        length = data[at]
        if length < 0x80:
            at += 1
        elif data[at + 1] < 0x80:
            length = length & 0x7F | data[at + 1] << 7
            at += 2
        else:
            value_length, at = decode_varint(data, at)
            length = value_length << 1 if value_length >= 0 else 1
    except (IndexError, RecordError):
        return b""
    return b"" if length & 1 else data[at + (length >> 1) : end]


def section_of(body: bytes) -> bytes:
    return header_section(body, 0, len(body))


def group_and_id(section: bytes) -> tuple[bytes, bytes] | None:
    """(message group, deduplication id) of a header section that holds these two in this order and nothing else, as all
    but few messages of FIFO queues do; None for any other. A short cut to what `read_headers` says."""
    if section[:3] != _GROUP_FIRST_OF_TWO:
        return None
    try:
        length = section[3]
        if length & 0x81:  # longer than a byte, or negative
            return None
        group_end = 4 + (length >> 1)
        if section[group_end : group_end + 2] != _ID_NEXT:
            return None
        length = section[group_end + 2]
        start = group_end + 3
        if length > 0x7F:
            if section[start] > 0x7F:
                return None
            length = length & 0x7F | section[start] << 7
            start += 1
    except IndexError:
        return None
    if length & 1 or start + (length >> 1) != len(section):
        return None
    return section[4:group_end], section[start:]


def read_headers(
    section: bytes,
) -> tuple[bytes | None, bytes | None, bytes | None, bytes | None, bytes | None, bytes | None, bytes | None]:
    """Contents of the headers that the queue machine understands: (delay in ms, group, deduplication id, source of a
    dead letter, tag, due time, what a release is of), the last of each name, None where there is none.

    Raises RecordError where `section` (see `header_section`) does not parse. Every replica does this for every message
    that has headers: others are stepped over, not copied, and lengths of one byte are read in place.
    """
    size = len(section)
    delay_ms = group = dedup_id = dead_source = tag = due = release = None
    try:
        count, at = decode_varint(section, 0)
        if count < 0 or count > size:
            raise RecordError("negative or impossible header count")
        for _ in range(count):
            name = _OTHER
            if section[at] == _ONE_BYTE_LONG:
                name = section[at + 1]
                at += 2
            else:
                length, at = decode_varint(section, at)
                if length < 0:
                    raise RecordError("negative header name length")
                at += length
            length = section[at]
            if length & 0x81:  # longer than a byte, or negative
                length, at = decode_varint(section, at)
                if length < 0:
                    raise RecordError("negative header length")
            else:
                length >>= 1
                at += 1
            start, at = at, at + length
            if name == _GROUP:
                group = section[start:at]
            elif name == _DEDUP:
                dedup_id = section[start:at]
            elif name == _DELAY_MS:
                delay_ms = section[start:at]
            elif name == _TAG:
                tag = section[start:at]
            elif name == _DUE:
                due = section[start:at]
            elif name == _DEAD_SOURCE:
                dead_source = section[start:at]
            elif name == _RELEASED:
                release = section[start:at]
    except IndexError:
        raise RecordError("the record ends before its last header does") from None
    if at != size:
        raise RecordError("the headers do not end where the record does")
    return delay_ms, group, dedup_id, dead_source, tag, due, release


# Far more than a log ever has.
OFFSET_DIGITS_MAX = 15


def origin_offset(headers: Sequence[tuple[bytes, bytes]], offset: int) -> int:
    """Where a message that lies at `offset` was sent to: a scheduled one moved as it became due. Raises RecordError."""
    for name, content in headers:
        if name == HEADER_RELEASED:
            origin = content.partition(b"/")[0]
            if not origin.isdigit() or len(origin) > OFFSET_DIGITS_MAX:
                raise RecordError("where a scheduled message lay does not parse")
            return int(origin)
    return offset


def _take(data: bytes | memoryview, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if length < 0 or end > len(data):
        raise RecordError("length runs past the end of the record")
    return bytes(data[at:end]), end
