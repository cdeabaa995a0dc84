"""Billed sizes in record keys, their sums, and the records of the usage stream."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage_nodes.log.record_batch import build_batch, read_header, usages_of, verify_batch
from storage_nodes.machines.queue.effects import MeteredHour
from storage_nodes.protocol.records import decode_body, encode_body
from storage_nodes.protocol.usage import (
    MIXED,
    Origin,
    billed_bytes_of,
    moved_key,
    size_field,
    sum_of,
    units_of_all,
    unpack_sum,
    usage_key,
    usage_of,
)
from storage_nodes.protocol.usage_records import NO_QUEUE, queue_of_tag, window_record

# As docs/usage_records.md has them.
GOLDEN_KEY = "000000000000000700079a10"
GOLDEN_WINDOW = (
    "01019aa36f6e6507ac313030303030303030303031c41000000000000000000000000000000001cf000001a19467e800cf00"
    "0001a1949ed680c2cd03e80a919b010100000000000a000100"
)


@pytest.mark.parametrize(("billed", "units"), [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (1 << 20, 16)])
def test_unit_is_64_kib_begun(billed: int, units: int) -> None:
    assert usage_of(encode_body(b"v", usage_key(Origin.PUSH, billed))) == (Origin.PUSH, billed, units)


def test_message_that_says_no_size_is_billed_by_its_record() -> None:
    body = encode_body(b"v" * 70_000)
    assert usage_of(body) == (Origin.CLIENT, len(body), 2)
    other = encode_body(b"v", b"\x09abcd")
    assert usage_of(other) == (Origin.CLIENT, len(other), 1), "no known origin: no usage"


@pytest.mark.parametrize("body", [b"", b"\x0a", b"\x0a\x01\x00\x00\x00\x05"])
def test_body_that_is_no_record_is_billed_all_the_same(body: bytes) -> None:
    assert usage_of(body) == (Origin.CLIENT, len(body), 1)
    assert unpack_sum(sum_of([body])) == (Origin.CLIENT, len(body), 1)


def test_copy_of_a_move_keeps_the_size_that_is_bound_to_it() -> None:
    key = usage_key(Origin.CLIENT, 1_234)
    copy = moved_key(key)
    assert copy is not None and size_field(copy) == size_field(key)
    assert usage_of(encode_body(b"v", copy)) == (Origin.REDRIVE, 1_234, 1)
    assert moved_key(None) is None and moved_key(b"else") == b"else"


messages = st.lists(st.tuples(st.sampled_from(Origin), st.integers(0, 300_000)), min_size=1, max_size=20)


@given(messages)
def test_sums_of_a_batch_are_those_of_its_messages_or_none(sent: list[tuple[Origin, int]]) -> None:
    bodies = [encode_body(b"v", usage_key(origin, billed)) for origin, billed in sent]
    batch = build_batch(5, 1, 1_000, bodies, plain=True, usage=sum_of(bodies))
    header = verify_batch(batch)
    assert header.timestamp_ms == 1_000
    each = usages_of(batch)
    assert [usage[:2] for usage in each] == sent
    origins = {origin for origin, _ in sent}
    if len(origins) > 1:
        assert unpack_sum(header.usage)[0] == MIXED
    else:
        assert unpack_sum(header.usage) == (sent[0][0], sum(one[1] for one in each), sum(one[2] for one in each))


keyed = st.builds(usage_key, st.sampled_from(Origin), st.integers(0, 200_000))
# Records of one origin or several, records without a key, with another one, and bytes that are no record.
any_body = st.one_of(
    st.builds(encode_body, st.binary(max_size=20), keyed),
    st.builds(lambda size: encode_body(b"v" * size), st.sampled_from([0, 1, 1_000, 65_531, 65_532, 70_000])),
    st.builds(encode_body, st.binary(max_size=20), st.binary(min_size=5, max_size=5)),
    st.binary(max_size=8),
)


@given(
    st.one_of(
        st.lists(any_body, min_size=1, max_size=8), st.lists(keyed.map(lambda key: encode_body(b"", key)), min_size=1)
    )
)
@example([encode_body(b"v", usage_key(Origin.CLIENT, 65_535)), encode_body(b"v", usage_key(Origin.CLIENT, 65_536))])
@example([encode_body(b"v" * 65_532), encode_body(b"v" * 65_533)])
@example([b"\x0a\x01\x00\x00\x00\x05", b"\x0a\x01\x00\x00\x00\x05"])
@example([b"\x0a\x09\x00\x00\x00\x05ab", b"\x0a\x09\x00\x00\x00\x05ab"])
def test_sums_of_any_bodies_are_those_of_each(bodies: list[bytes]) -> None:
    each = list(map(usage_of, bodies))
    origin, billed_bytes, units = unpack_sum(sum_of(bodies))
    if len({usage[0] for usage in each}) > 1:
        assert origin == MIXED
    else:
        assert (origin, billed_bytes, units) == (
            each[0][0], sum(usage[1] for usage in each), sum(usage[2] for usage in each)
        )  # fmt: skip


@given(st.one_of(st.lists(any_body, max_size=8), st.lists(keyed.map(lambda key: encode_body(b"", key)))))
def test_sizes_of_many_are_those_of_each(bodies: list[bytes]) -> None:
    sizes = [usage_of(body)[1] for body in bodies]
    assert billed_bytes_of(bodies) == sizes
    assert units_of_all(sizes) == sum(usage_of(body)[2] for body in bodies)


def test_sizes_of_many_are_read_where_all_say_them() -> None:
    sizes = [0, 1, 65_537, (1 << 32) - 1]
    bodies = [encode_body(b"value", usage_key(origin, size)) for size, origin in zip(sizes, Origin, strict=False)]
    assert billed_bytes_of(bodies) == sizes
    assert billed_bytes_of([*bodies, b"\x00" * 9]) == [*sizes, 9]


def test_sums_too_large_for_the_header_are_read_message_by_message() -> None:
    bodies = [encode_body(b"v", usage_key(Origin.CLIENT, (1 << 32) - 1))] * 17
    assert unpack_sum(sum_of(bodies))[0] == MIXED


def test_batch_without_usage_says_so() -> None:
    assert read_header(build_batch(0, 1, 1_000, [encode_body(b"v")])).usage == -1


def test_window_record_has_the_golden_bytes() -> None:
    hour_ms = 498_192 * 3_600_000
    window = MeteredHour(hour_ms, hour_ms + 3_600_000, 1_000, 10, ((1, 1, 0, 0, 0, 0, 0, 10, 0, 1, 0),))
    record = decode_body(window_record("one", 7, "100000000001", bytes(15) + b"\x01", window))
    assert record.key is not None and record.key.hex() == GOLDEN_KEY
    assert record.value.hex() == GOLDEN_WINDOW


def test_queue_is_named_by_the_tag() -> None:
    uuid = bytes(range(16))
    assert queue_of_tag(f"queue:{uuid.hex()}:3") == uuid
    assert queue_of_tag("queue:x:0") == queue_of_tag("bench") == NO_QUEUE
