"""Windows to hours, days and months (docs/usage.md): any order and repetition, early closings, gaps, late records."""

from __future__ import annotations

import random
from decimal import Decimal

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from storage_nodes.protocol.usage import Origin
from tests.workers.spark_jobs.frames import (
    MONTH_MS,
    counters,
    figures,
    hour,
    one_row,
    window,
    windows_frame,
)
from tests.workers.spark_jobs.histories import expected, random_history
from workers.spark_jobs.limits import DAY_MS, HOUR_MS, STORED_BYTES_MAX
from workers.spark_jobs.schemas.frames import COUNTERS, SchemaMismatch
from workers.spark_jobs.schemas.usage_record import UsageWindow
from workers.spark_jobs.spans import HourSpan, month_interval
from workers.spark_jobs.transforms.periods import Period
from workers.spark_jobs.transforms.rollups import coarser, settled, usage_by_period
from workers.spark_jobs.transforms.windows import conflicting_windows, last_windows, latest_windows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MONTH = month_interval("2026-11")
DAYS = HourSpan(hour(0), hour(48))


def usage(spark: SparkSession, windows: list[UsageWindow], period: Period = Period.HOUR) -> DataFrame:
    return usage_by_period(windows_frame(spark, windows), DAYS, period)


def test_repeated_record_counts_once(spark: SparkSession) -> None:
    row = one_row(usage(spark, [window(), window(), window()]))
    assert (row.sent, row.sent_bytes, row.period_ms) == (1, 10, hour(0))


def test_later_window_of_an_hour_replaces_the_earlier_one(spark: SparkSession) -> None:
    early = window(until_ms=hour(0) + 60_000, origins=[counters(Origin.PUSH, delivered=4)], stored_byte_ms=600)
    late = window(origins=[counters(sent=9), counters(Origin.PUSH, delivered=5)], stored_byte_ms=7_000, stored_bytes=0)
    found = figures(usage(spark, [late, early]), "origin", "sent", "delivered", "stored_byte_ms")
    assert found == [(Origin.CLIENT, 9, 0, Decimal(7_000)), (Origin.PUSH, 0, 5, Decimal(0))]


def test_origin_has_rows_of_its_own(spark: SparkSession) -> None:
    origins = [counters(sent=2), counters(Origin.CRON, sent=3), counters(Origin.REDRIVE, moved=4)]
    found = figures(usage(spark, [window(origins=origins)]), "origin", "sent", "moved")
    assert found == [(Origin.CLIENT, 2, 0), (Origin.REDRIVE, 0, 4), (Origin.CRON, 3, 0)]


def test_idle_partition_stores_until_the_span_ends(spark: SparkSession) -> None:
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


def test_refused_row_of_storage_ends_no_gap(spark: SparkSession) -> None:
    """Rows of a window are judged one by one: where its row of CLIENT is refused, the others say nothing of storage."""
    pushed = window(3, origins=[counters(Origin.PUSH, delivered=2)])
    windows = windows_frame(spark, [window(1, stored_bytes=100), pushed])
    rows = usage_by_period(windows.where(f"hour_ms = {hour(1)} OR origin <> 1"), DAYS, Period.DAY)
    found = figures(rows, "period_ms", "origin", "delivered", "stored_byte_ms")
    first_day = (hour(0), Origin.CLIENT, 0, Decimal(100 * 22 * HOUR_MS))
    gap = [first_day, (hour(24), Origin.CLIENT, 0, Decimal(100 * DAY_MS))]
    assert found == sorted([*gap, (hour(0), Origin.PUSH, 2, Decimal(0))])


def test_gap_is_shared_among_the_months_that_it_touches(spark: SparkSession) -> None:
    windows = windows_frame(spark, [window(718, stored_byte_ms=7, stored_bytes=10), window(720 + 3)])
    rows = usage_by_period(windows, HourSpan(hour(0), hour(720 + 24)), Period.MONTH)
    found = figures(rows, "period_ms", "sent", "stored_byte_ms")
    assert found == [(MONTH_MS, 1, Decimal(7 + 10 * HOUR_MS)), (hour(720), 1, Decimal(30 * HOUR_MS))]


def test_deleted_partition_stores_nothing_more(spark: SparkSession) -> None:
    row = one_row(usage(spark, [window(1, final=True, stored_byte_ms=9, stored_bytes=100)]))
    assert row.stored_byte_ms == Decimal(9)


def test_records_before_the_span_give_what_is_stored_when_it_begins(spark: SparkSession) -> None:
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
    row = one_row(settled(windows_frame(spark, windows), DAYS, Period.HOUR))
    assert (row.sent, row.stored_byte_ms) == (2, Decimal(4))


def test_month_begins_and_ends_at_its_first_hours(spark: SparkSession) -> None:
    windows = [window(-1), window(0), window(719), window(720)]
    row = one_row(usage_by_period(windows_frame(spark, windows), MONTH, Period.MONTH))
    assert (row.period_ms, row.sent) == (MONTH_MS, 2)


def test_conflicting_figures_are_found_and_the_greater_ones_count(spark: SparkSession) -> None:
    same_time = [window(1, origins=[counters(sent=5)]), window(1, origins=[counters(sent=6)])]
    fell = [window(2, until_ms=hour(2) + 9, origins=[counters(sent=5)]), window(2, origins=[counters(sent=4)])]
    grew = [
        window(3, until_ms=hour(3) + 9),
        window(3, origins=[counters(sent=4, sent_bytes=10, sent_units=1)]),
        window(4),
        window(4),
    ]
    frame = windows_frame(spark, same_time + fell + grew)
    assert figures(conflicting_windows(frame), "hour_ms", "sent") == [(hour(1), 6), (hour(2), 4)]
    assert figures(latest_windows(frame), "hour_ms", "sent")[:2] == [(hour(1), 6), (hour(2), 5)]


def test_records_that_came_several_times_contradict_nothing_beside_those_that_do(spark: SparkSession) -> None:
    """However many copies of each there are, and wherever they stand."""
    early = window(1, until_ms=hour(1) + 9, origins=[counters(sent=2)])
    one, other = window(1, origins=[counters(sent=5)]), window(1, origins=[counters(sent=6)])
    stays = [window(2, stored_bytes=3), window(2, stored_bytes=3), window(2, stored_bytes=3)]
    stored = [window(3, stored_bytes=3), window(3, stored_bytes=4), window(3, stored_bytes=3)]
    ended = [window(4), window(4, final=True), window(4)]
    owned = [window(5), window(5, account_id="999999999999"), window(5)]
    frame = windows_frame(spark, [one, early, other, one, early, other, one, *stays, *stored, *ended, *owned])
    found = figures(conflicting_windows(frame), "hour_ms", "sent", "stored_bytes", "final")
    assert found == [
        (hour(1), 6, 0, False), (hour(3), 1, 4, False),
        (hour(5), 1, 0, False), (hour(5), 1, 0, False),
    ]  # fmt: skip
    (last,) = latest_windows(frame).where(f"hour_ms = {hour(4)}").collect()
    assert last.final, "a window that is exported once more, when its partition is retired, is the last one"
    plan = conflicting_windows(frame)._jdf.queryExecution().executedPlan().toString()
    assert plan.split("Window ")[-1].count("Exchange ") == 1, "all windows are exchanged once"


def test_frame_of_another_schema_is_refused(spark: SparkSession) -> None:
    frame = windows_frame(spark, [window()])
    with pytest.raises(SchemaMismatch, match="hour_ms: missing"):
        usage_by_period(frame.drop("hour_ms"), DAYS, Period.HOUR)
    with pytest.raises(SchemaMismatch, match="sent: string and not bigint"):
        usage_by_period(frame.withColumn("sent", frame.sent.cast("string")), DAYS, Period.HOUR)


FIGURE = st.integers(0, 1 << 40)


def in_cluster(history: list[UsageWindow], number: int) -> list[UsageWindow]:
    """Examples share one run of Spark, each in a cluster of its own."""
    return [msgspec.structs.replace(one, cluster=str(number)) for one in history]


def test_rollup_equals_plain_python_in_any_order_and_repetition(spark: SparkSession) -> None:
    @settings(max_examples=1, phases=[Phase.generate])
    @given(st.integers(0, 1 << 32))
    def check(seed: int) -> None:
        chance = random.Random(seed)
        examples = [random_history(chance) for _ in range(60)]
        records = [one for number, history in enumerate(examples) for one in in_cluster(history, number)]
        records += chance.choices(records, k=len(records))
        chance.shuffle(records)
        hours = usage(spark, records).cache()
        found = {
            (row.cluster, bytes(row.queue_uuid), row.period_ms, row.origin): (
                *[row[name] for name in COUNTERS],
                int(row.stored_byte_ms),
            )
            for row in hours.collect()
        }
        assert found == {
            (str(number), *key): row
            for number, history in enumerate(examples)
            for key, row in expected(history, DAYS).items()
        }
        # A coarser period is the sum of the finer ones, whichever way it is computed.
        assertDataFrameEqual(coarser(hours, Period.MONTH), usage(spark, records, Period.MONTH))
        hours.unpersist()

    check()


def test_splitting_an_hour_does_not_change_totals(spark: SparkSession) -> None:
    """Closing a window early, or spreading a queue over two partitions, gives what one window gives."""
    split = st.tuples(st.integers(1, HOUR_MS - 1), FIGURE, FIGURE, st.integers(0, 1 << 30))

    @settings(max_examples=1, phases=[Phase.generate])
    @given(st.lists(split, min_size=30, max_size=30))
    def check(splits: list[tuple[int, int, int, int]]) -> None:
        once, early, beside = [], [], []
        for number, (cut, first, second, level) in enumerate(splits):
            full = level * HOUR_MS
            whole = window(1, origins=[counters(sent=first + second)], stored_byte_ms=full, stored_bytes=level)
            part = window(1, until_ms=hour(1) + cut, stored_byte_ms=level * cut, stored_bytes=level)
            once += in_cluster([whole], number)
            early += in_cluster([whole, msgspec.structs.replace(part, origins=[counters(sent=first)])], number)
            for partition, sent, half in ((7, first, level // 2), (8, second, level - level // 2)):
                one = window(1, partition, origins=[counters(sent=sent)], stored_byte_ms=half * HOUR_MS)
                beside += in_cluster([msgspec.structs.replace(one, stored_bytes=half)], number)
        totals = usage(spark, once, Period.MONTH)
        assertDataFrameEqual(usage(spark, early, Period.MONTH), totals)
        assertDataFrameEqual(usage(spark, beside, Period.MONTH), totals)

    check()
