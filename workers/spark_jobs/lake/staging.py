"""Records of the usage stream as files that are not judged yet: tasks of Spark decode them and write Parquet.

    staging/ENTRY/windows|requests|quarantine/*.parquet

Rows go from the stream into files without a way through the JVM, which would cost several times their decoding and
writing (docs/performance.md). What a task that was repeated has written before is not among the files that are told.
"""

from __future__ import annotations

import gc
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from workers.spark_jobs.lake.manifest import (
    QUARANTINE_TABLE,
    REQUESTS_TABLE,
    TABLES,
    WINDOWS_TABLE,
    Lake,
    LakeFile,
    sync,
)
from workers.spark_jobs.lake.tables import listed_table
from workers.spark_jobs.limits import FILE_GROUP_ROWS
from workers.spark_jobs.schemas.frames import STREAM_BATCHES, conform
from workers.spark_jobs.transforms.decoding import (
    QUARANTINE_SCHEMA,
    REQUESTS_SCHEMA,
    WINDOWS_SCHEMA,
    decode_records,
    values_of,
)

_SCHEMAS = {WINDOWS_TABLE: WINDOWS_SCHEMA, REQUESTS_TABLE: REQUESTS_SCHEMA, QUARANTINE_TABLE: QUARANTINE_SCHEMA}
_WRITTEN = "table string, name string"


class Staging:
    """The files of one entry until they are judged. `with Staging(lake, entry) as staging:`"""

    def __init__(self, lake: Lake, entry: str) -> None:
        self.root = lake.root / "staging" / entry
        self._lake, self._entry = lake, entry
        self.files: dict[str, list[Path]] = {table: [] for table in TABLES}

    def __enter__(self) -> Staging:
        self._clear()
        for table in TABLES:
            (self.root / table).mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def write(self, batches: DataFrame) -> None:
        """Decode STREAM_BATCHES into files. Raises what ends a job of Spark."""
        for row in (
            conform(batches, STREAM_BATCHES, "batches of the usage stream")
            .mapInArrow(_writing(self.root), _WRITTEN)
            .collect()
        ):
            self.files[row.table].append(self.root / row.table / row.name)

    def keep(self, table: str) -> list[LakeFile]:
        """The files of a table as those of the entry, in the place of what one that was cut off has left."""
        for path in set((self.root / table).iterdir()) - set(self.files[table]):
            path.unlink()  # of a task that was repeated
        directory = self._lake.table(table, self._entry)
        shutil.rmtree(directory, ignore_errors=True)
        directory.parent.mkdir(parents=True, exist_ok=True)
        os.rename(self.root / table, directory)
        return listed_table(self._lake, table, self._entry)

    def _clear(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


class Copies:
    """Of files from elsewhere, while they are judged. `with Copies(lake, entry) as copies:`"""

    def __init__(self, lake: Lake, entry: str) -> None:
        self._root = lake.root / "staging" / entry
        self._copy = self._root / "copy.parquet"

    def __enter__(self) -> Copies:
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def make(self, path: Path) -> Path:
        """In the place of the one before, unless that is kept. Raises OSError."""
        shutil.copyfile(path, self._copy)
        return self._copy

    def keep(self, name: str) -> Path:
        return self._copy.rename(self._root / f"{name}.parquet")


def _writing(root: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: it yields the names of the files that it wrote, synced."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = {table: TaskFile(root / table, schema) for table, schema in _SCHEMAS.items()}
        # Millions of small objects without a cycle: looking for cycles among them took 40 % of the decoding.
        gc.disable()
        try:
            for taken in batches:
                columns = [taken.column(name).to_pylist() for name in STREAM_BATCHES.fieldNames()]
                for partition, found in groupby(zip(*columns, strict=True), itemgetter(0)):
                    values = (values_of(batch, start, end) for _, start, end, batch in found)
                    decoded = decode_records(partition, chain.from_iterable(values))
                    for file, rows in zip(files.values(), decoded, strict=True):
                        file.add(rows)
        finally:
            gc.enable()
            for file in files.values():
                file.close()
        written = [(table, file.path.name) for table, file in files.items() if file.rows]
        tables, names = [table for table, _ in written], [name for _, name in written]
        yield pa.RecordBatch.from_pydict({"table": pa.array(tables, pa.string()), "name": pa.array(names, pa.string())})

    return write


class TaskFile:
    """One Parquet file of one task, made with its first row; its rows are written in groups."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self.path = directory / f"part-{uuid.uuid4()}.parquet"
        self.rows = 0
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._waiting.append(rows)
            self._waiting_rows += rows.num_rows
            if self._waiting_rows >= FILE_GROUP_ROWS:
                self._write()

    def close(self) -> None:
        if self._waiting:
            self._write()
        if self._writer is not None:
            self._writer.close()
            sync(self.path)

    def _write(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.path, self._schema, compression="zstd")
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema), FILE_GROUP_ROWS)
        self.rows += self._waiting_rows
        self._waiting, self._waiting_rows = [], 0
