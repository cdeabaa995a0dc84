"""Records into the lake: read, judged, written, and then entered in the manifest. Again after a crash: the same entry.

Nothing is dropped: what is not taken is in `quarantine`, or, where it is a whole file, in `refused`, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType

from workers.spark_jobs.lake.manifest import (
    CORRUPT_FILE,
    DUPLICATE_FILE,
    MANIFEST_VERSION,
    QUARANTINE_TABLE,
    REQUESTS_TABLE,
    UNKNOWN_SCHEMA,
    WINDOWS_TABLE,
    Lake,
    LakeEntry,
    LakeError,
    LakeFile,
    RefusedFile,
    sha256_of,
    what_is_wrong,
)
from workers.spark_jobs.lake.shown import show_quarantine
from workers.spark_jobs.lake.staging import Copies, Staging
from workers.spark_jobs.lake.tables import read_files, write_table
from workers.spark_jobs.schemas.frames import PLACED_REQUESTS, PLACED_WINDOWS, QUARANTINE, REQUESTS, WINDOWS, conform
from workers.spark_jobs.transforms.checks import accepted, any_refused, judged_requests, judged_windows, refused

_ARROW_WINDOWS = to_arrow_schema(WINDOWS)
_PLACED = {WINDOWS_TABLE: PLACED_WINDOWS, REQUESTS_TABLE: PLACED_REQUESTS}
_JUDGED = ((WINDOWS_TABLE, WINDOWS, judged_windows), (REQUESTS_TABLE, REQUESTS, judged_requests))


def ingest_records(lake: Lake, batches: DataFrame, entry: str, now_ms: int) -> LakeEntry:
    """Records of the usage stream (STREAM_BATCHES) as one entry. Does nothing where the entry is there already."""
    if lake.has(entry):
        return next(one for one in lake.entries() if one.name == entry)
    with Staging(lake, entry) as staging:
        staging.write(batches)
        tables: dict[str, list[LakeFile]] = {}
        bad = []
        for table, schema, judged_by in _JUDGED:
            placed = read_files(batches.sparkSession, staging.files[table], _PLACED[table])
            judged = judged_by(placed, now_ms)
            if staging.files[table] and any_refused(judged):
                tables[table] = write_table(lake, table, entry, conform(accepted(judged), schema, table))
                bad.append(refused(judged))
            else:
                tables[table] = staging.keep(table)
        if bad:
            unreadable = read_files(batches.sparkSession, staging.files[QUARANTINE_TABLE], QUARANTINE)
            tables[QUARANTINE_TABLE] = write_table(
                lake, QUARANTINE_TABLE, entry, reduce(DataFrame.unionByName, [unreadable, *bad])
            )
        else:
            tables[QUARANTINE_TABLE] = staging.keep(QUARANTINE_TABLE)
    return _entered(lake, entry, now_ms, tables, [])


def ingest_files(
    spark: SparkSession,
    lake: Lake,
    files: list[Path],
    entry: str,
    now_ms: int,
    tell_refused: Callable[[RefusedFile], object] = lambda file: None,
) -> LakeEntry:
    """Parquet files of WINDOWS, from elsewhere, as one entry: each once, however often and in which order they come.
    One that came before is taken again where what was made of it is damaged.

    What is read are copies in the lake: their names mean nothing to Spark, all machines of a cluster see them, and
    nobody changes them between the look and the reading. Raises LakeError where not each row was read."""
    sources: dict[str, list[LakeEntry]] = {}
    for one in lake.entries():
        for digest in one.source_sha256:
            sources.setdefault(digest, []).append(one)
    taken: dict[str, Path] = {}
    with Copies(lake, entry) as copies:
        for path in files:
            found = _examine(lake, path, copies, sources, taken, now_ms)
            if isinstance(found, RefusedFile):
                lake.refuse(found)
                tell_refused(found)
            else:
                taken[found] = copies.keep(found)
        judged = judged_windows(read_files(spark, list(taken.values()), WINDOWS), now_ms)
        place = F.lit(None).cast(LongType())
        bad = refused(judged.withColumns({"stream_partition": place, "stream_offset": place}))
        tables = {
            WINDOWS_TABLE: write_table(lake, WINDOWS_TABLE, entry, conform(accepted(judged), WINDOWS, "windows")),
            QUARANTINE_TABLE: write_table(lake, QUARANTINE_TABLE, entry, bad),
        }
        given = sum(pq.read_metadata(path).num_rows for path in taken.values())
    written = sum(file.rows for table in tables.values() for file in table)
    if written != given:
        raise LakeError(f"{entry}: {given} rows are in the files, and {written} were written; nothing was taken")
    return _entered(lake, entry, now_ms, tables, sorted(taken))


def _entered(
    lake: Lake, name: str, now_ms: int, tables: dict[str, list[LakeFile]], source_sha256: list[str]
) -> LakeEntry:
    entry = LakeEntry(MANIFEST_VERSION, name, now_ms, tables, source_sha256)
    show_quarantine(lake, name, _rows_of(lake, tables[QUARANTINE_TABLE]))
    lake.add(entry)
    return entry


def _rows_of(lake: Lake, files: list[LakeFile]) -> Iterator[dict[str, Any]]:
    for listed in files:
        with pq.ParquetFile(lake.root / listed.path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()


def _examine(
    lake: Lake, path: Path, copies: Copies, sources: dict[str, list[LakeEntry]], taken: Container[str], now_ms: int
) -> str | RefusedFile:
    """The digest of a file that is to be taken, whose copy is the last one; or why it is not."""
    digest = ""
    try:
        copy = copies.make(path)
        digest = sha256_of(copy)
        if digest in taken or any(_is_whole(lake, entry) for entry in sources.get(digest, ())):
            reason, detail = DUPLICATE_FILE, f"ingested before, as {digest}"
        elif wrong := _wrong_columns(pq.read_schema(copy)):
            reason, detail = UNKNOWN_SCHEMA, wrong
        else:
            _read_through(copy)
            return digest
    except (OSError, pa.ArrowException) as error:
        reason, detail = CORRUPT_FILE, (str(error).splitlines() or [type(error).__name__])[0]
    return RefusedFile(str(path), reason, detail, now_ms, digest)


def _is_whole(lake: Lake, entry: LakeEntry) -> bool:
    return not any(what_is_wrong(lake.root / file.path, file) for file in entry.tables.get(WINDOWS_TABLE, ()))


def _read_through(path: Path) -> None:
    """Every page of it, so that a damaged one ends no job of Spark."""
    with pq.ParquetFile(path) as file:
        for _ in file.iter_batches():
            pass


def _wrong_columns(schema: pa.Schema) -> str:
    found = {field.name: field.type for field in schema}
    wrong = [
        f"{field.name}: {found.get(field.name, 'missing')} and not {field.type}"
        for field in _ARROW_WINDOWS
        if found.get(field.name) != field.type
    ]
    return "; ".join(wrong)
