"""A settlement: text files of days that the control plane copies into its database as they are.

    settlements/RUN/pieces/*.arrow   windows on their way to the task that counts their queue; gone at the end
    settlements/RUN/days-*.tsv       the columns of DAY_COLUMNS, tabs between them; each day of a queue and origin once
    settlements/RUN/files.json       their names: the settlement is whole

Tasks of Spark read files of the lake and cut their windows by queue, into a piece for each task of the next step; these
have all windows of their queues, count them (`day_packs.py`) and write a file each. No window goes through the JVM,
which would take more CPU than all the counting. A file that is not listed is of a task that was repeated.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from storage_nodes.protocol.usage import Origin
from workers.spark_jobs.lake.manifest import Lake
from workers.spark_jobs.lake.tables import FoundWindows
from workers.spark_jobs.limits import CONFLICTS_SHOWN_MAX, PIECE_WINDOWS
from workers.spark_jobs.schemas.frames import COUNTERS, REQUESTS, WINDOWS, conform
from workers.spark_jobs.schemas.usage_record import UUID_BYTES
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.day_packs import SHOWN, DayPacks, owners_of, pack_requests, pack_windows
from workers.spark_jobs.transforms.settlements import requests_by_hour

ALL_PARTITIONS, OF_FRONT_ENDS = 0, -1
LISTED = "files.json"
DAY_COLUMNS = (
    "account_id", "day", "queue_uuid", "partition_id", "origin", "hour_bits",
    *COUNTERS, "stored_byte_ms", *SHOWN, "hours", "levels",
)  # fmt: skip
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_WINDOWS = to_arrow_schema(WINDOWS)
_CUT_OF_SPARK = "name string"
# An odd number of 64 bits: UUIDs that differ in a few bits go to different tasks, too.
_MIXING, _MIXED_BITS = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_TOLD = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("cluster", pa.string()),
        pa.field("partition", pa.int64()),
        pa.field("owner", pa.binary()),
        pa.field("is_suspect", pa.bool_()),
    ]
)
_TOLD_OF_SPARK = "name string, rows long, cluster string, partition long, owner binary, is_suspect boolean"
_TEXT = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
Write = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class WrittenSettlement(NamedTuple):
    """`suspects`: (cluster, partition) whose records may contradict each other, the first ones."""

    rows: int
    suspects: list[tuple[str, int]]


def write_settlement(
    lake: Lake, directory: Path, found: FoundWindows, requests: DataFrame, span: HourSpan
) -> WrittenSettlement:
    """In the place of what a run of that name left there. Raises what ends a job of Spark."""
    shutil.rmtree(directory, ignore_errors=True)
    pieces = directory / "pieces"
    pieces.mkdir(parents=True)
    spark = found.before.sparkSession
    tasks = int(spark.conf.get(_SHUFFLE_PARTITIONS) or 1)
    cut = found.before.mapInArrow(_cutting(pieces, tasks), _CUT_OF_SPARK).toArrow()["name"].to_pylist()
    if found.within:
        files = spark.range(0, len(found.within), 1, len(found.within))
        cutting = _cutting_files(found.within, span, pieces, tasks)
        cut += files.mapInArrow(cutting, _CUT_OF_SPARK).toArrow()["name"].to_pylist()
    writing = _writing_windows([pieces / name for name in cut], directory, span, found.unsure)
    told = spark.range(0, tasks, 1, tasks).mapInArrow(writing, _TOLD_OF_SPARK).toArrow()
    hours = requests_by_hour(conform(requests, REQUESTS, "requests"), span).repartition("account_id", "queue_uuid")
    told_of_requests = hours.mapInArrow(_writing_requests(directory), _TOLD_OF_SPARK).toArrow()
    named = pa.concat_tables([table.filter(pc.is_valid(table["name"])) for table in (told, told_of_requests)])
    names = named["name"].to_pylist()
    shutil.rmtree(pieces)
    for path in set(directory.iterdir()) - {directory / name for name in names}:
        path.unlink()
    lake.note(directory / LISTED, msgspec.json.encode(names))
    return WrittenSettlement(pc.sum(named["rows"]).as_py() or 0, _suspects(told))


def of_partitions(windows: DataFrame, partitions: list[tuple[str, int]]) -> DataFrame:
    """The windows of these alone."""
    condition = F.lit(False)
    for cluster, partition in partitions:
        condition = condition | ((F.col("cluster") == cluster) & (F.col("partition") == partition))
    return windows.where(condition)


def _suspects(told: pa.Table) -> list[tuple[str, int]]:
    """Partitions whose records contradict each other, or that two queues say is theirs."""
    partitions = told.filter(pc.is_valid(told["cluster"])).group_by(["cluster", "partition"])
    found = partitions.aggregate([("owner", "count_distinct"), ("is_suspect", "any")])
    named = found.filter(pc.or_(found["is_suspect_any"], pc.greater(found["owner_count_distinct"], 1)))
    pairs = zip(named["cluster"].to_pylist(), named["partition"].to_pylist(), strict=True)
    return sorted(pairs)[:CONFLICTS_SHOWN_MAX]


class _Pieces:
    """A file with the pieces of windows for each task, made with the first of them. `name` is told where there is one.

    Each piece is a batch of Arrow; a file beside it has the numbers of their tasks."""

    def __init__(self, directory: Path, tasks: int) -> None:
        self._path = directory / f"{uuid.uuid4()}.arrow"
        self._tasks = tasks
        self._of_tasks: list[int] = []
        self._file: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        if self._file is None:
            self._file = pa.ipc.new_file(self._path, _WINDOWS, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        uuids = rows.column("queue_uuid").cast(pa.binary(UUID_BYTES))
        halves = np.frombuffer(uuids.buffers()[1], np.uint64).reshape(-1, 2)[uuids.offset :][: len(uuids)]
        task = ((halves[:, 0] ^ halves[:, 1]) * _MIXING >> _MIXED_BITS) % np.uint64(self._tasks)
        order = np.argsort(task.astype(np.uint16), kind="stable")
        ordered, starts = rows.take(pa.array(order)), np.searchsorted(task[order], np.arange(self._tasks + 1))
        for number in np.flatnonzero(starts[1:] > starts[:-1]).tolist():
            self._file.write_batch(ordered.slice(starts[number], starts[number + 1] - starts[number]))
            self._of_tasks.append(number)

    def told(self) -> Iterator[pa.RecordBatch]:
        if self._file is not None:
            self._file.close()
            self._path.with_suffix(".json").write_bytes(msgspec.json.encode(self._of_tasks))
            yield pa.RecordBatch.from_pydict({"name": pa.array([self._path.name])})


def _cutting_files(paths: list[Path], span: HourSpan, directory: Path, tasks: int) -> Write:
    """Numbers of files of the lake to the names of files of pieces."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = _Pieces(directory, tasks)
        for number in [number for batch in batches for number in batch.column(0).to_pylist()]:
            with pq.ParquetFile(paths[number]) as file:
                for rows in file.iter_batches(PIECE_WINDOWS, columns=_WINDOWS.names, use_threads=False):
                    hour_ms = rows.column("hour_ms")
                    within = pc.and_(pc.greater_equal(hour_ms, span.from_ms), pc.less(hour_ms, span.to_ms))
                    pieces.add((rows if pc.all(within).as_py() else rows.filter(within)).cast(_WINDOWS))
        yield from pieces.told()

    return write


def _cutting(directory: Path, tasks: int) -> Write:
    """WINDOWS to the names of files of pieces."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces, taken = _Pieces(directory, tasks), [batch.cast(_WINDOWS) for batch in batches]
        for rows in pa.Table.from_batches(taken, _WINDOWS).combine_chunks().to_batches(PIECE_WINDOWS):
            pieces.add(rows)
        yield from pieces.told()

    return write


def _writing_windows(files: list[Path], directory: Path, span: HourSpan, unsure: list[HourSpan]) -> Write:
    """Numbers of tasks to the files of days of all windows that were cut for them."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in [number for batch in batches for number in batch.column(0).to_pylist()]:
            windows = _pieces_of(files, number)
            if windows.num_rows:
                owners, owner = owners_of(windows)
                packs, suspects = pack_windows(windows, owner, span, unsure)
                del windows
                yield from _told(directory, owners, packs, ALL_PARTITIONS)
                count = len(suspects.partition)
                columns = [pa.nulls(count, pa.string()), pa.nulls(count, pa.int64()), *suspects]
                yield pa.RecordBatch.from_arrays(columns, schema=_TOLD)

    return write


def _pieces_of(files: list[Path], task: int) -> pa.Table:
    found = []
    for path in files:
        of_tasks = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=list[int])
        with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
            found += [file.get_batch(place) for place, number in enumerate(of_tasks) if number == task]
    return pa.Table.from_batches(found, _WINDOWS)


def _writing_requests(directory: Path) -> Write:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        taken = list(batches)
        if not sum(batch.num_rows for batch in taken):
            return
        rows = pa.Table.from_batches(taken)
        owners, owner = owners_of(rows)
        hour_ms, *shown = (rows.column(name).to_numpy() for name in ("hour_ms", *SHOWN))
        yield from _told(directory, owners, pack_requests(owner, hour_ms, *shown), OF_FRONT_ENDS)

    return write


def _told(directory: Path, owners: pa.Table, packs: DayPacks, partition_id: int) -> Iterator[pa.RecordBatch]:
    """Writes the file of a task; a row with its name, where it has any."""
    if not len(packs.owner):
        return
    name = f"days-{uuid.uuid4()}.tsv"
    csv.write_csv(_text_columns(owners, packs, partition_id), directory / name, _TEXT)
    nothing = [pa.nulls(1, field.type) for field in _TOLD][2:]
    yield pa.RecordBatch.from_arrays([pa.array([name]), pa.array([len(packs.owner)]), *nothing], schema=_TOLD)


def _text_columns(owners: pa.Table, packs: DayPacks, partition_id: int) -> pa.Table:
    """DAY_COLUMNS."""
    count, owner = len(packs.owner), pa.array(packs.owner)
    uuids = pa.array([str(UUID(bytes=value)) for value in owners["queue_uuid"].to_pylist()], pa.string())
    days, day = np.unique(packs.day, return_inverse=True)
    begins = pa.array([f"{text} 00:00:00+00" for text in days.astype("datetime64[D]").astype(str)])
    origins = pa.array([Origin(number).name.lower() if number in set(Origin) else "" for number in range(8)])
    zeros = pa.array(np.zeros(count, np.int64))
    columns = [
        owners["account_id"].combine_chunks().take(owner), begins.take(pa.array(day)), uuids.take(owner),
        pa.array(np.full(count, partition_id)), origins.take(pa.array(packs.origin)), pa.array(packs.hour_bits),
        *(packs.sums.get(name, zeros) for name in (*COUNTERS, "stored_byte_ms", *SHOWN)), packs.hours, packs.levels,
    ]  # fmt: skip
    return pa.table(columns, names=list(DAY_COLUMNS))
