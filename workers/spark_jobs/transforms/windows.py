"""One window per partition and hour, in whatever order and however often records came; and what lies between them.

    records of one (partition, hour)   ->  the latest: figures are cumulative, so each is the greatest that was said
    latest windows of one partition    ->  gaps: from the end of one (`until_ms`) to the hour of the next, the partition
                                           had no traffic and kept the same bytes; a gap ends where hours begin of which
                                           a file cannot be read (`unsure`), as that may have said otherwise

Nothing here depends on the order of rows: that is what makes a recount equal to the count.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from storage_nodes.protocol.usage import Origin
from workers.spark_jobs.limits import STORED_BYTES_BITS
from workers.spark_jobs.schemas.frames import COUNTERS, WINDOWS, WINDOWS_AND_GAPS, conform
from workers.spark_jobs.spans import HourSpan

# The number first: Spark compares rows by eight bytes of the first column, and reads the others where these are equal.
_PARTITION = ("partition", "cluster", "account_id", "queue_uuid")
_LEVEL_RADIX = 1 << STORED_BYTES_BITS
# (time within the hour, bytes stored then) as one number: the greatest is of the latest record, and of two records of
# one time always the same one.
_LEVEL_AT = "level_at"


def latest_windows(windows: DataFrame) -> DataFrame:
    """WINDOWS with one row per (partition, hour, origin)."""
    rows = conform(windows, WINDOWS, "windows")
    level_at = (F.col("until_ms") - F.col("hour_ms")) * F.lit(_LEVEL_RADIX).cast("long") + F.col("stored_bytes")
    found = rows.groupBy(*_PARTITION, "hour_ms", "origin").agg(
        F.max(level_at).alias(_LEVEL_AT),
        F.max("final").alias("final"),
        *[F.max(name).alias(name) for name in ("stored_byte_ms", *COUNTERS)],
    )
    until_ms = F.col("hour_ms") + F.shiftright(_LEVEL_AT, STORED_BYTES_BITS)
    stored = F.col(_LEVEL_AT).bitwiseAND(F.lit(_LEVEL_RADIX - 1).cast("long"))
    latest = found.withColumns({"until_ms": until_ms, "stored_bytes": stored})
    return conform(latest, WINDOWS, "latest windows")


def conflicting_windows(windows: DataFrame) -> DataFrame:
    """WINDOWS, those that contradict another record of their (partition, hour, origin): the same time and other
    figures, or a later time and lower ones. Of each contradiction the greater figures count."""
    rows = conform(windows, WINDOWS, "windows")
    key = ["cluster", "partition", "hour_ms", "origin"]
    cumulative = ("stored_byte_ms", *COUNTERS)
    # Not `final`: a window may be exported once more, as the last one, after its partition was retired.
    rest = ("stored_bytes", "account_id", "queue_uuid")
    # Copies of a record stand one behind the other, so that none of them contradicts another, and rows are exchanged
    # and sorted once: this reads all windows, and finds hardly any.
    order = Window.partitionBy(*key).orderBy("until_ms", *cumulative, *rest)
    before = {name: F.lag(name).over(order) for name in ("until_ms", *cumulative, *rest)}
    differs = _any_of([before[name] != F.col(name) for name in (*cumulative, *rest)])
    same_time = (before["until_ms"] == F.col("until_ms")) & differs
    fell = _any_of([before[name] > F.col(name) for name in cumulative])
    owner, all_of_key = F.struct("account_id", "queue_uuid"), Window.partitionBy(*key)
    two_owners = F.min(owner).over(all_of_key) != F.max(owner).over(all_of_key)
    judged = rows.withColumn("conflict", F.coalesce(same_time | fell, F.lit(False)) | two_owners)
    return conform(judged.where("conflict").distinct(), WINDOWS, "conflicting windows")


def last_windows(windows: DataFrame, before_ms: int) -> DataFrame:
    """WINDOWS, of each partition the stored bytes of its last hour before `before_ms`; its counters are left at 0.

    What a span needs of the time before it: what was stored when it began.
    """
    rows = conform(windows, WINDOWS, "windows")
    client = rows.where((F.col("hour_ms") < before_ms) & (F.col("origin") == int(Origin.CLIENT)))
    latest = client.groupBy(*_PARTITION).agg(
        F.max(
            F.struct(
                "hour_ms",
                (F.col("until_ms") - F.col("hour_ms")).alias("within_ms"),
                "final",
                "stored_bytes",
            )
        ).alias("last")
    )
    zero = F.lit(0).cast("long")
    last = latest.select(
        *_PARTITION,
        F.col("last.hour_ms").alias("hour_ms"),
        (F.col("last.hour_ms") + F.col("last.within_ms")).alias("until_ms"),
        F.col("last.final").alias("final"),
        zero.alias("stored_byte_ms"),
        F.col("last.stored_bytes").alias("stored_bytes"),
        F.lit(int(Origin.CLIENT)).alias("origin"),
        *[zero.alias(name) for name in COUNTERS],
    )
    return conform(last, WINDOWS, "last windows")


def windows_and_gaps(latest: DataFrame, span: HourSpan, unsure: Sequence[HourSpan] = ()) -> DataFrame:
    """WINDOWS_AND_GAPS of the span, of windows that hold one row per (partition, hour, origin), those before the span
    included.

    The gap behind a window stands in its own row (of the origin CLIENT), so that rows are counted once and sorted once.
    A window before the span is there only where its gap reaches into it.
    """
    is_client = F.col("origin") == int(Origin.CLIENT)
    rows = conform(latest, WINDOWS, "latest windows")
    # Windows that have no row of CLIENT, because that one was refused, end no gap.
    by_time = Window.partitionBy(*_PARTITION, is_client).orderBy("hour_ms")
    next_ms = F.least(F.coalesce(F.lead("hour_ms").over(by_time), F.lit(span.to_ms)), F.lit(span.to_ms))
    for hours in unsure:
        is_cut = (F.col("until_ms") < hours.to_ms) & (next_ms > hours.from_ms)
        next_ms = F.when(is_cut, F.greatest("until_ms", F.lit(hours.from_ms))).otherwise(next_ms)
    placed = rows.withColumns({"gap_from_ms": F.greatest("until_ms", F.lit(span.from_ms)), "gap_to_ms": next_ms})
    is_kept = is_client & (F.col("stored_bytes") > 0) & ~F.col("final") & (F.col("gap_to_ms") > F.col("gap_from_ms"))
    # No gap: it ends where it begins.
    gaps = placed.withColumn("gap_to_ms", F.when(is_kept, F.col("gap_to_ms")).otherwise(F.col("gap_from_ms")))
    within = (F.col("hour_ms") >= span.from_ms) & (F.col("hour_ms") < span.to_ms)
    return conform(gaps.where(within | (F.col("gap_to_ms") > F.col("gap_from_ms"))), WINDOWS_AND_GAPS, "gaps")


def _any_of(conditions: list[Column]) -> Column:
    found = conditions[0]
    for condition in conditions[1:]:
        found = found | condition
    return found
