"""The frames between transforms, and the files of the lake. Every time is in ms since the epoch, every size in bytes.
A schema is the contract of a frame: transforms check it where a frame comes in and where one goes out (`conform`).

`WINDOWS` has a row per window and origin. What a window stores stands in its row of the origin CLIENT, which every
window has: one row of a window, however many origins it has and whichever is added when a later window replaces it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

# Counted per origin. The order is that of `OriginCounters`, and of settlement files.
COUNTERS = (
    "sent",
    "delivered",
    "deleted",
    "moved",
    "dead_lettered",
    "scheduled",
    "sent_bytes",
    "delivered_bytes",
    "sent_units",
    "delivered_units",
)
REQUEST_COUNTERS = ("requests", "empty_receives", "throttled")
# 38 digits: a petabyte stored for a century in byte-milliseconds has 28.
BYTE_MS = DecimalType(38, 0)

_TYPES: dict[str, DataType] = {
    **dict.fromkeys(COUNTERS + REQUEST_COUNTERS, LongType()),
    "account_id": StringType(),
    "queue_uuid": BinaryType(),
    "cluster": StringType(),
    "partition": LongType(),
    "hour_ms": LongType(),
    "until_ms": LongType(),
    "period_ms": LongType(),
    "final": BooleanType(),
    "stored_byte_ms": LongType(),
    "stored_bytes": LongType(),
    "origin": IntegerType(),
    "front_end": BinaryType(),
    "sequence": LongType(),
    "access_key_id": StringType(),
    "stream_partition": LongType(),
    "stream_offset": LongType(),
    "reason": StringType(),
    "detail": StringType(),
    "value": BinaryType(),
    "key": BinaryType(),
    "offset": LongType(),
    "from_offset": LongType(),
    "end_offset": LongType(),
    "batch": BinaryType(),
    "timestamp_ms": LongType(),
    "tag_key": StringType(),
    "tag_value": StringType(),
    "from_ms": LongType(),
    "to_ms": LongType(),
    "gap_from_ms": LongType(),
    "gap_to_ms": LongType(),
}


def _schema(*names: str, **types: DataType) -> StructType:
    return StructType([StructField(name, types.get(name, _TYPES.get(name))) for name in names])


# What the data source gives of any stream.
STREAM_RECORDS = _schema("partition", "offset", "timestamp_ms", "key", "value")
# The same as the log has it: whole record batches, of which the records at `from_offset` to `end_offset` - 1 are meant.
STREAM_BATCHES = _schema("partition", "from_offset", "end_offset", "batch")

WINDOWS = _schema(
    "cluster",
    "partition",
    "account_id",
    "queue_uuid",
    "hour_ms",
    "until_ms",
    "final",
    "stored_byte_ms",
    "stored_bytes",
    "origin",
    *COUNTERS,
)
REQUESTS = _schema("front_end", "sequence", "hour_ms", "account_id", "queue_uuid", "access_key_id", *REQUEST_COUNTERS)
# A record that was not taken, whole (`value`), with the reason.
QUARANTINE = _schema("reason", "detail", "stream_partition", "stream_offset", "value")

# What the decoder gives: the same with the place of the record in its stream.
_PLACE = ("stream_partition", "stream_offset")
PLACED_WINDOWS = _schema(*WINDOWS.fieldNames(), *_PLACE)
PLACED_REQUESTS = _schema(*REQUESTS.fieldNames(), *_PLACE)

# Rollups: the row of one period (an hour, a day, a month: its beginning). One schema for the three.
PERIODS = _schema(
    "account_id", "queue_uuid", "cluster", "period_ms", "origin", *COUNTERS, "stored_byte_ms", stored_byte_ms=BYTE_MS
)
# What is settled: the same without the cluster, which no customer is charged by.
SETTLED = _schema(
    "account_id", "queue_uuid", "period_ms", "origin", *COUNTERS, "stored_byte_ms", stored_byte_ms=BYTE_MS
)
# A window with the time behind it in which its partition had no traffic and kept `stored_bytes`; none: both are equal.
WINDOWS_AND_GAPS = _schema(*WINDOWS.fieldNames(), "gap_from_ms", "gap_to_ms")
# A tag that a queue had from `from_ms` on, until `to_ms` (null = it has it still).
TAGS = _schema("account_id", "queue_uuid", "tag_key", "tag_value", "from_ms", "to_ms")
ACCOUNTS = _schema("account_id")
# What a cluster costs in a span, as its operator says.
COSTS = _schema("cluster", "cost_minor", cost_minor=LongType())


class SchemaMismatch(ValueError):
    """A frame is not what a transform was written for."""


def conform(frame: DataFrame, schema: StructType, what: str) -> DataFrame:
    """The columns of `schema`, in its order. Raises SchemaMismatch for a column that is missing or of another type;
    columns beyond the schema are left out."""
    present = {field.name: field.dataType for field in frame.schema.fields}
    wrong = [
        f"{field.name}: {present[field.name].simpleString() if field.name in present else 'missing'} "
        f"and not {field.dataType.simpleString()}"
        for field in schema.fields
        if present.get(field.name) != field.dataType
    ]
    if wrong:
        raise SchemaMismatch(f"{what}: {'; '.join(wrong)}")
    return frame.select(*schema.fieldNames())
