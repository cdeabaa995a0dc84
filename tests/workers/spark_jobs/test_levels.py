"""What partitions stored when a settlement began is kept: the next one reads that, and the same hours come of it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.workers.spark_jobs.frames import OTHER_QUEUE, batches_frame, encode_record, hour, window
from workers.spark_jobs.jobs.command import Answer
from workers.spark_jobs.jobs.settle import settle_hours
from workers.spark_jobs.lake.ingestion import ingest_records
from workers.spark_jobs.lake.levels import latest_levels
from workers.spark_jobs.lake.manifest import Lake
from workers.spark_jobs.lake.settlement_files import DAY_COLUMNS
from workers.spark_jobs.lake.tables import read_windows
from workers.spark_jobs.limits import HOUR_MS
from workers.spark_jobs.schemas.usage_record import UsageWindow
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.periods import Period
from workers.spark_jobs.transforms.rollups import usage_by_period
from workers.usage.settling import files_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
NOW_MS = hour(200)


def ingest(spark: SparkSession, lake: Lake, name: str, *windows: UsageWindow) -> Path:
    """The file of its windows."""
    rows = [(3, number, encode_record(one)) for number, one in enumerate(windows)]
    entry = ingest_records(lake, batches_frame(spark, rows), name, NOW_MS)
    return lake.root / entry.tables["windows"][0].path


def stored(spark: SparkSession, lake: Lake, first: int, end: int) -> int:
    """Byte-hours of a span. No file is left out."""
    answer = settle_hours(spark, lake, HourSpan(hour(first), hour(end)), str(uuid.uuid4()), NOW_MS)
    assert answer["refused_files"] == []
    return stored_in(answer)


def stored_in(answer: Answer) -> int:
    text = b"".join(piece for file in files_of(Path(answer["directory"])) for piece in file).decode()
    place = DAY_COLUMNS.index("stored_byte_ms")
    total = sum(int(line.split("\t")[place]) for line in text.splitlines())
    assert total % HOUR_MS == 0
    return total // HOUR_MS


def test_settlements_of_later_hours_read_what_was_kept_and_not_the_windows_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    old = ingest(spark, lake, "a", window(0, stored_bytes=5), window(0, 8, queue_uuid=OTHER_QUEUE, stored_bytes=30))
    ingest(spark, lake, "b", window(9, 8, queue_uuid=OTHER_QUEUE, stored_bytes=20))
    assert stored(spark, lake, 5, 10) == 5 * 5 + 4 * 30
    kept = latest_levels(lake, lake.entries(), hour(7))
    assert kept is not None and (kept.hour_ms, kept.entries) == (hour(5), ["a", "b"])
    old.write_bytes(b"damaged")
    assert stored(spark, lake, 10, 11) == 5 + 20, "it is not read"
    assert latest_levels(lake, lake.entries(), hour(99)) != kept
    late = ingest(spark, lake, "late", window(3, stored_bytes=6), window(2, 8, queue_uuid=OTHER_QUEUE, stored_bytes=7))
    assert stored(spark, lake, 11, 12) == 6 + 20, "a record that came late counts where it is the last one before"
    assert stored(spark, lake, 12, 13) == 6 + 20
    newest = latest_levels(lake, lake.entries(), hour(99))
    assert newest is not None and (newest.hour_ms, "late" in newest.entries) == (hour(12), True)
    (lake.root / newest.files[0].path).write_bytes(b"torn")
    written = lake.entries()[0].tables["windows"][0].bytes
    assert late.exists() and settle_hours(spark, lake, HourSpan(hour(13), hour(14)), str(uuid.uuid4()), NOW_MS)[
        "refused_files"
    ] == [{"path": str(old.relative_to(lake.root)), "reason": "corrupt_file",
           "detail": f"7 bytes, and {written} were written"}]  # fmt: skip


def test_what_was_stored_is_not_carried_on_over_hours_of_which_a_file_cannot_be_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The file may say that the queue was emptied. From its next window on the queue is billed again."""
    lake = Lake(tmp_path)
    ingest(spark, lake, "a", window(0, stored_bytes=5), window(2, 8, queue_uuid=OTHER_QUEUE, stored_bytes=100))
    emptied = ingest(spark, lake, "b", window(3, stored_bytes=0))
    ingest(spark, lake, "c", window(8, stored_bytes=7))
    whole = emptied.read_bytes()
    assert stored(spark, lake, 0, 10) == 2 * 5 + 7 * 100 + 7
    emptied.write_bytes(b"damaged")
    # What the other queue stores from hour 3 on, when the file's hours begin, is unsure, too.
    for first, end, expected in ((0, 10, 2 * 5 + 7), (5, 10, 7), (1, 3, 2 * 5), (6, 7, 0)):
        answer = settle_hours(spark, lake, HourSpan(hour(first), hour(end)), str(uuid.uuid4()), NOW_MS)
        assert len(answer["refused_files"]) == (0 if end <= 3 else 1)
        assert stored_in(answer) == expected
        windows, _, unsure = read_windows(spark, lake, lake.entries(), HourSpan(hour(first), hour(end)), NOW_MS)
        rows = usage_by_period(windows, HourSpan(hour(first), hour(end)), Period.HOUR, unsure).collect()
        assert sum(int(row.stored_byte_ms) for row in rows) == expected * HOUR_MS
    emptied.write_bytes(whole)
    assert stored(spark, lake, 5, 10) == 5 * 100 + 7


def test_levels_of_an_entry_that_is_gone_are_not_used(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    ingest(spark, lake, "a", window(0, stored_bytes=5))
    ingest(spark, lake, "b", window(4, stored_bytes=9))
    assert stored(spark, lake, 5, 6) == 9
    (lake.root / "manifest" / "b.json").unlink()
    assert latest_levels(lake, lake.entries(), hour(6)) is None
    assert stored(spark, lake, 6, 7) == 5
