"""Stream records to rows of windows, of requests, and of what could not be read. Runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from storage_nodes.protocol.usage import Origin
from storage_nodes.protocol.usage_records import KIND_WINDOW
from workers.spark_jobs.schemas.contract import conform
from workers.spark_jobs.schemas.frames import (
    COUNTERS,
    DECODED,
    QUARANTINE,
    REQUESTS,
    STREAM_RECORDS,
    WINDOWS,
)
from workers.spark_jobs.schemas.usage_record import (
    KIND_REQUESTS,
    OriginCounters,
    RequestReport,
    UsageRecordError,
    UsageWindow,
    decode_record,
)

KIND_QUARANTINE = 0
_COLUMNS = DECODED.fieldNames()
_AT = {name: index for index, name in enumerate(_COLUMNS)}
_NO_OPERATIONS = OriginCounters(int(Origin.CLIENT), *([0] * len(COUNTERS)))
_EMPTY: list[Any] = [None] * len(_COLUMNS)


def decoded(records: DataFrame) -> DataFrame:
    """STREAM_RECORDS to DECODED: nothing is left out, what cannot be read becomes a row of quarantine."""
    rows = conform(records, STREAM_RECORDS, "records of the usage stream").mapInArrow(_decode_batches, DECODED)
    return conform(rows, DECODED, "decoded records")


def windows_of(rows: DataFrame) -> DataFrame:
    return conform(rows.where(F.col("kind") == KIND_WINDOW), WINDOWS, "windows")


def requests_of(rows: DataFrame) -> DataFrame:
    return conform(rows.where(F.col("kind") == KIND_REQUESTS), REQUESTS, "requests")


def unreadable_of(rows: DataFrame) -> DataFrame:
    return conform(rows.where(F.col("kind") == KIND_QUARANTINE), QUARANTINE, "quarantine")


def rows_of(partition: int, offset: int, value: bytes) -> list[list[Any]]:
    """The rows of one stream record."""
    try:
        record = decode_record(value)
    except UsageRecordError as error:
        row = _EMPTY.copy()
        row[_AT["kind"]], row[_AT["reason"]], row[_AT["detail"]] = KIND_QUARANTINE, error.reason, str(error)
        row[_AT["value"]] = value
        return [_placed(row, partition, offset)]
    rows = _window_rows(record) if isinstance(record, UsageWindow) else _request_rows(record)
    # Kept beside the row until `checks` has judged it: a refused one goes to quarantine with its place.
    return [_placed(row, partition, offset) for row in rows]


def _window_rows(window: UsageWindow) -> Iterator[list[Any]]:
    """A row per origin; the one of CLIENT is always there, and has what is stored."""
    client = int(Origin.CLIENT)
    origins = window.origins
    if all(counters.origin != client for counters in origins):
        origins = [_NO_OPERATIONS, *origins]
    for counters in origins:
        stored = counters.origin == client
        yield [
            KIND_WINDOW,
            window.cluster,
            window.partition,
            window.account_id,
            window.queue_uuid,
            window.hour_ms,
            window.until_ms,
            window.final,
            window.stored_byte_ms if stored else 0,
            window.stored_bytes if stored else 0,
            counters.origin,
            counters.sent,
            counters.delivered,
            counters.deleted,
            counters.moved,
            counters.dead_lettered,
            counters.scheduled,
            counters.sent_bytes,
            counters.delivered_bytes,
            counters.sent_units,
            counters.delivered_units,
            *_EMPTY[len(WINDOWS.fields) + 1 :],
        ]


def _request_rows(report: RequestReport) -> Iterator[list[Any]]:
    for one in report.rows:
        row = _EMPTY.copy()
        row[_AT["kind"]] = KIND_REQUESTS
        row[_AT["front_end"]], row[_AT["sequence"]], row[_AT["hour_ms"]] = (
            report.front_end,
            report.sequence,
            report.hour_ms,
        )
        row[_AT["account_id"]], row[_AT["queue_uuid"]] = one.account_id, one.queue_uuid
        row[_AT["access_key_id"]], row[_AT["requests"]] = one.access_key_id, one.requests
        row[_AT["empty_receives"]], row[_AT["throttled"]] = one.empty_receives, one.throttled
        yield row


def _placed(row: list[Any], partition: int, offset: int) -> list[Any]:
    row[_AT["stream_partition"]], row[_AT["stream_offset"]] = partition, offset
    return row


def _decode_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(DECODED)
    for batch in batches:
        taken = batch.to_pydict()
        rows = [
            row
            for place in zip(taken["partition"], taken["offset"], taken["value"], strict=True)
            for row in rows_of(*place)
        ]
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in _COLUMNS]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
