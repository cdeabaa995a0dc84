"""What is handed to the control plane: a row per account, hour, queue and origin, as its table `hourly_usage` has them.

Rows of front ends (requests, empty receives: shown, never priced) have the partition -1, the others 0.
"""

from __future__ import annotations

from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from storage_nodes.protocol.usage import Origin
from workers.spark_jobs.schemas.contract import conform
from workers.spark_jobs.schemas.frames import BYTE_MS, COUNTERS, REQUESTS, SETTLED
from workers.spark_jobs.spans import HourSpan

ALL_PARTITIONS = 0
OF_FRONT_ENDS = -1
_UUID_PARTS = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
_SHOWN = ("requests", "empty_receives")
SETTLEMENT = StructType(
    [
        StructField("account_id", StringType()),
        StructField("hour_ms", LongType()),
        StructField("queue_uuid", StringType()),
        StructField("partition_id", IntegerType()),
        StructField("origin", StringType()),
        *[StructField(name, LongType()) for name in COUNTERS],
        StructField("stored_byte_ms", BYTE_MS),
        *[StructField(name, LongType()) for name in _SHOWN],
    ]
)


def settlement(settled: DataFrame, requests: DataFrame, span: HourSpan) -> DataFrame:
    """SETTLED of hours and REQUESTS to SETTLEMENT."""
    zero = F.lit(0).cast("long")
    metered = conform(settled, SETTLED, "settled usage").select(
        "account_id",
        F.col("period_ms").alias("hour_ms"),
        uuid_text("queue_uuid").alias("queue_uuid"),
        F.lit(ALL_PARTITIONS).alias("partition_id"),
        origin_name(F.col("origin")).alias("origin"),
        *COUNTERS,
        "stored_byte_ms",
        *[zero.alias(name) for name in _SHOWN],
    )
    return conform(metered.unionByName(_of_front_ends(requests, span)), SETTLEMENT, "settlement")


def latest_requests(requests: DataFrame) -> DataFrame:
    """Each report of a front end once."""
    rows = conform(requests, REQUESTS, "requests")
    key = ("front_end", "sequence", "hour_ms", "account_id", "queue_uuid", "access_key_id")
    once = rows.groupBy(*key).agg(*[F.max(name).alias(name) for name in REQUESTS.fieldNames() if name not in key])
    return conform(once, REQUESTS, "requests")


def _of_front_ends(requests: DataFrame, span: HourSpan) -> DataFrame:
    within = (F.col("hour_ms") >= span.from_ms) & (F.col("hour_ms") < span.to_ms)
    sums = (
        latest_requests(requests)
        .where(within)
        .groupBy("account_id", "hour_ms", "queue_uuid")
        .agg(*[F.sum(name).alias(name) for name in _SHOWN])
    )
    zero = F.lit(0).cast("long")
    return sums.select(
        "account_id",
        "hour_ms",
        uuid_text("queue_uuid").alias("queue_uuid"),
        F.lit(OF_FRONT_ENDS).alias("partition_id"),
        F.lit(Origin.CLIENT.name.lower()).alias("origin"),
        *[zero.alias(name) for name in COUNTERS],
        zero.cast(BYTE_MS).alias("stored_byte_ms"),
        *_SHOWN,
    )


def uuid_text(name: str) -> Column:
    digits = F.lower(F.hex(name))
    return F.concat_ws("-", *[F.substring(digits, at, length) for at, length in _UUID_PARTS])


def origin_name(number: Column) -> Column:
    names = F.create_map(*map(F.lit, chain.from_iterable((int(one), one.name.lower()) for one in Origin)))
    return names[number]
