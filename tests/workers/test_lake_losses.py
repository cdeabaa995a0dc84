"""A lake that lost something (`workers/usage/lake_losses.py`): no bill becomes smaller by a loss."""

from __future__ import annotations

import shutil
import time

import msgspec
import pytest

from api.billing.models import QuarantinedUsage, UsageRun
from tests.workers.test_usage_rounds import Spark, entry, hour, refused, run_round, settled_figures
from tests.workers.test_usage_rounds import spark as spark
from workers.spark_jobs.lake.manifest import CORRUPT_FILE, MANIFEST_VERSION, LakeEntry, LakeFile, RefusedFile, sha256_of
from workers.spark_jobs.limits import CLOSE_GRACE_MS
from workers.spark_jobs.spans import HourSpan
from workers.usage import give_up, rounds
from workers.usage.rounds import UsageRound, roll_up_days


def test_file_that_counts_again_is_refused_no_longer(spark: Spark) -> None:
    path = spark.lake.root / "windows/a/x.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"usage")
    file = LakeFile("windows/a/x.parquet", 5, 1, sha256_of(path), hour(0), hour(0))
    spark.lake.add(LakeEntry(MANIFEST_VERSION, "a", 0, {"windows": [file]}))
    path.write_bytes(b"usagf")
    spark.lake.refuse(RefusedFile(file.path, CORRUPT_FILE, "its content is not what was written", hour(1)))
    spark.left_out = [refused(file.path)]
    run_round(spark, hour(1) + CLOSE_GRACE_MS)
    assert QuarantinedUsage.objects.get().resolved_at is None
    path.write_bytes(b"usage")
    spark.left_out, spark.figures = [], {0: 5}
    run_round(spark, hour(1) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5} and spark.lake.refused() == []
    assert QuarantinedUsage.objects.get().resolved_at is not None


def test_file_that_is_given_up_counts_no_more_and_makes_no_figure_smaller(
    spark: Spark, capsys: pytest.CaptureFixture[str]
) -> None:
    path, lake = spark.lake.root / "windows/a/x.parquet", ["--lake", str(spark.lake.root)]
    path.parent.mkdir(parents=True)
    path.write_bytes(b"usage")
    file = LakeFile("windows/a/x.parquet", 5, 1, sha256_of(path), hour(0), hour(0))
    spark.lake.add(LakeEntry(MANIFEST_VERSION, "a", 0, {"windows": [file]}))
    spark.figures = {0: 5}
    run_round(spark, hour(1) + CLOSE_GRACE_MS)
    assert give_up.main([*lake, file.path]) == 1 and "as it was written" in capsys.readouterr().err
    path.write_bytes(b"usagf")
    spark.lake.refuse(RefusedFile(file.path, CORRUPT_FILE, "its content is not what was written", hour(1)))
    spark.left_out, spark.figures = [refused(file.path)], {1: 7}
    spark.lake.add(entry("b", 0, 1))
    run_round(spark, hour(2) + CLOSE_GRACE_MS)
    assert QuarantinedUsage.objects.get().resolved_at is None and settled_figures() == {0: 5, 1: 7}
    assert give_up.main([*lake, file.path, "windows/a/other.parquet"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{file.path}: given up", "windows/a/other.parquet: no entry of the lake lists it",
    ]  # fmt: skip
    assert spark.lake.refused() == [] and spark.lake.entries()[0].tables == {"windows": []}
    spark.left_out = []
    spark.lake.add(entry("late", 0, 1))
    run_round(spark, hour(2) + CLOSE_GRACE_MS)
    assert QuarantinedUsage.objects.get().resolved_at is not None and settled_figures() == {0: 5, 1: 7}


@pytest.mark.parametrize("lost", ["manifest/a.json", "all"])
def test_lake_that_lost_entries_makes_no_figure_smaller(spark: Spark, lost: str) -> None:
    spark.arrive("a", {0: 5, 1: 6})
    spark.arrive("b", {1: 8})
    run_round(spark, hour(2) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5, 1: 8}
    for path in list(spark.lake.root.iterdir()) if lost == "all" else [spark.lake.root / lost]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    spark.figures = {0: 2, 2: 9}  # what is there still, and what comes late
    new_ms = int(time.time() * 1000) + 1
    spark.lake.add(msgspec.structs.replace(entry("late", 0, 2), ingested_ms=new_ms))
    for _ in range(2):  # the round after the one that has found the loss knows of it, too
        run_round(spark, hour(3) + CLOSE_GRACE_MS)
        assert settled_figures() == {0: 5, 1: 8, 2: 9}
        spark.lake.add(msgspec.structs.replace(entry("later", 0, 2), ingested_ms=new_ms))
    assert "lost some" in UsageRun.objects.order_by("-started_at")[0].note


def test_notes_of_the_lake_that_cannot_be_read_hold_up_no_round(spark: Spark) -> None:
    spark.arrive("a", {0: 5})
    for name in ("settled.json", "lost.json", "days_left.json", "watermarks.json"):
        (spark.lake.root / name).write_bytes(b"{torn")
    assert rounds.read_watermarks(spark.lake) == {}
    for name in ("refused/x.json", "quarantine/a.shown.json"):
        (spark.lake.root / name).parent.mkdir(exist_ok=True)
        (spark.lake.root / name).write_bytes(b"{torn")
    settled = run_round(spark, hour(24) + CLOSE_GRACE_MS)
    work = UsageRound(spark.lake, "one", "1=a:1", lambda: True, spark.run_job, spark)
    assert roll_up_days(work, settled) == [HourSpan(hour(0), hour(24))]
    assert settled_figures() == {0: 5}
    assert QuarantinedUsage.objects.get().record == {"file": "quarantine/a.shown.json"}
