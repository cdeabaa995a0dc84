"""The codec of docs/usage_records.md: golden bytes, strict reading."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_nodes.protocol.usage import Origin
from storage_nodes.protocol.usage_records import window_key
from tests.workers.spark_jobs.frames import QUEUE, counters, encode_record, hour, window
from workers.spark_jobs.limits import HOUR_MS
from workers.spark_jobs.schemas.frames import COUNTERS
from workers.spark_jobs.schemas.usage_record import (
    OriginCounters,
    RequestReport,
    RequestRow,
    UsageRecordError,
    UsageWindow,
    decode_record,
)

# As docs/usage_records.md has them: what the storage nodes write must be these bytes.
GOLDEN_KEY = "000000000000000700079a10"
GOLDEN_WINDOW = (
    "01019aa36f6e6507ac313030303030303030303031c41000000000000000000000000000000001cf000001a19467e800cf00"
    "0001a1949ed680c2cd03e80a919b010100000000000a000100"
)


def test_golden_bytes_of_a_window() -> None:
    one = window(stored_byte_ms=1_000, stored_bytes=10)
    assert window_key(one.partition, one.hour_ms).hex() == GOLDEN_KEY
    assert encode_record(one).hex() == GOLDEN_WINDOW
    assert decode_record(bytes.fromhex(GOLDEN_WINDOW)) == one


def test_counters_stand_in_one_order_everywhere() -> None:
    assert OriginCounters.__struct_fields__ == ("origin", *COUNTERS)


def test_request_report_is_read_as_it_was_written() -> None:
    report = RequestReport(b"f" * 16, 3, hour(2), [RequestRow("1" * 12, QUEUE, "AKPSX", 9, 2, 1)])
    assert decode_record(encode_record(report)) == report


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "malformed"),
        (b"\x01", "malformed"),
        (b"\x02\x01" + bytes.fromhex(GOLDEN_WINDOW)[2:], "unknown_version"),
        (b"\x01\x09" + bytes.fromhex(GOLDEN_WINDOW)[2:], "unknown_kind"),
        (bytes.fromhex(GOLDEN_WINDOW)[:-1], "malformed"),
        (bytes.fromhex(GOLDEN_WINDOW) + b"\x00", "malformed"),
        (b"\x01\x01" + msgspec.msgpack.encode(["one", "7"]), "malformed"),
    ],
)
def test_other_bytes_are_refused_with_a_reason(value: bytes, reason: str) -> None:
    with pytest.raises(UsageRecordError) as caught:
        decode_record(value)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "record",
    [
        window(partition=1 << 63),
        window(hour_ms=1 << 63),
        window(stored_bytes=(1 << 64) - 1),
        window(origins=[counters(sent=1 << 63)]),
        window(origins=[msgspec.structs.replace(counters(), origin=1 << 31)]),
        RequestReport(b"f" * 16, 1 << 63, hour(0), []),
        RequestReport(b"f" * 16, 1, hour(0), [RequestRow("1" * 12, QUEUE, "AKPSX", 1 << 63, 0, 0)]),
    ],
)
def test_number_that_no_column_holds_is_no_record(record: UsageWindow | RequestReport) -> None:
    """One such record would otherwise end every round."""
    with pytest.raises(UsageRecordError) as caught:
        decode_record(encode_record(record))
    assert caught.value.reason == "malformed"


@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_refused(value: bytes) -> None:
    for start in (b"", b"\x01\x01", b"\x01\x02"):
        try:
            record = decode_record(start + value)
        except UsageRecordError:
            continue
        assert decode_record(encode_record(record)) == record


def test_key_tells_partition_and_hour_apart() -> None:
    keys = {window_key(partition, at * HOUR_MS) for partition in (0, 1, 2**40) for at in (0, 1, 500_000)}
    assert len(keys) == 9 and all(len(key) == 12 for key in keys)


def test_origins_have_their_numbers() -> None:
    assert {origin.name: int(origin) for origin in Origin} == {
        "CLIENT": 1, "PUSH": 2, "DESK": 3, "REDRIVE": 4, "CRON": 5,
    }  # fmt: skip
    assert counters().origin == Origin.CLIENT
