"""Records and frames for the tests of the usage pipeline."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from storage_nodes.log.record_batch import build_batch
from storage_nodes.protocol.records import encode_body
from storage_nodes.protocol.usage import Origin
from storage_nodes.protocol.usage_records import KIND_WINDOW, VERSION
from workers.spark_jobs.java import missing_parts
from workers.spark_jobs.limits import HOUR_MS
from workers.spark_jobs.schemas.frames import COUNTERS, STREAM_BATCHES, WINDOWS
from workers.spark_jobs.schemas.usage_record import KIND_REQUESTS, OriginCounters, RequestReport, UsageWindow
from workers.spark_jobs.transforms.decoding import decode_records

# 2026-11-01 00:00 UTC.
MONTH_MS = 1_793_491_200_000
ACCOUNT = "100000000001"
OTHER_ACCOUNT = "100000000002"
QUEUE = uuid.UUID(int=1).bytes
OTHER_QUEUE = uuid.UUID(int=2).bytes


@functools.cache
def _missing() -> list[str]:
    return missing_parts()


def java_or_skip() -> None:
    if _missing():
        pytest.skip("; ".join(_missing()))


def hour(number: int) -> int:
    return MONTH_MS + number * HOUR_MS


def counters(origin: Origin = Origin.CLIENT, **figures: int) -> OriginCounters:
    return OriginCounters(int(origin), *[figures.get(name, 0) for name in COUNTERS])


def window(at: int = 0, partition: int = 7, **fields: Any) -> UsageWindow:
    """The window of hour `at`: one message of 10 bytes sent, nothing stored."""
    base = UsageWindow(
        cluster="one",
        partition=partition,
        account_id=ACCOUNT,
        queue_uuid=QUEUE,
        hour_ms=hour(at),
        until_ms=fields.pop("until_ms", hour(at) + HOUR_MS),
        final=False,
        stored_byte_ms=0,
        stored_bytes=0,
        origins=[counters(sent=1, sent_bytes=10, sent_units=1)],
    )
    return msgspec.structs.replace(base, **fields)


def encode_record(record: UsageWindow | RequestReport) -> bytes:
    """The value of the stream record; that of a window is the one that storage nodes write (`window_record`)."""
    kind = KIND_WINDOW if isinstance(record, UsageWindow) else KIND_REQUESTS
    return bytes((VERSION, kind)) + msgspec.msgpack.encode(record)


def window_rows(windows: list[UsageWindow]) -> list[list[Any]]:
    """Rows of WINDOWS, as the decoder makes them."""
    rows = decode_records(0, enumerate(encode_record(one) for one in windows)).windows
    return [list(row) for row in zip(*[rows.column(name).to_pylist() for name in WINDOWS.fieldNames()], strict=True)]


def windows_frame(spark: SparkSession, windows: list[UsageWindow]) -> DataFrame:
    return spark.createDataFrame(window_rows(windows), WINDOWS)


def batches_frame(spark: SparkSession, records: Sequence[tuple[int, int, bytes]]) -> DataFrame:
    """STREAM_BATCHES of (stream partition, offset, value), a batch each."""
    rows = [
        (partition, offset, offset + 1, build_batch(offset, 1, 0, [encode_body(value)]))
        for partition, offset, value in records
    ]
    return spark.createDataFrame(rows, STREAM_BATCHES)


def figures(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Rows of some columns, sorted."""
    return sorted(tuple(row) for row in frame.select(*names).collect())


def one_row(frame: DataFrame) -> Row:
    rows = frame.collect()
    assert len(rows) == 1, rows
    return rows[0]
