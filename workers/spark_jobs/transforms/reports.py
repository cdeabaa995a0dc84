"""Reports for a customer: rollups and requests by account, queue, tag, origin and access key. Frames in, frames out."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from workers.spark_jobs.schemas.frames import COUNTERS, PERIODS, REQUEST_COUNTERS, REQUESTS, TAGS, conform
from workers.spark_jobs.transforms.settlements import latest_requests, origin_name, uuid_text

# Usage of queues without the tag that is asked for.
UNTAGGED = ""


def by_account(usage: DataFrame) -> DataFrame:
    return _summed(conform(usage, PERIODS, "usage"), ["account_id"])


def by_queue(usage: DataFrame) -> DataFrame:
    rows = conform(usage, PERIODS, "usage").withColumn("queue_uuid", uuid_text("queue_uuid"))
    return _summed(rows, ["account_id", "queue_uuid"])


def by_origin(usage: DataFrame) -> DataFrame:
    rows = conform(usage, PERIODS, "usage").withColumn("origin", origin_name(F.col("origin")))
    return _summed(rows, ["account_id", "origin"])


def by_tag(hours: DataFrame, tags: DataFrame, tag_key: str) -> DataFrame:
    """PERIODS of hours by the value that the queue's tag had when the hour began; what had none has "".

    Each hour counts once: the sum over all values is the account's.
    """
    usage = conform(hours, PERIODS, "usage by hour")
    history = conform(tags, TAGS, "tags").where(F.col("tag_key") == tag_key)
    at_hour = (F.col("tag.from_ms") <= F.col("usage.period_ms")) & (
        F.col("tag.to_ms").isNull() | (F.col("tag.to_ms") > F.col("usage.period_ms"))
    )
    same_queue = (F.col("tag.account_id") == F.col("usage.account_id")) & (
        F.col("tag.queue_uuid") == F.col("usage.queue_uuid")
    )
    values = (
        usage.select("account_id", "queue_uuid", "period_ms")
        .distinct()
        .alias("usage")
        .join(history.alias("tag"), same_queue & at_hour, how="inner")
        .groupBy("usage.account_id", "usage.queue_uuid", "usage.period_ms")
        # Two spans that overlap are a mistake of the history; the hour still counts once.
        .agg(F.max("tag_value").alias("tag_value"))
    )
    tagged = usage.join(values, ["account_id", "queue_uuid", "period_ms"], how="left")
    return _summed(
        tagged.withColumn("tag_value", F.coalesce("tag_value", F.lit(UNTAGGED))), ["account_id", "tag_value"]
    )


def by_key(requests: DataFrame) -> DataFrame:
    """Requests, empty receives and throttled requests of each access key: shown, never priced."""
    rows = latest_requests(conform(requests, REQUESTS, "requests"))
    sums = rows.groupBy("account_id", "access_key_id").agg(*[F.sum(name).alias(name) for name in REQUEST_COUNTERS])
    return sums.orderBy("account_id", "access_key_id")


def _summed(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    figures = [F.sum(name).alias(name) for name in (*COUNTERS, "stored_byte_ms")]
    return rows.groupBy(*key).agg(*figures).orderBy(*key)
