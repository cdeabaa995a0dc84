"""Reports for the operator, over rollups of days: the largest accounts, growth, load of clusters, days that stand out.

An operation is a message sent, delivered, deleted, moved or scheduled. What a cluster costs is known to the operator
alone, who names it in minor units of a currency.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from workers.spark_jobs.limits import ANOMALY_DAYS, ANOMALY_FACTOR, ANOMALY_OPERATIONS_MIN, DAY_MS
from workers.spark_jobs.schemas.frames import COSTS, PERIODS, conform
from workers.spark_jobs.spans import HourSpan

PRICED_OPERATIONS = 1_000_000
OPERATIONS = ("sent", "delivered", "deleted", "moved", "scheduled")


def top_accounts(days: DataFrame, accounts_max: int) -> DataFrame:
    """The accounts with the most operations, with their share of all."""
    sums = _loads(days, ["account_id"])
    total = sums.agg(F.sum("operations").alias("all_operations"))
    shares = sums.crossJoin(total).withColumn(
        "share_ppm", F.call_function("div", F.col("operations") * 1_000_000, F.greatest("all_operations", F.lit(1)))
    )
    return shares.drop("all_operations").orderBy(F.desc("operations"), "account_id").limit(accounts_max)


def growth(days: DataFrame, before: HourSpan, after: HourSpan) -> DataFrame:
    """Operations of each account in two spans, and their difference; accounts that are new or gone included."""

    def within(span: HourSpan) -> Column:
        inside = (F.col("period_ms") >= span.from_ms) & (F.col("period_ms") < span.to_ms)
        return F.sum(F.when(inside, _operations()).otherwise(F.lit(0).cast("long")))

    rows = conform(days, PERIODS, "usage by day")
    sums = rows.groupBy("account_id").agg(within(before).alias("before"), within(after).alias("after"))
    grown = sums.withColumn("difference", F.col("after") - F.col("before"))
    return grown.orderBy(F.desc("difference"), "account_id")


def cluster_loads(days: DataFrame) -> DataFrame:
    """What each cluster carried on each day: what its cost is divided by."""
    return _loads(days, ["cluster", "period_ms"]).orderBy("cluster", "period_ms")


def cluster_costs(days: DataFrame, costs: DataFrame) -> DataFrame:
    """COSTS beside what each cluster carried: what a million operations of it cost, cut to whole minor units. Clusters
    whose cost was not named have none; those that carried nothing have no price."""
    loads = _loads(days, ["cluster"]).select("cluster", "operations", "stored_byte_ms", "accounts")
    rows = conform(costs, COSTS, "costs of clusters").join(loads, "cluster", how="full")
    counts = {name: F.coalesce(name, F.lit(0)) for name in ("operations", "stored_byte_ms", "accounts")}
    operations = F.nullif("operations", F.lit(0))
    price = F.call_function("div", F.col("cost_minor") * F.lit(PRICED_OPERATIONS), operations)
    return rows.withColumns(counts).withColumn("minor_per_million", price).orderBy("cluster")


def anomalies(days: DataFrame) -> DataFrame:
    """Days of accounts that have ANOMALY_FACTOR times the operations of the mean day of the week before, or that part
    of them. Days without any usage count as 0 in the mean; the first day of an account is never one."""
    daily = conform(days, PERIODS, "usage by day").groupBy("account_id", "period_ms")
    sums = daily.agg(F.sum(_operations()).alias("operations"))
    week = Window.partitionBy("account_id").orderBy("period_ms").rangeBetween(-ANOMALY_DAYS * DAY_MS, -1)
    first = F.min("period_ms").over(Window.partitionBy("account_id"))
    age_days = F.call_function("div", F.col("period_ms") - first, F.lit(DAY_MS))
    known_days = F.least(F.lit(ANOMALY_DAYS).cast("long"), age_days)
    judged = sums.withColumns(
        {"before": F.coalesce(F.sum("operations").over(week), F.lit(0).cast("long")), "known_days": known_days}
    )
    mean = F.col("before") / F.greatest("known_days", F.lit(1))
    above = (F.col("operations") >= mean * ANOMALY_FACTOR) & (F.col("operations") >= ANOMALY_OPERATIONS_MIN)
    below = (F.col("operations") * ANOMALY_FACTOR <= mean) & (mean >= ANOMALY_OPERATIONS_MIN)
    found = judged.where((F.col("known_days") > 0) & (above | below))
    kept = found.select("account_id", "period_ms", "operations", mean.cast("long").alias("mean_operations"))
    return kept.orderBy("period_ms", "account_id")


def _loads(days: DataFrame, key: list[str]) -> DataFrame:
    return (
        conform(days, PERIODS, "usage by day")
        .groupBy(*key)
        .agg(
            F.sum(_operations()).alias("operations"),
            F.sum("sent_bytes").alias("sent_bytes"),
            F.sum("delivered_bytes").alias("delivered_bytes"),
            F.sum("stored_byte_ms").alias("stored_byte_ms"),
            F.count_distinct("account_id").alias("accounts"),
            F.count_distinct("queue_uuid").alias("queues"),
        )
    )


def _operations() -> Column:
    return reduce(lambda one, other: one + other, [F.col(name) for name in OPERATIONS])
