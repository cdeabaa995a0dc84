"""Stream records to rows of windows, of requests, and of what could not be read: column by column, in Spark's Python
workers.

Each row keeps the place of its record in the stream, for `checks` may still refuse it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple
from pyspark.sql.pandas.types import to_arrow_schema

from storage_nodes.log.record_batch import iterate_bodies
from storage_nodes.protocol.records import decode_body, decode_varint
from storage_nodes.protocol.usage import Origin
from workers.spark_jobs.schemas.frames import COUNTERS, PLACED_REQUESTS, PLACED_WINDOWS, QUARANTINE
from workers.spark_jobs.schemas.usage_record import (
    OriginCounters,
    RequestReport,
    UsageRecordError,
    UsageWindow,
    decode_record,
)

WINDOWS_SCHEMA = to_arrow_schema(PLACED_WINDOWS)
REQUESTS_SCHEMA = to_arrow_schema(PLACED_REQUESTS)
QUARANTINE_SCHEMA = to_arrow_schema(QUARANTINE)
_CLIENT = int(Origin.CLIENT)
_NO_OPERATIONS = OriginCounters(_CLIENT, *([0] * len(COUNTERS)))
_STORED = ("stored_byte_ms", "stored_bytes")
_OF_ORIGIN = ("origin", *COUNTERS)
_PLACE = ("stream_partition", "stream_offset")
_OF_WINDOW = tuple(name for name in PLACED_WINDOWS.fieldNames() if name not in (*_OF_ORIGIN, *_PLACE))


class DecodedRecords(NamedTuple):
    """Rows of PLACED_WINDOWS, PLACED_REQUESTS and QUARANTINE: nothing that was given is left out."""

    windows: pa.RecordBatch
    requests: pa.RecordBatch
    unreadable: pa.RecordBatch


def decode_records(partition: int, records: Iterable[tuple[int, bytes]]) -> DecodedRecords:
    """Of records of one stream partition: (offset, value)."""
    windows: list[tuple[int, UsageWindow]] = []
    reports: list[tuple[int, RequestReport]] = []
    unreadable = []
    for offset, value in records:
        try:
            record = decode_record(value)
        except UsageRecordError as error:
            unreadable.append((error.reason, str(error), partition, offset, value))
            continue
        if isinstance(record, UsageWindow):
            windows.append((offset, record))
        else:
            reports.append((offset, record))
    return DecodedRecords(
        _windows(partition, windows),
        _batch(_request_rows(partition, reports), REQUESTS_SCHEMA),
        _batch(unreadable, QUARANTINE_SCHEMA),
    )


def _windows(partition: int, windows: list[tuple[int, UsageWindow]]) -> pa.RecordBatch:
    """A row per origin; the one of CLIENT is always there, and has what is stored."""
    rows: list[int] = []
    origins: list[OriginCounters] = []
    for number, (_, window) in enumerate(windows):
        found = window.origins
        if not found or (found[0].origin != _CLIENT and all(one.origin != _CLIENT for one in found)):
            rows.append(number)
            origins.append(_NO_OPERATIONS)
        for one in found:
            rows.append(number)
            origins.append(one)
    own = _columns([(*astuple(window)[:-1], partition, offset) for offset, window in windows], (*_OF_WINDOW, *_PLACE))
    taken = {name: column.take(pa.array(rows, pa.int32())) for name, column in own.items()}
    taken |= _columns(map(astuple, origins), _OF_ORIGIN)
    is_client = pc.equal(taken["origin"], _CLIENT)
    taken |= {name: pc.if_else(is_client, taken[name], 0) for name in _STORED}
    return pa.RecordBatch.from_arrays([taken[name] for name in WINDOWS_SCHEMA.names], schema=WINDOWS_SCHEMA)


def _columns(rows: Any, names: Sequence[str]) -> dict[str, pa.Array]:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    types = [WINDOWS_SCHEMA.field(name).type for name in names]
    return {name: pa.array(column, kind) for name, column, kind in zip(names, columns, types, strict=True)}


def _request_rows(partition: int, reports: list[tuple[int, RequestReport]]) -> list[tuple[Any, ...]]:
    return [
        (
            report.front_end, report.sequence, report.hour_ms, row.account_id, row.queue_uuid, row.access_key_id,
            row.requests, row.empty_receives, row.throttled, partition, offset,
        )
        for offset, report in reports
        for row in report.rows
    ]  # fmt: skip


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def values_of(batch: bytes, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of the records of a batch at offsets from `start` on, before `end`."""
    for offset, body in iterate_bodies(batch):
        if start <= offset < end:
            yield offset, value_of(body)


def value_of(body: bytes) -> bytes:
    """As `decode_body` reads it, at half its cost where the record has no headers."""
    key_length, at = decode_varint(body, 0)
    length, at = decode_varint(body, at + max(key_length, 0))
    if at + length + 1 == len(body) and body[-1] == 0 and length >= 0:
        return body[at:-1]
    return decode_body(body).value
