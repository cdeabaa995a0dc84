"""The data source `penstock_stream`: any stream of a storage cluster, its offsets as partitions of Spark.

    spark.read.format("penstock_stream").options(cluster_id=..., nodes=..., partitions="7,8").load()
    spark.readStream.format("penstock_stream").options(...).load()      # trigger(availableNow=True), with a checkpoint

| option | |
|---|---|
| `cluster_id`, `nodes` | as `PENSTOCK_CLUSTER_ID` and `PENSTOCK_STORAGE_NODES` |
| `partitions` | ids, with commas between them; or else |
| `tag_prefix` | all stream partitions whose tag begins so, those included that are made while a query lives |
| `rows` | `records` (default), a row each; `batches`: record batches as the log has them, to be decoded elsewhere |
| `removed_records` | `fail` (default): records that retention removed before they were read end the query; `skip` |
| `batch_records_max` | of one micro-batch without `availableNow` |

A query's offsets are {partition: next offset}. A partition that was not there before is read from offset 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from workers.spark_jobs.limits import ARROW_ROWS_MAX, BATCH_RECORDS_MAX, TASK_OFFSETS_MAX
from workers.spark_jobs.schemas.frames import STREAM_BATCHES, STREAM_RECORDS
from workers.spark_jobs.source.stream_reading import RecordsRemoved, StreamReading

FORMAT = "penstock_stream"
FAIL, SKIP = "fail", "skip"
RECORDS, BATCHES = "records", "batches"
# As Spark keeps them in its checkpoint: keys are text.
Offsets = dict[str, int]


class StreamOptions:
    """Options of a query, read strictly. Raises ValueError."""

    def __init__(self, options: Mapping[str, str]) -> None:
        missing = [name for name in ("cluster_id", "nodes") if not options.get(name)]
        if missing:
            raise ValueError(f"{FORMAT}: options are missing: {', '.join(missing)}")
        self.cluster_id, self.nodes = options["cluster_id"], options["nodes"]
        self.tag_prefix = options.get("tag_prefix") or ""
        self.ids = [int(part) for part in (options.get("partitions") or "").split(",") if part.strip()]
        if bool(self.ids) == bool(self.tag_prefix):
            raise ValueError(f"{FORMAT}: either partitions or tag_prefix")
        removed = options.get("removed_records") or FAIL
        if removed not in (FAIL, SKIP):
            raise ValueError(f"{FORMAT}: removed_records is {removed!r} and not {FAIL} or {SKIP}")
        self.skip_removed = removed == SKIP
        rows = options.get("rows") or RECORDS
        if rows not in (RECORDS, BATCHES):
            raise ValueError(f"{FORMAT}: rows is {rows!r} and not {RECORDS} or {BATCHES}")
        self.whole_batches = rows == BATCHES
        self.batch_records_max = int(options.get("batch_records_max") or BATCH_RECORDS_MAX)

    def reading(self) -> StreamReading:
        return StreamReading(self.cluster_id, self.nodes)

    def partitions(self, reading: StreamReading) -> list[int]:
        return self.ids or reading.partitions_tagged(self.tag_prefix)


@dataclass
class OffsetRange(InputPartition):
    """The work of one task: offsets from `start` on, before `end`."""

    partition: int
    start: int
    end: int


class StreamDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return STREAM_BATCHES if StreamOptions(self.options).whole_batches else STREAM_RECORDS

    def reader(self, schema: StructType) -> DataSourceReader:
        return StreamBatchReader(StreamOptions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamOffsetsReader(StreamOptions(self.options))


class StreamBatchReader(DataSourceReader):
    """All that can be read when the query is planned."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        with self._options.reading() as reading:
            bounds = {partition: reading.bounds(partition) for partition in self._options.partitions(reading)}
        return [part for partition, (start, end) in bounds.items() for part in ranges(partition, start, end)] or [
            OffsetRange(0, 0, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, partition)


class StreamOffsetsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches. What a batch reads is fixed by its offsets: Spark repeats it with the same ones after a crash."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:
        with self._options.reading() as reading:
            return {str(one): reading.bounds(one).log_start for one in self._options.partitions(reading)}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        ends = self._ends() if self._target is None else self._target
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return latest_offsets(start, ends, records_max)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.batch_records_max) if self._options.batch_records_max else ReadAllAvailable()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return [part for name, until in sorted(end.items()) for part in ranges(int(name), start.get(name, 0), until)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, partition)

    def _ends(self) -> Offsets:
        with self._options.reading() as reading:
            return {str(one): reading.bounds(one).high_watermark for one in self._options.partitions(reading)}


def ranges(partition: int, start: int, end: int) -> list[OffsetRange]:
    """In pieces that one task reads."""
    cuts = range(start, end, TASK_OFFSETS_MAX)
    return [OffsetRange(partition, at, min(at + TASK_OFFSETS_MAX, end)) for at in cuts]


def latest_offsets(start: Offsets, ends: Offsets, records_max: int | None) -> Offsets:
    """Where a micro-batch ends: at `ends`, or after `records_max` records, of each partition its share.

    Raises RecordsRemoved where a partition ends before what was read of it: the stream is another one.
    """
    behind = [name for name, offset in start.items() if ends.get(name, offset) < offset]
    if behind:
        raise RecordsRemoved(f"partitions {', '.join(behind)} end before what was read of them: another stream?")
    left = {name: end - start.get(name, 0) for name, end in ends.items()}
    open_partitions = sum(count > 0 for count in left.values())
    share = max(1, records_max // open_partitions) if records_max and open_partitions else None
    taken = {name: count if share is None else min(count, share) for name, count in left.items()}
    # A partition that is gone keeps its place: its records were read, or are not to be had.
    return {**start, **{name: start.get(name, 0) + count for name, count in taken.items()}}


def read_range(options: StreamOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, OffsetRange)
    if partition.start == partition.end:
        return
    with options.reading() as reading:
        wanted = (partition.partition, partition.start, partition.end, options.skip_removed)
        if options.whole_batches:
            for offset, batches in reading.batches(*wanted):
                rows = [(offset, partition.end, batch) for batch in batches]
                yield _arrow_batch(partition.partition, rows, STREAM_BATCHES)
        else:
            records = reading.records(*wanted)
            while taken := list(islice(records, ARROW_ROWS_MAX)):
                yield _arrow_batch(partition.partition, taken, STREAM_RECORDS)


def _arrow_batch(partition: int, rows: Sequence[tuple[Any, ...]], frame: StructType) -> pa.RecordBatch:
    schema = to_arrow_schema(frame)
    columns = [[partition] * len(rows), *(zip(*rows, strict=True) if rows else [()] * (len(schema) - 1))]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
