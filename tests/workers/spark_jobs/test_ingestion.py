"""Into the lake (docs/usage.md): what is bad is quarantined with its reason, the rest goes on; again after a crash."""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from storage_nodes.protocol.usage import Origin
from tests.workers.spark_jobs.frames import (
    ACCOUNT,
    OTHER_ACCOUNT,
    batches_frame,
    counters,
    encode_record,
    figures,
    hour,
    window,
    windows_frame,
)
from workers.spark_jobs.jobs import ingest_files as ingest_files_job
from workers.spark_jobs.jobs.command import EXIT_REFUSED
from workers.spark_jobs.lake import ingestion
from workers.spark_jobs.lake.ingestion import ingest_files, ingest_records
from workers.spark_jobs.lake.manifest import Lake, LakeError
from workers.spark_jobs.lake.shown import shown_quarantine
from workers.spark_jobs.lake.staging import Staging, TaskFile
from workers.spark_jobs.lake.tables import read_files, read_windows
from workers.spark_jobs.limits import CLOCK_AHEAD_MS_MAX, HOUR_MS, QUARANTINE_SHOWN_MAX
from workers.spark_jobs.schemas.frames import ACCOUNTS, QUARANTINE, WINDOWS
from workers.spark_jobs.schemas.usage_record import RequestReport, RequestRow
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.checks import of_known_accounts
from workers.spark_jobs.transforms.decoding import WINDOWS_SCHEMA, decode_records

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOW_MS = hour(48)
SPAN = HourSpan(hour(0), hour(48))
GOOD = window()
ROW = RequestRow(ACCOUNT, b"q" * 16, "AKPSX", 5, 2, 0)


def changed(**fields: object) -> bytes:
    return encode_record(msgspec.structs.replace(window(1), **fields))


LAST_HOUR_MS = ((1 << 63) - 1) // HOUR_MS * HOUR_MS  # whose end is beyond 64 bits

BAD: dict[bytes, str] = {
    b"\x07\x01rubbish": "unknown_version",
    b"\x01\x05rubbish": "unknown_kind",
    b"\x01\x01rubbish": "malformed",
    changed(account_id="12"): "malformed",
    changed(queue_uuid=b"short"): "malformed",
    changed(stored_bytes=-1): "negative_counter",
    changed(origins=[counters(sent=-1)]): "negative_counter",
    changed(origins=[counters(sent=1 << 50)]): "implausible",
    changed(stored_bytes=1 << 42): "implausible",
    changed(hour_ms=hour(1) + 5): "bad_hour",
    changed(until_ms=hour(2) + 1): "bad_hour",
    changed(hour_ms=LAST_HOUR_MS, until_ms=LAST_HOUR_MS): "clock_ahead",
    changed(hour_ms=-HOUR_MS, until_ms=(1 << 63) - 1): "bad_hour",
    changed(origins=[counters(sent=1 << 63)]): "malformed",
    changed(until_ms=hour(1) - 1): "bad_hour",
    changed(hour_ms=NOW_MS + CLOCK_AHEAD_MS_MAX + HOUR_MS, until_ms=NOW_MS + CLOCK_AHEAD_MS_MAX + HOUR_MS):
        "clock_ahead",
    encode_record(RequestReport(b"f" * 16, 1, hour(0), [msgspec.structs.replace(ROW, requests=-5)])):
        "negative_counter",
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """With one entry: a good window, a good report, all that is bad."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    good = [encode_record(GOOD), encode_record(RequestReport(b"f" * 16, 1, hour(0), [ROW]))]
    rows = [(3, at, value) for at, value in enumerate([*good, *BAD])]
    rows.append((3, 99, changed(origins=[msgspec.structs.replace(counters(sent=1), origin=77)])))
    ingest_records(lake, batches_frame(spark, rows), "stream-1", NOW_MS)
    return lake


def test_good_records_are_taken_among_bad_ones(spark: SparkSession, lake: Lake) -> None:
    windows, refused, _ = read_windows(spark, lake, lake.entries(), SPAN, NOW_MS)
    # The row that every window has for CLIENT is sound in the window of an unknown origin, too.
    assert figures(windows, "hour_ms", "origin", "sent") == [(hour(0), 1, 1), (hour(1), 1, 0)] and not refused
    assert lake.entries()[0].rows("requests") == 1


def test_every_bad_record_is_quarantined_with_its_reason_and_place(spark: SparkSession, lake: Lake) -> None:
    paths = [lake.root / file.path for file in lake.entries()[0].tables["quarantine"]]
    rows = read_files(spark, paths, QUARANTINE).collect()
    reasons = [*BAD.values(), "unknown_origin"]
    assert sorted(row.reason for row in rows) == sorted(reasons)
    assert sorted(row.stream_offset for row in rows) == [*range(2, 2 + len(BAD)), 99]
    by_offset = {row.stream_offset: row for row in rows}
    assert by_offset[2].value == bytearray(b"\x07\x01rubbish")
    assert json.loads(by_offset[7].detail)["stored_bytes"] == -1


def test_what_was_quarantined_is_shown_without_spark(lake: Lake) -> None:
    shown = shown_quarantine(lake, "stream-1")
    assert shown.counts == Counter([*BAD.values(), "unknown_origin"])
    by_offset = {record.stream_offset: record for record in shown.records}
    assert by_offset[2].value == b"\x07\x01rubbish".hex() and by_offset[2].stream_partition == 3
    assert json.loads(by_offset[7].detail)["stored_bytes"] == -1


def test_ingestion_that_was_done_is_not_done_again(spark: SparkSession, lake: Lake) -> None:
    assert ingest_records(lake, batches_frame(spark, []), "stream-1", NOW_MS) == lake.entries()[0]


def test_ingestion_that_was_cut_off_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """Files without an entry do not count, and a second try leaves nothing of the first."""
    lake = Lake(tmp_path)
    rest = lake.table("windows", "stream-1")
    windows_frame(spark, [window(5), window(6)]).write.parquet(str(rest))
    assert read_windows(spark, lake, lake.entries(), SPAN, NOW_MS)[0].count() == 0
    ingest_records(lake, batches_frame(spark, [(3, 0, encode_record(GOOD))]), "stream-1", NOW_MS)
    windows, *_ = read_windows(spark, lake, lake.entries(), SPAN, NOW_MS)
    assert figures(windows, "hour_ms") == [(hour(0),)]


def test_files_of_sound_records_are_those_that_the_tasks_wrote_and_no_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing is judged bad: no file is written again. What a repeated task, or a try before, left is gone."""
    lake = Lake(tmp_path)
    with Staging(lake, "stream-1") as staging:
        staging.write(batches_frame(spark, [(3, 0, encode_record(GOOD)), (3, 1, encode_record(window(1)))]))
        written = {path.name for path in staging.files["windows"]}
        shutil.copy(staging.files["windows"][0], staging.root / "windows" / "part-of-a-task-that-was-repeated.parquet")
        rest = lake.table("windows", "stream-1") / "part-of-a-try-before.parquet"
        rest.parent.mkdir(parents=True)
        rest.write_bytes(b"torn")
        kept = staging.keep("windows")
        assert {Path(file.path).name for file in kept} == written == {path.name for path in rest.parent.iterdir()}
        assert sum(file.rows for file in kept) == 2
        hours = [(file.hour_ms_min, file.hour_ms_max) for file in kept]
        assert (min(hours)[0], max(hours)[1]) == (hour(0), hour(1)), "in whichever order the files are"
        assert staging.keep("requests") == []
    assert not staging.root.exists()


def test_every_row_of_the_decoder_is_in_a_file_however_its_groups_are_cut(tmp_path: Path) -> None:
    rows = decode_records(3, enumerate(encode_record(window(at)) for at in range(5))).windows
    file = TaskFile(tmp_path, WINDOWS_SCHEMA)
    for _ in range(3):
        file.add(rows)
    file.close()
    assert file.rows == 15 and pq.read_table(file.path).num_rows == 15
    assert pq.read_table(file.path).column("stream_offset").to_pylist() == [*range(5)] * 3
    empty = TaskFile(tmp_path, WINDOWS_SCHEMA)
    empty.add(rows.slice(0, 0))
    empty.close()
    assert not empty.path.exists()


def files_of(spark: SparkSession, folder: Path, numbers: range) -> list[Path]:
    """A Parquet file of each hour."""
    for number in numbers:
        windows_frame(spark, [window(number)]).coalesce(1).write.parquet(str(folder / str(number)))
    return sorted(folder.rglob("*.parquet"))


def test_bad_files_are_refused_with_a_reason_and_the_others_taken(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    good, other = files_of(spark, tmp_path / "in", range(2))
    twin, torn, rubbish, foreign = (tmp_path / f"{name}.parquet" for name in ("twin", "torn", "rubbish", "foreign"))
    shutil.copy(good, twin)
    torn.write_bytes(other.read_bytes()[:-20])
    rubbish.write_bytes(b"PAR1 or not")
    spark.range(3).coalesce(1).write.parquet(str(tmp_path / "ids"))
    shutil.copy(next((tmp_path / "ids").glob("*.parquet")), foreign)
    entry = ingest_files(spark, lake, [good, twin, torn, rubbish, foreign, tmp_path / "gone.parquet"], "a", NOW_MS)
    assert entry.rows("windows") == 1
    again = ingest_files(spark, lake, [other, good], "b", NOW_MS)
    assert again.rows("windows") == 1, "a file that came before is not taken again"
    found = sorted((Path(file.path).name, file.reason) for file in lake.refused())
    expected = [("foreign", "unknown_schema"), ("gone", "corrupt_file"), ("rubbish", "corrupt_file")]
    expected += [("torn", "corrupt_file"), ("twin", "duplicate_file")]
    assert found == sorted([*((f"{name}.parquet", why) for name, why in expected), (good.name, "duplicate_file")])


def test_job_names_refused_files_with_the_reason_and_ends_otherwise(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ingest_files_job, "spark_session", lambda name: nullcontext(spark))
    (good,), rubbish = files_of(spark, tmp_path / "in", range(1)), tmp_path / "rubbish.parquet"
    rubbish.write_bytes(b"PAR1 or not")
    line = ["--lake", str(tmp_path / "lake"), "--now", str(NOW_MS)]
    assert ingest_files_job.main([*line, str(rubbish), str(good)]) == EXIT_REFUSED
    told = capsys.readouterr()
    first, second = told.err.splitlines()
    assert first == "1 of 2 files were refused, and nothing of them was taken:"
    assert second.startswith(f"{rubbish}: corrupt_file, ")
    answer = json.loads(told.out)
    assert (answer["windows"], [one["path"] for one in answer["refused_files"]]) == (1, [str(rubbish)])
    fresh = files_of(spark, tmp_path / "more", range(1, 2))
    assert ingest_files_job.main([*line, *map(str, fresh)]) == 0, "what was refused before is no news"
    assert capsys.readouterr().err == ""


def test_job_names_a_few_of_many_refused_files(capsys: pytest.CaptureFixture[str]) -> None:
    many = [{"path": str(number), "reason": "r", "detail": "d"} for number in range(QUARANTINE_SHOWN_MAX + 7)]
    assert ingest_files_job.told({"files": 99, "refused_files": many}) == EXIT_REFUSED
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == QUARANTINE_SHOWN_MAX + 2 and lines[-1].startswith("and 7 more: ")


def test_names_of_files_mean_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Spark passes over some without a word, and takes others as a pattern."""
    lake = Lake(tmp_path / "lake[1]")
    made = files_of(spark, tmp_path / "in", range(5))
    names = ["_a.parquet", ".b.parquet", "w1.parquet", "w[1].parquet", "{c,d}.parquet"]
    (tmp_path / "odd").mkdir()
    given = [file.rename(tmp_path / "odd" / name) for file, name in zip(made, names, strict=True)]
    entry = ingest_files(spark, lake, [given[0], given[1], *given[3:]], "a", NOW_MS)
    assert (entry.rows("windows"), len(entry.source_sha256)) == (4, 4) and lake.refused() == []
    windows, *_ = read_windows(spark, lake, lake.entries(), SPAN, NOW_MS)
    assert sorted(row.hour_ms for row in windows.collect()) == [hour(0), hour(1), hour(3), hour(4)]
    assert not list((lake.root / "staging").iterdir())
    with pytest.raises(LakeError, match="another"):
        read_files(spark, [given[0]], WINDOWS)


def test_nothing_is_taken_where_a_row_was_not_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    files = files_of(spark, tmp_path / "in", range(2))
    monkeypatch.setattr(ingestion, "read_files", lambda spark, paths, schema: read_files(spark, paths[:1], schema))
    with pytest.raises(LakeError, match="2 rows are in the files, and 1 were written"):
        ingest_files(spark, lake, files, "a", NOW_MS)
    assert lake.entries() == []


def test_bad_files_that_come_under_one_name_are_all_told(spark: SparkSession, tmp_path: Path) -> None:
    lake, daily = Lake(tmp_path / "lake"), tmp_path / "daily.parquet"
    for content in (b"one", b"another", b"one"):
        daily.write_bytes(content)
        ingest_files(spark, lake, [daily], f"e-{len(lake.entries())}", NOW_MS)
    assert len(lake.refused()) == 2


def test_source_of_a_file_that_was_damaged_in_the_lake_is_taken_again(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    sources = files_of(spark, tmp_path / "in", range(2))
    made = ingest_files(spark, lake, sources, "a", NOW_MS)
    (lake.root / made.tables["windows"][0].path).write_bytes(b"torn")
    again = ingest_files(spark, lake, sources, "b", NOW_MS)
    assert again.rows("windows") == 2
    assert ingest_files(spark, lake, sources, "c", NOW_MS).rows("windows") == 0, "once"
    windows, refused, unsure = read_windows(spark, lake, lake.entries(), SPAN, NOW_MS)
    assert {row.hour_ms for row in windows.collect()} == {hour(0), hour(1)}
    assert len(refused) == len(unsure) == 1


def test_file_that_was_damaged_in_the_lake_is_left_out_and_shown(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for name, file in zip("ab", files_of(spark, tmp_path / "in", range(2)), strict=True):
        ingest_files(spark, lake, [file], name, NOW_MS)
    damaged = lake.root / lake.entries()[0].tables["windows"][0].path
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    windows, refused, unsure = read_windows(spark, lake, lake.entries(), SPAN, NOW_MS)
    assert windows.count() == 1 and unsure == [HourSpan(hour(0), hour(1))]
    assert [(one.path, one.reason) for one in refused] == [(str(damaged.relative_to(lake.root)), "corrupt_file")]
    assert lake.refused() == refused


def test_manifest_that_cannot_be_read_ends_the_job(tmp_path: Path) -> None:
    """A recount that misses an entry would bill less without a word."""
    (tmp_path / "manifest").mkdir()
    (tmp_path / "manifest" / "x.json").write_text("{")
    with pytest.raises(LakeError, match=r"x\.json"):
        Lake(tmp_path).entries()


def test_records_of_unknown_accounts_are_quarantined(spark: SparkSession) -> None:
    frame = windows_frame(spark, [window(0), window(1, account_id=OTHER_ACCOUNT)])
    kept, unknown = of_known_accounts(frame, spark.createDataFrame([(ACCOUNT,)], ACCOUNTS))
    assert figures(kept, "account_id") == [(ACCOUNT,)]
    row = unknown.collect()[0]
    assert (row.reason, json.loads(row.detail)["account_id"]) == ("unknown_account", OTHER_ACCOUNT)
    assert json.loads(row.detail)["queue_uuid"] == uuid.UUID(int=1).hex
    assert json.loads(row.detail)["origin"] == Origin.CLIENT
