"""Windows to the figures of hours, days and months; hours to days and months; and what is settled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from workers.spark_jobs.schemas.frames import COUNTERS, PERIODS, SETTLED, WINDOWS, WINDOWS_AND_GAPS, conform
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.exact_sums import HIGH, LOW, joined, pair_of, pair_of_product
from workers.spark_jobs.transforms.periods import Period, begins, begins_of, ends, only_period
from workers.spark_jobs.transforms.windows import latest_windows, windows_and_gaps

_KEY = ("account_id", "queue_uuid", "cluster", "period_ms", "origin")
_ADDENDS = (*_KEY, *COUNTERS, HIGH, LOW)


def usage_by_period(windows: DataFrame, span: HourSpan, period: Period, unsure: Sequence[HourSpan] = ()) -> DataFrame:
    """PERIODS of a span, from records in any order, repeated or not; those before the span give what was
    stored when it began. Rows without any figure are left out. `unsure`: hours of which something cannot be read."""
    return _summed(_addends_of(windows, span, period, unsure), PERIODS)


def settled(windows: DataFrame, span: HourSpan, period: Period, unsure: Sequence[HourSpan] = ()) -> DataFrame:
    """The same as SETTLED: a queue that moved between clusters in one hour has one row."""
    return _summed(_addends_of(windows, span, period, unsure), SETTLED)


def _addends_of(windows: DataFrame, span: HourSpan, period: Period, unsure: Sequence[HourSpan]) -> DataFrame:
    # All that follows groups by more than the queue: one exchange of rows serves every step.
    latest = latest_windows(conform(windows, WINDOWS, "windows").repartition("queue_uuid"))
    return _addends(windows_and_gaps(latest, span, unsure), span, period)


def coarser(usage: DataFrame, period: Period) -> DataFrame:
    """Hours to days or months, days to months: PERIODS to PERIODS."""
    rows = conform(usage, PERIODS, "usage").withColumn("period_ms", begins(F.col("period_ms"), period))
    sums = rows.groupBy(*_KEY).agg(
        *[F.sum(name).alias(name) for name in COUNTERS],
        F.sum("stored_byte_ms").cast(PERIODS["stored_byte_ms"].dataType).alias("stored_byte_ms"),
    )
    return conform(sums, PERIODS, f"usage by {period.value}")


def _addends(rows: DataFrame, span: HourSpan, period: Period) -> DataFrame:
    """A row of each period that a window or its gap touches: counters in that of the window, what is stored in all."""
    windows = conform(rows, WINDOWS_AND_GAPS, "windows and gaps")
    only_ms = only_period(span, period)
    if only_ms is None:
        first = F.greatest("hour_ms", F.lit(span.from_ms))
        touched = begins_of(first, F.greatest(first + 1, "gap_to_ms"), period)
        placed = windows.withColumn("period_ms", F.explode(touched))
        begin, end = F.col("period_ms"), ends(F.col("period_ms"), period)
        own_ms = begins(F.col("hour_ms"), period)
    else:
        placed = windows.withColumn("period_ms", F.lit(only_ms).cast("long"))
        begin, end = F.lit(span.from_ms), F.lit(span.to_ms)
        own_ms = F.col("period_ms")
    is_own = (F.col("hour_ms") >= span.from_ms) & (own_ms == F.col("period_ms"))
    zero = F.lit(0).cast("long")
    gap_ms = F.greatest(F.least("gap_to_ms", end) - F.greatest("gap_from_ms", begin), zero)
    high, low = pair_of_product(F.col("stored_bytes"), gap_ms)
    own_high, own_low = pair_of(F.col("stored_byte_ms"))
    counted = {name: F.when(is_own, F.col(name)).otherwise(zero) for name in COUNTERS}
    stored = {
        HIGH: high + F.when(is_own, own_high).otherwise(zero),
        LOW: low + F.when(is_own, own_low).otherwise(zero),
    }
    return placed.withColumns(counted | stored).select(*_ADDENDS)


def _summed(rows: DataFrame, schema: StructType) -> DataFrame:
    """Grouped by the columns that the schema has of the key; all sums are of 64-bit numbers."""
    key = [name for name in _KEY if name in schema.fieldNames()]
    sums = rows.groupBy(*key).agg(*[F.sum(name).alias(name) for name in (*COUNTERS, HIGH, LOW)])
    figures = reduce(lambda one, other: one | other, [F.col(name) > 0 for name in (*COUNTERS, HIGH, LOW)])
    kept = sums.where(figures).withColumn("stored_byte_ms", joined(F.col(HIGH), F.col(LOW)))
    return conform(kept, schema, "usage by period")
