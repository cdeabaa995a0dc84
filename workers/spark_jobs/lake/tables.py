"""Frames into files of the lake, and files that are as the manifest says back into frames."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from workers.spark_jobs.lake.levels import files_behind, latest_levels
from workers.spark_jobs.lake.manifest import (
    CORRUPT_FILE,
    WINDOWS_TABLE,
    Lake,
    LakeEntry,
    LakeError,
    LakeFile,
    RefusedFile,
    describe_file,
    files_of_hours,
    sync,
    what_is_wrong,
)
from workers.spark_jobs.limits import HOUR_MS, TASK_WINDOWS_MAX
from workers.spark_jobs.schemas.frames import WINDOWS, conform
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.windows import last_windows

_HOUR = "hour_ms"
_PATTERN = re.compile(r"[\\{}\[\]*?^]")
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def write_table(lake: Lake, table: str, entry: str, frame: DataFrame) -> list[LakeFile]:
    """Replace what an ingestion that was cut off may have left there."""
    frame.write.mode("overwrite").parquet(str(lake.table(table, entry)))
    return listed_table(lake, table, entry)


def listed_table(lake: Lake, table: str, entry: str) -> list[LakeFile]:
    """The files that were written for an entry, on the disk from then on. Those without rows are taken away."""
    directory = lake.table(table, entry)
    found = []
    for path in sorted(directory.glob("*.parquet")):
        described = describe_file(lake.root, path)
        if described.rows:
            found.append(described)
            sync(path)
        else:
            path.unlink()
    sync(directory)
    sync(directory.parent)
    return found


class FoundWindows(NamedTuple):
    """`within`: the files that have some of the span. `before`: WINDOWS, the level that each partition had before it.
    `refused`: the files that had to be left out. `unsure`: the hours that these may have spoken of."""

    within: list[Path]
    before: DataFrame
    refused: list[RefusedFile]
    unsure: list[HourSpan]


class ReadWindows(NamedTuple):
    """`windows`: WINDOWS of the span, with the level that each partition had before it. The others as above."""

    windows: DataFrame
    refused: list[RefusedFile]
    unsure: list[HourSpan]


def find_windows(
    spark: SparkSession, lake: Lake, entries: Sequence[LakeEntry], span: HourSpan, now_ms: int
) -> FoundWindows:
    found = list(files_of_hours(entries, WINDOWS_TABLE, span))
    fit_shuffles(spark, sum(file.rows for file in found))
    within, refused = sound_files(lake, found, now_ms)
    levels = latest_levels(lake, entries, span.from_ms)
    if levels and any(what_is_wrong(lake.root / file.path, file) for file in levels.files):
        levels = None  # nothing is lost: the windows are there
    kept = [lake.root / file.path for file in levels.files] if levels else []
    behind = list(files_behind(entries, levels, span.from_ms))
    history, damaged = sound_files(lake, behind, now_ms)
    before = last_windows(read_files(spark, [*history, *kept], WINDOWS), span.from_ms)
    if history or kept:
        # A row of each partition, of all that was before: found once, however often the frame is read.
        before = before.persist(StorageLevel.DISK_ONLY)
    bad = {file.path: file for file in [*refused, *damaged]}
    hours = {HourSpan(file.hour_ms_min, file.hour_ms_max + HOUR_MS) for file in [*found, *behind] if file.path in bad}
    return FoundWindows(within, before, list(bad.values()), sorted(hours))


def read_windows(
    spark: SparkSession, lake: Lake, entries: Sequence[LakeEntry], span: HourSpan, now_ms: int
) -> ReadWindows:
    found = find_windows(spark, lake, entries, span, now_ms)
    return ReadWindows(
        windows_in(spark, found.within, span).unionByName(found.before), found.refused, found.unsure
    )  # fmt: skip


def windows_in(spark: SparkSession, paths: Sequence[Path], span: HourSpan) -> DataFrame:
    rows = read_files(spark, paths, WINDOWS)
    return rows.where((F.col(_HOUR) >= span.from_ms) & (F.col(_HOUR) < span.to_ms))


def fit_shuffles(spark: SparkSession, windows: int) -> None:
    """As many partitions of shuffles as so many windows need; never fewer than there are. Of what is planned from then
    on: a task with too many windows at once would sort them on disk."""
    found = int(spark.conf.get(_SHUFFLE_PARTITIONS) or 1)
    spark.conf.set(_SHUFFLE_PARTITIONS, max(found, math.ceil(windows / TASK_WINDOWS_MAX)))


def read_files(spark: SparkSession, paths: Sequence[Path], schema: StructType) -> DataFrame:
    if not paths:
        return spark.createDataFrame([], schema)
    return conform(spark.read.schema(schema).parquet(*map(_literal, paths)), schema, "files of the lake")


def _literal(path: Path) -> str:
    """For Spark, which takes some characters of a path as a pattern, and passes over files with some names without a
    word. Raises LakeError for one of these."""
    if path.name.startswith(("_", ".")):
        raise LakeError(f"{path}: Spark reads no file of such a name; give it another one")
    return _PATTERN.sub(r"\\\g<0>", str(path))


def sound_files(lake: Lake, files: Iterable[LakeFile], now_ms: int) -> tuple[list[Path], list[RefusedFile]]:
    """(files that are as they were written, the others, which are noted as refused)."""
    sound, refused = [], []
    for file in files:
        path = lake.root / file.path
        wrong = what_is_wrong(path, file)
        if wrong:
            refused.append(RefusedFile(file.path, CORRUPT_FILE, wrong, now_ms))
            lake.refuse(refused[-1])
        else:
            sound.append(path)
    return sound, refused
