"""Windows to the figures of hours, days and months; hours to days and months; and what is settled."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from storage_nodes.protocol.usage import Origin
from workers.spark_jobs.schemas.contract import conform
from workers.spark_jobs.schemas.frames import COUNTERS, GAPS, PERIODS, SETTLED, WINDOWS
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.exact_sums import HIGH, LOW, joined, pair_of, pair_of_product
from workers.spark_jobs.transforms.periods import Period, begins, begins_of, ends
from workers.spark_jobs.transforms.windows import latest_windows, stored_gaps

_KEY = ("account_id", "queue_uuid", "cluster", "period_ms", "origin")
_ADDENDS = (*_KEY, *COUNTERS, HIGH, LOW)


def usage_by_period(windows: DataFrame, span: HourSpan, period: Period) -> DataFrame:
    """PERIODS of a span, from records in any order, repeated or not; those before the span give what was
    stored when it began. Rows without any figure are left out."""
    # All that follows groups by more than the queue: one exchange of rows serves every step.
    latest = latest_windows(conform(windows, WINDOWS, "windows").repartition("queue_uuid"))
    active = _active(latest, span, period)
    rows = active.unionByName(_stored(stored_gaps(latest, span), period))
    return _summed(rows)


def coarser(usage: DataFrame, period: Period) -> DataFrame:
    """Hours to days or months, days to months: PERIODS to PERIODS."""
    rows = conform(usage, PERIODS, "usage").withColumn("period_ms", begins(F.col("period_ms"), period))
    sums = rows.groupBy(*_KEY).agg(
        *[F.sum(name).alias(name) for name in COUNTERS],
        F.sum("stored_byte_ms").cast(PERIODS["stored_byte_ms"].dataType).alias("stored_byte_ms"),
    )
    return conform(sums, PERIODS, f"usage by {period.value}")


def settled(usage: DataFrame) -> DataFrame:
    """PERIODS to SETTLED: a queue that moved between clusters in one hour has one row."""
    rows = conform(usage, PERIODS, "usage")
    sums = rows.groupBy("account_id", "queue_uuid", "period_ms", "origin").agg(
        *[F.sum(name).alias(name) for name in COUNTERS],
        F.sum("stored_byte_ms").cast(SETTLED["stored_byte_ms"].dataType).alias("stored_byte_ms"),
    )
    return conform(sums, SETTLED, "settled usage")


def _active(latest: DataFrame, span: HourSpan, period: Period) -> DataFrame:
    within = latest.where((F.col("hour_ms") >= span.from_ms) & (F.col("hour_ms") < span.to_ms))
    high, low = pair_of(F.col("stored_byte_ms"))
    figures = within.withColumns({"period_ms": begins(F.col("hour_ms"), period), HIGH: high, LOW: low})
    return figures.select(*_ADDENDS)


def _stored(gaps: DataFrame, period: Period) -> DataFrame:
    """A row of each period that a gap touches."""
    rows = conform(gaps, GAPS, "gaps").withColumn(
        "period_ms", F.explode(begins_of(F.col("gap_from_ms"), F.col("gap_to_ms"), period))
    )
    begin = F.greatest("gap_from_ms", "period_ms")
    duration_ms = F.least(F.col("gap_to_ms"), ends(F.col("period_ms"), period)) - begin
    high, low = pair_of_product(F.col("stored_bytes"), duration_ms)
    zero = F.lit(0).cast("long")
    return rows.select(
        "account_id",
        "queue_uuid",
        "cluster",
        "period_ms",
        F.lit(int(Origin.CLIENT)).alias("origin"),
        *[zero.alias(name) for name in COUNTERS],
        high.alias(HIGH),
        low.alias(LOW),
    )


def _summed(rows: DataFrame) -> DataFrame:
    sums = rows.groupBy(*_KEY).agg(*[F.sum(name).alias(name) for name in (*COUNTERS, HIGH, LOW)])
    figures = reduce(lambda one, other: one | other, [F.col(name) > 0 for name in (*COUNTERS, HIGH, LOW)])
    kept = sums.where(figures).withColumn("stored_byte_ms", joined(F.col(HIGH), F.col(LOW)))
    return conform(kept, PERIODS, "usage by period")
