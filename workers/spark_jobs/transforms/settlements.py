"""What front ends counted by the hour, and names that the control plane has for what is counted here."""

from __future__ import annotations

from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from storage_nodes.protocol.usage import Origin
from workers.spark_jobs.schemas.frames import REQUESTS, conform
from workers.spark_jobs.spans import HourSpan

_UUID_PARTS = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
_SHOWN = ("requests", "empty_receives")


def latest_requests(requests: DataFrame) -> DataFrame:
    """Each report of a front end once."""
    rows = conform(requests, REQUESTS, "requests")
    key = ("front_end", "sequence", "hour_ms", "account_id", "queue_uuid", "access_key_id")
    once = rows.groupBy(*key).agg(*[F.max(name).alias(name) for name in REQUESTS.fieldNames() if name not in key])
    return conform(once, REQUESTS, "requests")


def requests_by_hour(requests: DataFrame, span: HourSpan) -> DataFrame:
    """Of the span: an account's queue and hour in a row (shown, never priced)."""
    within = (F.col("hour_ms") >= span.from_ms) & (F.col("hour_ms") < span.to_ms)
    rows = latest_requests(requests).where(within)
    return rows.groupBy("account_id", "queue_uuid", "hour_ms").agg(*[F.sum(name).alias(name) for name in _SHOWN])


def uuid_text(name: str) -> Column:
    digits = F.lower(F.hex(name))
    return F.concat_ws("-", *[F.substring(digits, at, length) for at, length in _UUID_PARTS])


def origin_name(number: Column) -> Column:
    names = F.create_map(*map(F.lit, chain.from_iterable((int(one), one.name.lower()) for one in Origin)))
    return names[number]
