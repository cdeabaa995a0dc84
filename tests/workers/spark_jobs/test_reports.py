"""Reports (docs/usage.md): tags by their history, keys once, operators' views; sums agree with their parts."""

from __future__ import annotations

import argparse
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from storage_nodes.protocol.usage import Origin
from tests.workers.spark_jobs.frames import (
    ACCOUNT,
    OTHER_ACCOUNT,
    OTHER_QUEUE,
    QUEUE,
    batches_frame,
    counters,
    encode_record,
    figures,
    hour,
    window,
    windows_frame,
)
from workers.spark_jobs.jobs.report import costs_of, report
from workers.spark_jobs.jobs.rollup import NotRolledUp, roll_up
from workers.spark_jobs.lake.ingestion import ingest_files, ingest_records
from workers.spark_jobs.lake.manifest import Lake
from workers.spark_jobs.limits import ANOMALY_OPERATIONS_MIN
from workers.spark_jobs.schemas.frames import COSTS, PERIODS, REQUESTS, TAGS
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms import operator_reports, reports
from workers.spark_jobs.transforms.periods import Period
from workers.spark_jobs.transforms.rollups import usage_by_period

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPAN = HourSpan(hour(0), hour(24))


def test_tag_counts_by_the_value_that_it_had_at_each_hour(spark: SparkSession) -> None:
    windows = [window(at) for at in range(4)] + [window(1, 8, queue_uuid=OTHER_QUEUE)]
    hours = usage_by_period(windows_frame(spark, windows), SPAN, Period.HOUR)
    history = [
        (ACCOUNT, QUEUE, "team", "red", hour(0), hour(1) + 5),
        (ACCOUNT, QUEUE, "team", "blue", hour(1) + 5, hour(3)),
        (ACCOUNT, QUEUE, "other", "green", hour(0), None),
        (OTHER_ACCOUNT, OTHER_QUEUE, "team", "foreign", hour(0), None),
    ]
    found = figures(reports.by_tag(hours, spark.createDataFrame(history, TAGS), "team"), "tag_value", "sent")
    assert found == [("", 2), ("blue", 1), ("red", 2)]


def test_repeated_report_of_a_front_end_counts_once(spark: SparkSession) -> None:
    one = (b"f" * 16, 1, hour(0), ACCOUNT, QUEUE, "AKPSA", 5, 2, 1)
    rows = [one, one, (b"f" * 16, 2, *one[2:]), (b"g" * 16, 1, *one[2:5], "AKPSB", 7, 0, 0)]
    found = reports.by_key(spark.createDataFrame(rows, REQUESTS))
    assert figures(found, "access_key_id", "requests", "empty_receives", "throttled") == [
        ("AKPSA", 10, 4, 2),
        ("AKPSB", 7, 0, 0),
    ]


def day_rows(operations: dict[int, int], account: str = ACCOUNT) -> list[tuple[object, ...]]:
    """PERIODS of days with so many messages sent."""
    return [(account, QUEUE, "one", hour(24 * day), 1, sent, *[0] * 9, Decimal(0)) for day, sent in operations.items()]


def test_day_that_stands_out_is_found_and_steady_ones_are_not(spark: SparkSession) -> None:
    many = ANOMALY_OPERATIONS_MIN
    steady = dict.fromkeys(range(12), many)
    rows = day_rows({**steady, 5: 5 * many}) + day_rows({**steady, 9: many // 10}, OTHER_ACCOUNT)
    rows += day_rows({0: many, 1: many // 2, 2: many}, "100000000003") + day_rows({4: 50 * many}, "100000000004")
    found = operator_reports.anomalies(spark.createDataFrame(rows, PERIODS))
    assert figures(found, "account_id", "period_ms", "operations", "mean_operations") == [
        (ACCOUNT, hour(24 * 5), 5 * many, many),
        (OTHER_ACCOUNT, hour(24 * 9), many // 10, many),
    ]


def test_growth_names_accounts_that_are_new_and_gone(spark: SparkSession) -> None:
    rows = day_rows({0: 10, 1: 30}) + day_rows({1: 7}, OTHER_ACCOUNT) + day_rows({0: 9}, "100000000003")
    spans = HourSpan(hour(0), hour(24)), HourSpan(hour(24), hour(48))
    grown = operator_reports.growth(spark.createDataFrame(rows, PERIODS), *spans)
    assert [tuple(row) for row in grown.collect()] == [
        (ACCOUNT, 10, 30, 20),
        (OTHER_ACCOUNT, 0, 7, 7),
        ("100000000003", 9, 0, -9),
    ]


def test_cluster_costs_are_divided_by_what_it_carried(spark: SparkSession) -> None:
    rows = day_rows({0: 2_000_000, 1: 1_000_000}) + day_rows({1: 1_000_000}, OTHER_ACCOUNT)
    two = [(*row[:2], "two", *row[3:]) for row in day_rows({0: 5})]
    costs = spark.createDataFrame(list(costs_of(["one=120003", "idle=900"]).items()), COSTS)
    found = operator_reports.cluster_costs(spark.createDataFrame(rows + two, PERIODS), costs)
    names = ("cluster", "cost_minor", "operations", "accounts", "minor_per_million")
    assert [tuple(row[name] for name in names) for row in found.collect()] == [
        ("idle", 900, 0, 0, None), ("one", 120_003, 4_000_000, 2, 30_000), ("two", None, 5, 1, None),
    ]  # fmt: skip


@pytest.mark.parametrize("given", [["one"], ["=5"], ["one=-5"], ["one=1.5"], ["one=1", "one=2"], [f"one={10**13}"]])
def test_cost_that_is_none_is_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit):
        costs_of(given)


def test_reports_of_a_lake_agree_with_each_other(spark: SparkSession, tmp_path: Path) -> None:
    """From rollups in the lake: by account, queue, origin, of clusters, the top; a rollup again replaces the first."""
    lake = Lake(tmp_path / "lake")
    windows = [window(0, stored_byte_ms=50), window(3, origins=[counters(Origin.CRON, sent=4)])]
    windows += [window(1, 8, queue_uuid=OTHER_QUEUE), window(2, 9, account_id=OTHER_ACCOUNT, cluster="two")]
    windows_frame(spark, windows).coalesce(1).write.parquet(str(tmp_path / "in"))
    ingest_files(spark, lake, sorted((tmp_path / "in").glob("*.parquet")), "a", hour(48))
    late = [(3, 0, encode_record(window(5))), (3, 1, b"rubbish")]
    span = HourSpan(hour(0), hour(24))
    roll_up(spark, lake, span, hour(48))
    ingest_records(lake, batches_frame(spark, late), "b", hour(48))
    roll_up(spark, lake, span, hour(48))

    def of(kind: str, *names: str) -> list[tuple[object, ...]]:
        return figures(report(spark, lake, kind, span, argparse.Namespace(account="")), *names)

    assert of("account", "account_id", "sent", "stored_byte_ms") == [
        (ACCOUNT, 7, Decimal(50)),
        (OTHER_ACCOUNT, 1, Decimal(0)),
    ]
    queue, other = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
    assert of("queue", "queue_uuid", "sent") == [(queue, 1), (queue, 6), (other, 1)]
    assert of("origin", "origin", "sent") == [("client", 1), ("client", 3), ("cron", 4)]
    assert of("clusters", "cluster", "operations", "accounts", "queues") == [("one", 7, 1, 2), ("two", 1, 1, 1)]
    assert of("top", "account_id", "share_ppm") == [(ACCOUNT, 875_000), (OTHER_ACCOUNT, 125_000)]
    assert of("quarantine", "reason", "stream_offset") == [("unknown_version", 1)]
    with pytest.raises(NotRolledUp, match="not rolled up: 2026-11-02"):
        report(spark, lake, "top", HourSpan(hour(0), hour(48)), argparse.Namespace(account=""))
