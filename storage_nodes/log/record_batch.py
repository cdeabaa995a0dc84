"""Record batches: the entries of every partition log, in the Kafka record-batch v2 layout.

    offset  size  field                    big-endian; signed
         0     8  base offset              offset of the first record
         8     4  batch length             bytes after this field
        12     4  partition leader epoch
        16     1  magic                    2
        17     4  CRC-32C                  of everything from `attributes` to the end (unsigned)
        21     2  attributes               bit 3 timestamps are the leader's append time (always set here)
                                           bit 5 control batch: machine commands, not messages
                                           bit 8 plain: no record carries a header that a machine must look at
                                           bit 9 control batch that holds one configuration of the Raft group
                                           bit 10 metered: the base timestamp holds what its messages sum up to
        23     4  last offset delta        records - 1
        27     8  base timestamp           as max timestamp; of a metered batch the sums of `protocol/usage.py`: with
                                           append times, all records have the max timestamp, and nobody reads this
        35     8  max timestamp            ms since the Unix epoch
        43     8  producer id              -1 = none; see `storage_nodes/machines/producers.py`
        51     2  producer epoch           -1 = none
        53     4  base sequence            -1 = none; of the first record, the others count on from it
        57     4  record count
        61        records, each:
                    varint length of what follows, int8 attributes 0, varint timestamp delta 0,
                    varint offset delta, record body (`storage_nodes/protocol/records.py`)

The CRC leaves out base offset and epoch, as Kafka's does; the WAL and the segments put their own checksum over
the whole entry together with its partition (docs/storage.md), so a valid batch in the wrong place is caught too.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import google_crc32c

from storage_nodes.protocol.configuration import (
    Configuration,
    ConfigurationError,
    decode_configuration,
    encode_configuration,
)
from storage_nodes.protocol.records import (
    LENGTHS,
    RecordError,
    decode_body,
    decode_varint,
    encode_body,
    encode_varint,
    header_section,
)
from storage_nodes.protocol.usage import Usage, usage_of

HEADER_BYTES = 61
MAGIC = 2
ATTRIBUTE_APPEND_TIME = 0x08
ATTRIBUTE_CONTROL = 0x20
ATTRIBUTE_PLAIN = 0x100
ATTRIBUTE_CONFIGURATION = 0x200
ATTRIBUTE_METERED = 0x400
_ATTRIBUTES_KNOWN = (
    ATTRIBUTE_APPEND_TIME | ATTRIBUTE_CONTROL | ATTRIBUTE_PLAIN | ATTRIBUTE_CONFIGURATION | ATTRIBUTE_METERED
)
# A batch with one of these means something that this version does not know.
ATTRIBUTES_UNKNOWN = 0xFFFF & ~_ATTRIBUTES_KNOWN

# Control record keys are (int16 version, int16 type), as in Kafka. Types are on disk: never reuse one.
CONTROL_EPOCH_START = 16
CONTROL_QUEUE = 17
CONTROL_CLUSTER = 18
CONTROL_CONFIGURATION = 19
CONTROL_STREAM = 20

# The length field counts what comes after it.
LENGTH_FIELD_END = 12

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
_BASE_AND_DELTA = struct.Struct(">q15xi")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CHECKED_AT = 21
assert _HEADER.size == HEADER_BYTES
# All fields of the header of a batch that is known to be one, in the order of the drawing above.
raw_header = _HEADER.unpack_from

# Producer id, producer epoch, sequence number of the first record.
Producer = tuple[int, int, int]
NO_PRODUCER: Producer = (-1, -1, -1)

# Everything between a record's length and its body for the first 64 records of a batch: attributes, timestamp
# delta, offset delta. One lookup instead of a varint a record.
_LEADS = [b"\x00\x00" + encode_varint(delta) for delta in range(4_096)]
_SHORT_LEADS = 64
_SHORT_LEAD_BYTES = len(_LEADS[0])
# The length of a record, encoded, by that of its body: behind a lead of the first ones, and of all others.
_SHORT_LENGTHS = LENGTHS[_SHORT_LEAD_BYTES:]
_LONG_LENGTHS = LENGTHS[_SHORT_LEAD_BYTES + 1 :]
assert {len(lead) for lead in _LEADS[_SHORT_LEADS:]} == {_SHORT_LEAD_BYTES + 1}

# Half the cost of calling a named tuple; every entry takes some of them.
_new = tuple.__new__


class BatchHeader(NamedTuple):
    """The fixed part of a batch. `last_offset` is inclusive; `end_offset` is the base of the next batch."""

    base_offset: int
    length_bytes: int
    epoch: int
    attributes: int
    last_offset: int
    timestamp_ms: int
    record_count: int
    # Who sent the records, and the sequence number of the first; see machines/producers.py. -1 = nobody in particular.
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    # Packed sums of what is billed (protocol/usage.py); -1 = the batch says none.
    usage: int = -1

    @property
    def end_offset(self) -> int:
        return self.last_offset + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & ATTRIBUTE_CONTROL)

    @property
    def is_plain(self) -> bool:
        return bool(self.attributes & ATTRIBUTE_PLAIN)


class BatchError(ValueError):
    """Bytes that are not one whole, valid record batch."""


def build_batch(
    base_offset: int,
    epoch: int,
    timestamp_ms: int,
    bodies: Sequence[bytes],
    *,
    control: bool = False,
    plain: bool = False,
    configuration: bool = False,
    producer: Producer = NO_PRODUCER,
    usage: int = -1,
) -> bytes:
    """One batch holding `bodies` at offsets base_offset, base_offset + 1, ...

    `timestamp_ms` is the leader's append time. `plain` promises that no body has a header, `configuration` that the
    only one is `configuration_body`. `producer` is (id, epoch, sequence number of the first record), `usage` what is
    billed of the records, -1 where nothing is.
    """
    assert bodies, "a batch holds at least one record"
    attributes = ATTRIBUTE_APPEND_TIME
    if control:
        attributes |= ATTRIBUTE_CONTROL
    if plain:
        attributes |= ATTRIBUTE_PLAIN
    if configuration:
        attributes |= ATTRIBUTE_CONFIGURATION
    base_ms = timestamp_ms
    if usage >= 0:
        attributes |= ATTRIBUTE_METERED
        base_ms = usage
    count = len(bodies)
    parts: list[bytes] = [b""] * (3 * count + 1)
    parts[0] = _CHECKED.pack(attributes, count - 1, base_ms, timestamp_ms, *producer, count)
    parts[1::3] = _record_lengths(bodies)
    parts[2::3] = _LEADS[:count]
    parts[3::3] = bodies
    checked = b"".join(parts)
    prefix = _PREFIX.pack(base_offset, len(checked) + 9, epoch, MAGIC, google_crc32c.value(checked))
    return prefix + checked


def _record_lengths(bodies: Sequence[bytes]) -> list[bytes]:
    """Of each record, encoded: what stands between its length and its body, and the body."""
    short, long = bodies[:_SHORT_LEADS], bodies[_SHORT_LEADS:]
    try:
        lengths = list(map(_SHORT_LENGTHS.__getitem__, map(len, short)))
        if long:
            lengths += map(_LONG_LENGTHS.__getitem__, map(len, long))
    except IndexError:  # a body is larger than what the tables hold
        return [encode_varint(len(_LEADS[delta]) + len(body)) for delta, body in enumerate(bodies)]
    return lengths


def read_header(batch: bytes | memoryview, at: int = 0) -> BatchHeader:
    """The header of the batch that starts at `at`. Raises BatchError if it cannot be one; no checksum is verified."""
    if len(batch) - at < HEADER_BYTES:
        raise BatchError("shorter than a batch header")
    base, length, epoch, magic, _crc, attributes, last_delta, base_ms, max_ms, pid, pep, seq, count = (
        _HEADER.unpack_from(batch, at)
    )
    if magic != MAGIC or length < HEADER_BYTES - LENGTH_FIELD_END or count != last_delta + 1 or count < 1 or base < 0:
        raise BatchError("not a version 2 record batch")
    usage = base_ms if attributes & ATTRIBUTE_METERED else -1
    return _new(
        BatchHeader,
        (base, length + LENGTH_FIELD_END, epoch, attributes, base + last_delta, max_ms, count, pid, pep, seq, usage),
    )


def end_of_batch(batch: bytes) -> int:
    """The end offset of what is known to be a batch."""
    base, last_delta = _BASE_AND_DELTA.unpack_from(batch)
    return int(base + last_delta + 1)


def verify_batch(batch: bytes) -> BatchHeader:
    """The header of `batch` after its length and CRC-32C were checked. Raises BatchError."""
    header = read_header(batch)
    if header.length_bytes != len(batch):
        raise BatchError(f"batch says {header.length_bytes} bytes, {len(batch)} are there")
    (crc,) = _CRC.unpack_from(batch, _CRC_AT)
    if google_crc32c.value(batch[_CHECKED_AT:]) != crc:
        raise BatchError(f"checksum of the batch at offset {header.base_offset} does not match")
    return header


def iterate_bodies(batch: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, record body) of every record. Raises BatchError on a malformed record."""
    header = read_header(batch)
    base, size = header.base_offset, len(batch)
    at = HEADER_BYTES
    try:
        for _ in range(header.record_count):
            length, at = decode_varint(batch, at)
            end = at + length
            if length < 3 or end > size:
                raise BatchError("a record runs past the end of its batch")
            body_at = at + 2 if batch[at + 1] == 0 else decode_varint(batch, at + 1)[1]
            delta = batch[body_at]
            if delta & 0x81:  # longer than a byte, or negative
                delta, body_at = decode_varint(batch, body_at)
            else:
                delta, body_at = delta >> 1, body_at + 1
            yield base + delta, batch[body_at:end]
            at = end
    except RecordError as error:
        raise BatchError(str(error)) from error
    if at != header.length_bytes:
        raise BatchError("bytes left over after the last record")


def body_spans(batch: bytes) -> tuple[array[int], array[int]]:
    """Where the record bodies of a batch of ours begin and end: a quarter of the work of taking them all out.

    Raises BatchError on a malformed batch.
    """
    starts, ends = array("i"), array("i")
    at = HEADER_BYTES
    try:
        for delta in range(read_header(batch).record_count):
            length = batch[at]
            if length < 0x80:
                at += 1
            elif batch[at + 1] < 0x80:
                length = length & 0x7F | batch[at + 1] << 7
                at += 2
            else:
                length, at = decode_varint(batch, at)
                length <<= 1
            starts.append(at + (_SHORT_LEAD_BYTES if delta < _SHORT_LEADS else len(_LEADS[delta])))
            at += length >> 1
            ends.append(at)
    except (RecordError, IndexError) as error:
        raise BatchError(str(error)) from error
    if at != len(batch):
        raise BatchError("the records do not end where the batch does")
    return starts, ends


def records_to_fold(batch: bytes) -> list[tuple[int, bytes]]:
    """(offset, what the queue machine looks at) of every record of a batch of ours: the whole body of a command, the
    header section of a message (`protocol/records.py`).

    Raises BatchError on a malformed batch.
    """
    header = read_header(batch)
    if header.is_control:
        return list(iterate_bodies(batch))
    sections = map(header_section, repeat(batch), *body_spans(batch))
    return list(enumerate(sections, header.base_offset))


def usages_of(batch: bytes) -> list[Usage]:
    """What each message of a batch of ours is billed for. Raises BatchError on a malformed batch."""
    return [usage_of(batch[start:end]) for start, end in zip(*body_spans(batch), strict=True)]


def configuration_body(configuration: Configuration) -> bytes:
    return encode_body(encode_configuration(configuration), control_key(CONTROL_CONFIGURATION))


def read_configuration(batch: bytes) -> Configuration:
    """The configuration in a batch whose attributes say that it holds one. Raises BatchError."""
    records = [decode_body(body) for _offset, body in iterate_bodies(batch)]
    if len(records) != 1 or control_kind(records[0].key) != CONTROL_CONFIGURATION:
        raise BatchError("a configuration batch that holds something else")
    try:
        return decode_configuration(records[0].value)
    except ConfigurationError as error:
        raise BatchError(str(error)) from error


def control_key(kind: int) -> bytes:
    """The record key that says what a control record's value is."""
    return struct.pack(">hh", 0, kind)


def control_kind(key: bytes | None) -> int:
    """The inverse of `control_key`. Raises BatchError."""
    if key is None or len(key) != 4:
        raise BatchError("control record without a control key")
    return int(struct.unpack(">hh", key)[1])
