"""Record bodies and record batches, byte for byte against another implementation of the Kafka v2 layout (aiokafka)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import google_crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage_nodes.log.record_batch import (
    CONTROL_QUEUE,
    HEADER_BYTES,
    BatchError,
    body_spans,
    build_batch,
    control_key,
    control_kind,
    iterate_bodies,
    read_header,
    records_to_fold,
    verify_batch,
)
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_DUE,
    HEADER_GROUP,
    HEADER_RELEASED,
    HEADER_TAG,
    RecordError,
    decode_body,
    decode_varint,
    encode_body,
    encode_plain_bodies,
    encode_varint,
    group_and_id,
    read_headers,
    section_of,
)

Message = tuple[bytes | None, bytes, list[tuple[bytes, bytes]]]

# In the order in which `read_headers` answers.
KNOWN_NAMES = (
    HEADER_DELAY_MS,
    HEADER_GROUP,
    HEADER_DEDUP,
    HEADER_DEAD_SOURCE,
    HEADER_TAG,
    HEADER_DUE,
    HEADER_RELEASED,
)
header_names = st.sampled_from(KNOWN_NAMES) | st.text(st.characters(codec="ascii"), max_size=12).map(str.encode)
messages = st.tuples(
    st.none() | st.binary(max_size=200),
    st.binary(max_size=300),
    st.lists(st.tuples(header_names, st.binary(max_size=80)), max_size=4),
)
TIMES_MS = st.integers(0, 2**45)
INT64 = st.integers(-(2**63), 2**63 - 1)


def kafka_batch(messages: list[Message], timestamp_ms: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000_000)
    for offset, (key, value, headers) in enumerate(messages):
        named = [(name.decode(), content) for name, content in headers]
        assert builder.append(offset, timestamp_ms, key, value, named) is not None
    return bytes(builder.build())


def bodies_of(messages: list[Message]) -> list[bytes]:
    return [encode_body(value, key, headers) for key, value, headers in messages]


@settings(max_examples=150, deadline=None)
@given(st.lists(messages, min_size=1, max_size=70), TIMES_MS)
@example([(None, b"x" * 5_000, [])] * 70, 1_700_000_000_000)
def test_batch_equals_the_other_builders_but_for_place_and_attributes(messages: list[Message], time_ms: int) -> None:
    ours = build_batch(0, 0, time_ms, bodies_of(messages), plain=True)
    theirs = bytearray(kafka_batch(messages, time_ms))
    # What a broker sets: the epoch it appends in, and attributes (append time, plain) under the checksum.
    struct.pack_into(">i", theirs, 12, 0)
    struct.pack_into(">h", theirs, 21, 0x108)
    struct.pack_into(">I", theirs, 17, google_crc32c.value(bytes(theirs[21:])))
    assert ours == bytes(theirs)


@settings(max_examples=100, deadline=None)
@given(st.lists(messages, min_size=1, max_size=20), TIMES_MS, st.integers(0, 2**60), st.integers(0, 2**31 - 1))
def test_batch_is_read_by_the_other_reader(messages: list[Message], time_ms: int, base: int, epoch: int) -> None:
    ours = build_batch(base, epoch, time_ms, bodies_of(messages))
    theirs = DefaultRecordBatch(ours)
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.magic, theirs.is_control_batch) == (base, 2, False)
    assert (theirs.timestamp_type, theirs.next_offset) == (1, base + len(messages))
    read = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs]
    assert read == [
        (base + i, time_ms, key, value, [(name.decode(), content) for name, content in headers])
        for i, (key, value, headers) in enumerate(messages)
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(messages, min_size=1, max_size=20), TIMES_MS)
def test_other_builders_batch_is_read_here(messages: list[Message], time_ms: int) -> None:
    theirs = kafka_batch(messages, time_ms)
    header = verify_batch(theirs)
    assert (header.record_count, header.timestamp_ms, header.is_control) == (len(messages), time_ms, False)
    decoded = [decode_body(body) for _, body in iterate_bodies(theirs)]
    assert [(r.key, r.value, list(r.headers)) for r in decoded] == messages


def test_control_batch_is_one_for_the_other_reader() -> None:
    batch = build_batch(5, 1, 9, [encode_body(b"command", control_key(CONTROL_QUEUE))], control=True)
    theirs = DefaultRecordBatch(batch)
    assert theirs.is_control_batch and read_header(batch).is_control and not read_header(batch).is_plain
    (record,) = theirs
    assert record.key == b"\x00\x00\x00\x11" and control_kind(record.key) == CONTROL_QUEUE


@pytest.mark.parametrize("size", [0, 1, 59, 60, 61, 4_091, 4_092, 4_093, 4_094, 5_000])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_batch_of_any_size_has_each_record_behind_its_own_length(count: int, size: int) -> None:
    bodies = [encode_body(b"a")] * (count - 1) + [b"b" * size]
    records = b""
    for delta, body in enumerate(bodies):
        lead = b"\x00\x00" + encode_varint(delta)
        records += encode_varint(len(lead) + len(body)) + lead + body
    for batch in (build_batch(7, 1, 1_000, bodies), build_batch(7, 1, 1_000, tuple(bodies))):
        assert verify_batch(batch).record_count == count
        assert batch[HEADER_BYTES:] == records


def test_batch_has_its_golden_bytes() -> None:
    batch = build_batch(1_000, 7, 1_700_000_000_000, [encode_body(b"hi"), encode_body(b"", b"k", [(b"d", b"50")])])
    assert batch.hex() == (
        "00000000000003e80000004700000007025259a5a80008000000010000018bcfe568000000018bcfe56800ffff"
        "ffffffffffffffffffffffff0000000210000000010468690018000002026b00020264043530"
    )


@given(INT64)
@example(-(2**63))
@example(2**63 - 1)
@example(63)
@example(-64)
def test_varint_comes_back(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded + b"\xff", 0) == (value, len(encoded))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\x80" * 10 + b"\x00"])
def test_varint_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        decode_varint(data, 0)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
@example(b"\x01\x00\xfe\xff\xff\xff\x0f")  # a header count of two thousand million
@example(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")
def test_arbitrary_bytes_as_a_body_raise_nothing_but_record_error(data: bytes) -> None:
    try:
        record = decode_body(data)
    except RecordError:
        return
    assert decode_body(encode_body(record.value, record.key, record.headers)) == record


@settings(max_examples=200, deadline=None)
@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_batch_with_any_one_byte_changed_under_the_checksum_is_refused(
    messages: list[Message], data: st.DataObject
) -> None:
    batch = bytearray(build_batch(3, 1, 5, bodies_of(messages)))
    at = data.draw(st.integers(16, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BatchError):
        verify_batch(bytes(batch))


@settings(max_examples=200, deadline=None)
@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_records_of_a_damaged_batch_raise_nothing_but_batch_error(messages: list[Message], data: st.DataObject) -> None:
    batch = bytearray(build_batch(3, 1, 5, bodies_of(messages)))
    for _ in range(3):
        at = data.draw(st.integers(HEADER_BYTES - 4, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(batch)))
    for damaged in (bytes(batch), bytes(batch[:cut])):
        try:
            list(iterate_bodies(damaged))
        except BatchError:
            continue


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_control_key_that_is_none_is_refused(key: bytes | None) -> None:
    with pytest.raises(BatchError):
        control_kind(key)


def known_headers(headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes | None, ...]:
    last = dict(headers)
    return tuple(last.get(name) for name in KNOWN_NAMES)


def headers_or_refusal(read: object, body: bytes) -> object:
    try:
        return read(body)  # type: ignore[operator]
    except RecordError:
        return RecordError


@settings(max_examples=400, deadline=None)
@given(messages, st.lists(st.tuples(st.integers(0, 20), st.integers(0, 255)), max_size=2), st.integers(0, 5))
def test_headers_read_alone_are_those_of_the_whole_body_or_both_are_refused(
    message: Message, changes: list[tuple[int, int]], cut: int
) -> None:
    value, key, headers = message[1], message[0], message[2]
    body = bytearray(encode_body(value, key, headers))
    for at, byte in changes:
        body[at % len(body)] = byte
    damaged = bytes(body[: len(body) - cut])
    expected = headers_or_refusal(lambda body: known_headers(decode_body(body).headers), damaged)
    assert headers_or_refusal(lambda body: read_headers(section_of(body)), damaged) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"\x01\x00\x04\x05\x00\x06\x01\x80\x81",  # a header name of -3 bytes: its content would stand before it
        b"\x01\x00\x04\x04\x00\x02\x03\x00",  # a content of -2 bytes
        b"\x01\x83\x80\x00",  # a value of -2 bytes
        b"\x01\x01\x00",  # of -1 bytes: a key may have that length, a value not
    ],
)
def test_headers_of_a_body_with_a_negative_length_are_refused(body: bytes) -> None:
    for read in (decode_body, lambda body: read_headers(section_of(body))):
        with pytest.raises(RecordError):
            read(body)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from((HEADER_GROUP, HEADER_DEDUP, HEADER_TAG)), st.binary(max_size=150)), max_size=3),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2),
    st.integers(0, 4),
)
def test_the_short_cut_for_group_and_id_says_what_reading_all_headers_says(
    headers: list[tuple[bytes, bytes]], changes: list[tuple[int, int]], cut: int
) -> None:
    section = bytearray(section_of(encode_body(b"", None, headers)))
    for at, byte in changes:
        section[at % len(section)] = byte
    damaged = bytes(section[: len(section) - cut])
    found = group_and_id(damaged)
    if found is not None:
        assert read_headers(damaged) == (None, *found, None, None, None, None)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 128])
def test_ids_of_every_length_take_the_short_cut(length: int) -> None:
    headers = [(HEADER_GROUP, b"group"), (HEADER_DEDUP, b"i" * length)]
    assert group_and_id(section_of(encode_body(b"value", None, headers))) == (b"group", b"i" * length)


@pytest.mark.parametrize(
    "section",
    [
        b"\x04\x02g\x02a\x02u\x82\x80" + b"i" * 8_193,  # a length of three bytes, as long as two of them say
        b"\x04\x02g\x02a\x02u\x03i",  # -2 bytes
        b"\x04\x02g\x03a\x02u\x02i",
        b"\x06\x02g\x02a\x02u\x02i\x02t\x02t",  # a third header
        b"\x04\x02g\x02a\x02u\x02ii",  # bytes left over
        b"\x04\x02g\x02a\x02u",
        b"\x04\x02g",
        b"\x04\x02u\x02i\x02g\x02a",  # the other way round
        b"",
    ],
)
def test_what_is_not_group_and_id_alone_does_not_take_the_short_cut(section: bytes) -> None:
    assert group_and_id(section) is None


@settings(max_examples=100, deadline=None)
@given(st.lists(messages, min_size=1, max_size=140))
def test_spans_are_where_the_bodies_stand(messages: list[Message]) -> None:
    bodies = bodies_of(messages)
    batch = build_batch(7, 0, 1, bodies)
    starts, ends = body_spans(batch)
    assert [batch[start:end] for start, end in zip(starts, ends, strict=True)] == bodies
    assert records_to_fold(batch) == [(at, section_of(body)) for at, body in iterate_bodies(batch)]
    with pytest.raises(BatchError):
        body_spans(batch[:-1])


@given(st.lists(st.tuples(st.binary(max_size=6_000), st.binary(min_size=5, max_size=5)), min_size=1, max_size=5))
@example([(b"x" * 4_095, b"12345"), (b"x" * 4_096, b"12345"), (b"", b"12345")])
@settings(deadline=None)
def test_bodies_of_a_batch_are_those_of_its_messages(messages: list[tuple[bytes, bytes]]) -> None:
    values, keys = zip(*messages, strict=True)
    assert encode_plain_bodies(values, keys) == [encode_body(value, key) for value, key in messages]
