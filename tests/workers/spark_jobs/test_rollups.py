"""Windows to hours, days and months (docs/usage.md): any order and repetition, early closings, gaps, late records."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from tests.workers.spark_jobs.frames import (
    MONTH_MS,
    OTHER_QUEUE,
    QUEUE,
    counters,
    figures,
    hour,
    one_row,
    window,
    windows_frame,
)
from workers.spark_jobs.limits import DAY_MS, HOUR_MS, STORED_BYTES_MAX
from workers.spark_jobs.schemas.contract import SchemaMismatch
from workers.spark_jobs.schemas.frames import COUNTERS
from workers.spark_jobs.schemas.usage_record import Origin, UsageWindow
from workers.spark_jobs.transforms.periods import Interval, Period, month_interval
from workers.spark_jobs.transforms.rollups import coarser, settled, usage_by_period
from workers.spark_jobs.transforms.windows import conflicting_windows, last_windows, latest_windows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MONTH = month_interval("2026-11")
DAYS = Interval(hour(0), hour(48))


def usage(spark: SparkSession, windows: list[UsageWindow], period: Period = Period.HOUR) -> DataFrame:
    return usage_by_period(windows_frame(spark, windows), DAYS, period)


def test_repeated_record_counts_once(spark: SparkSession) -> None:
    row = one_row(usage(spark, [window(), window(), window()]))
    assert (row.sent, row.sent_bytes, row.period_ms) == (1, 10, hour(0))


def test_later_window_of_an_hour_replaces_the_earlier_one(spark: SparkSession) -> None:
    early = window(until_ms=hour(0) + 60_000, origins=[counters(Origin.PUSH, delivered=4)], stored_byte_ms=600)
    late = window(
        origins=[counters(sent=9), counters(Origin.PUSH, delivered=5)], stored_byte_ms=7_000, stored_bytes=0
    )
    found = figures(usage(spark, [late, early]), "origin", "sent", "delivered", "stored_byte_ms")
    assert found == [(Origin.CLIENT, 9, 0, Decimal(7_000)), (Origin.PUSH, 0, 5, Decimal(0))]


def test_origin_has_rows_of_its_own(spark: SparkSession) -> None:
    origins = [counters(sent=2), counters(Origin.CRON, sent=3), counters(Origin.REDRIVE, moved=4)]
    found = figures(usage(spark, [window(origins=origins)]), "origin", "sent", "moved")
    assert found == [(Origin.CLIENT, 2, 0), (Origin.REDRIVE, 0, 4), (Origin.CRON, 3, 0)]


def test_idle_partition_stores_until_the_interval_ends(spark: SparkSession) -> None:
    """It writes no records: the integral is closed when it is read."""
    rows = usage(spark, [window(3, stored_byte_ms=5, stored_bytes=100)], Period.DAY)
    found = figures(rows, "period_ms", "stored_byte_ms")
    assert found == [(hour(0), Decimal(5 + 100 * 20 * HOUR_MS)), (hour(24), Decimal(100 * DAY_MS))]


def test_gap_ends_where_traffic_comes_again(spark: SparkSession) -> None:
    rows = usage(spark, [window(1, stored_bytes=100), window(4, stored_byte_ms=77)])
    found = figures(rows, "period_ms", "stored_byte_ms")
    full = Decimal(100 * HOUR_MS)
    assert found == [(hour(1), Decimal(0)), (hour(2), full), (hour(3), full), (hour(4), Decimal(77))]


def test_window_closed_early_stores_for_the_rest_of_its_hour(spark: SparkSession) -> None:
    early = window(47, until_ms=hour(47) + HOUR_MS // 4, stored_byte_ms=40, stored_bytes=8)
    row = one_row(usage(spark, [early]))
    assert row.stored_byte_ms == Decimal(40 + 8 * (HOUR_MS - HOUR_MS // 4))


def test_deleted_partition_stores_nothing_more(spark: SparkSession) -> None:
    row = one_row(usage(spark, [window(1, final=True, stored_byte_ms=9, stored_bytes=100)]))
    assert row.stored_byte_ms == Decimal(9)


def test_records_before_the_interval_give_what_is_stored_when_it_begins(spark: SparkSession) -> None:
    before = window(-5, stored_byte_ms=123, stored_bytes=10)
    rows = usage(spark, [window(-9, stored_bytes=999), before], Period.DAY)
    assert figures(rows, "sent", "stored_byte_ms") == [(0, Decimal(10 * DAY_MS))] * 2


def test_last_windows_carry_the_level_and_no_counters(spark: SparkSession) -> None:
    history = [window(-9, stored_bytes=999), window(-5, stored_bytes=10), window(-5, 8, stored_bytes=3), window(2)]
    frame = windows_frame(spark, history)
    carried = last_windows(frame, DAYS.from_ms)
    assert figures(carried, "partition", "stored_bytes", "sent") == [(7, 10, 0), (8, 3, 0)]
    within = frame.where(f"hour_ms >= {DAYS.from_ms}")
    assertDataFrameEqual(
        usage_by_period(within.unionByName(carried), DAYS, Period.HOUR), usage_by_period(frame, DAYS, Period.HOUR)
    )


def test_sums_pass_64_bits(spark: SparkSession) -> None:
    """2 TiB in each of two partitions for two days are more byte-ms than 64 bits hold."""
    windows = [window(0, partition, stored_bytes=STORED_BYTES_MAX) for partition in (7, 8)]
    row = one_row(usage(spark, windows, Period.MONTH))
    assert row.stored_byte_ms == Decimal(2 * STORED_BYTES_MAX * 47 * HOUR_MS) > Decimal(1 << 63)


def test_settled_rows_join_the_clusters_of_a_queue(spark: SparkSession) -> None:
    windows = [window(), window(cluster="two", stored_byte_ms=4)]
    row = one_row(settled(usage(spark, windows)))
    assert (row.sent, row.stored_byte_ms) == (2, Decimal(4))


def test_month_begins_and_ends_at_its_first_hours(spark: SparkSession) -> None:
    windows = [window(-1), window(0), window(719), window(720)]
    row = one_row(usage_by_period(windows_frame(spark, windows), MONTH, Period.MONTH))
    assert (row.period_ms, row.sent) == (MONTH_MS, 2)


def test_conflicting_figures_are_found_and_the_greater_ones_count(spark: SparkSession) -> None:
    same_time = [window(1, origins=[counters(sent=5)]), window(1, origins=[counters(sent=6)])]
    fell = [window(2, until_ms=hour(2) + 9, origins=[counters(sent=5)]), window(2, origins=[counters(sent=4)])]
    grew = [window(3, until_ms=hour(3) + 9), window(3, origins=[counters(sent=4)]), window(4), window(4)]
    frame = windows_frame(spark, same_time + fell + grew)
    assert figures(conflicting_windows(frame), "hour_ms", "sent") == [(hour(1), 6), (hour(2), 4)]
    assert figures(latest_windows(frame), "hour_ms", "sent")[:2] == [(hour(1), 6), (hour(2), 5)]


def test_frame_of_another_schema_is_refused(spark: SparkSession) -> None:
    frame = windows_frame(spark, [window()])
    with pytest.raises(SchemaMismatch, match="hour_ms: missing"):
        usage_by_period(frame.drop("hour_ms"), DAYS, Period.HOUR)
    with pytest.raises(SchemaMismatch, match="sent: string and not bigint"):
        usage_by_period(frame.withColumn("sent", frame.sent.cast("string")), DAYS, Period.HOUR)


FIGURE = st.integers(0, 1 << 40)


@st.composite
def histories(draw: st.DrawFn) -> list[UsageWindow]:
    """Windows of some partitions; the figures of a partition's hour grow with `until_ms`."""
    found = []
    for partition in range(draw(st.integers(1, 3))):
        queue = draw(st.sampled_from([QUEUE, OTHER_QUEUE]))
        for at in draw(st.lists(st.integers(-2, 47), max_size=4, unique=True)):
            cuts = sorted(draw(st.sets(st.integers(1, HOUR_MS), min_size=1, max_size=3)))
            totals = [0] * len(COUNTERS)
            for cut in cuts:
                totals = [total + draw(st.integers(0, 1 << 20)) for total in totals]
                origins = [counters(origin, **dict(zip(COUNTERS, totals, strict=True))) for origin in (1, 3)]
                level = draw(st.sampled_from([0, 1, 1_000_003, STORED_BYTES_MAX]))
                one = window(at, partition, until_ms=hour(at) + cut, stored_byte_ms=cut, stored_bytes=level)
                found.append(msgspec.structs.replace(one, queue_uuid=queue, origins=origins))
    return found


def expected(history: list[UsageWindow], interval: Interval) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """The same figures in plain Python, hour by hour."""
    latest: dict[tuple[int, int], UsageWindow] = {}
    for one in sorted(history, key=lambda one: one.until_ms):
        latest[one.partition, one.hour_ms] = one
    sums: dict[tuple[Any, ...], list[int]] = {}

    def add(one: UsageWindow, at: int, origin: int, *amounts: int) -> None:
        row = sums.setdefault((one.queue_uuid, at, origin), [0] * (len(COUNTERS) + 1))
        row[:] = [old + new for old, new in zip(row, amounts, strict=True)]

    for (partition, hour_ms), one in latest.items():
        later = [other for number, other in latest if number == partition and other > hour_ms]
        for at in range(interval.from_ms, interval.to_ms, HOUR_MS):
            if at == hour_ms:
                for origin in one.origins:
                    stored = one.stored_byte_ms if origin.origin == Origin.CLIENT else 0
                    add(one, at, origin.origin, *[getattr(origin, name) for name in COUNTERS], stored)
            if at >= hour_ms and at < min(later, default=interval.to_ms):
                kept = one.stored_bytes * (at + HOUR_MS - max(at, one.until_ms))
                add(one, at, int(Origin.CLIENT), *[0] * len(COUNTERS), kept)
    return {key: tuple(row) for key, row in sums.items() if any(row)}


def test_rollup_equals_plain_python_in_any_order_and_repetition(spark: SparkSession) -> None:
    @settings(max_examples=6)
    @given(histories(), st.randoms(use_true_random=False))
    def check(history: list[UsageWindow], chance: random.Random) -> None:
        records = history + chance.choices(history, k=len(history)) if history else []
        chance.shuffle(records)
        hours = usage(spark, records).cache()
        found = {
            (row.queue_uuid, row.period_ms, row.origin): (*[row[name] for name in COUNTERS], int(row.stored_byte_ms))
            for row in hours.collect()
        }
        assert {(bytes(key[0]), *key[1:]): row for key, row in found.items()} == expected(history, DAYS)
        # A coarser period is the sum of the finer ones, whichever way it is computed.
        assertDataFrameEqual(coarser(hours, Period.MONTH), usage(spark, records, Period.MONTH))
        hours.unpersist()

    check()


def test_splitting_an_hour_does_not_change_totals(spark: SparkSession) -> None:
    """Closing a window early, or spreading a queue over two partitions, gives what one window gives."""

    @settings(max_examples=4)
    @given(st.integers(1, HOUR_MS - 1), FIGURE, FIGURE, st.integers(0, 1 << 30))
    def check(cut: int, first: int, second: int, level: int) -> None:
        whole = window(1, origins=[counters(sent=first + second)], stored_byte_ms=level * HOUR_MS, stored_bytes=level)
        early = window(
            1, until_ms=hour(1) + cut, origins=[counters(sent=first)], stored_byte_ms=level * cut, stored_bytes=level
        )
        beside = [
            window(1, number, origins=[counters(sent=part)], stored_byte_ms=half * HOUR_MS, stored_bytes=half)
            for number, part, half in ((7, first, level // 2), (8, second, level - level // 2))
        ]
        once = usage(spark, [whole], Period.MONTH).collect()
        assert usage(spark, [early, whole], Period.MONTH).collect() == once
        assert usage(spark, beside, Period.MONTH).collect() == once

    check()
