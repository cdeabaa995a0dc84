"""The data source over a real storage node: batch, micro-batches with a checkpoint, what retention removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from storage_nodes.log.record_batch import build_batch
from storage_nodes.protocol.records import Record, RecordError, encode_body
from storage_nodes.protocol.usage_records import window_key
from tests.workers.spark_jobs.frames import encode_record, figures, hour, window
from tests.workers.spark_jobs.streams import Streams
from workers.spark_jobs.jobs.ingest import ingest_stream
from workers.spark_jobs.lake.manifest import Lake
from workers.spark_jobs.lake.tables import read_windows
from workers.spark_jobs.source.stream_reading import RecordsRemoved
from workers.spark_jobs.source.stream_source import (
    FORMAT,
    OffsetRange,
    StreamOptions,
    latest_offsets,
    ranges,
    read_range,
)
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.decoding import value_of, values_of


def read(spark: SparkSession, streams: Streams) -> DataFrame:
    return spark.read.format(FORMAT).options(**streams.options).load()


@pytest.mark.spark
@pytest.mark.slow
def test_stream_is_read_whole_and_then_from_where_the_last_run_ended(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """Batch: every record with its place. `availableNow`: what is there, once; the checkpoint says from where."""
    first = [encode_record(window(at)) for at in range(3)]
    streams.append(0, *first, key=window_key(7, hour(0)))
    streams.append(1, encode_record(window(3, 8)), b"rubbish")
    rows = sorted(read(spark, streams).collect(), key=lambda row: (row.partition, row.offset))
    assert [bytes(row.value) for row in rows[:3]] == first and bytes(rows[0].key) == window_key(7, hour(0))
    assert {row.partition for row in rows} == set(streams.partitions) and len(rows) == 5
    assert all(row.timestamp_ms > 0 for row in rows)

    lake, span = Lake(tmp_path), HourSpan(hour(0), hour(24))
    made = ingest_stream(spark, lake, streams.cluster.cluster_id, streams.nodes)
    assert [(entry.rows("windows"), entry.rows("quarantine")) for entry in made] == [(4, 1)]
    assert ingest_stream(spark, lake, streams.cluster.cluster_id, streams.nodes) == []

    streams.append(1, encode_record(window(4, 8)), encode_record(window(3, 8)))
    streams.cluster.kill(1)
    streams.cluster.start(1)
    made = ingest_stream(spark, lake, streams.cluster.cluster_id, streams.nodes)
    assert [entry.rows("windows") for entry in made] == [2]
    windows, *_ = read_windows(spark, lake, lake.entries(), span, hour(24))
    assert figures(windows, "hour_ms") == [(hour(at),) for at in (0, 1, 2, 3, 3, 4)]


def test_read_beyond_what_the_stream_holds_is_refused_and_not_passed_over(streams: Streams) -> None:
    streams.append(0, b"one", b"two")
    options = StreamOptions(streams.options)
    with options.reading() as reading:
        assert reading.partitions_tagged("__usage:") == sorted(streams.partitions)
        start, end = reading.bounds(streams.partitions[0])
        assert [value for _, _, _, value in reading.records(streams.partitions[0], start, end)] == [b"one", b"two"]
        assert [at for at, *_ in reading.records(streams.partitions[0], end - 1, end)] == [end - 1]
        with pytest.raises(RecordsRemoved, match="ends"):
            list(reading.records(streams.partitions[0], start, end + 5))
        with pytest.raises(RecordsRemoved, match="another stream"):
            list(reading.records(streams.partitions[0], end + 5, end + 9))
    wanted = OffsetRange(streams.partitions[0], start, end)
    assert [batch.num_rows for batch in read_range(options, wanted)] == [2]
    whole = StreamOptions({**streams.options, "rows": "batches"})
    rows = [row for batch in read_range(whole, wanted) for row in batch.to_pylist()]
    assert [(row["partition"], row["from_offset"], row["end_offset"]) for row in rows] == [
        (streams.partitions[0], start, end)
    ]
    assert [value for _, value in values_of(rows[0]["batch"], start, end)] == [b"one", b"two"]


def test_values_of_a_batch_are_those_of_its_records_and_no_others() -> None:
    """Whatever a record has beside its value."""
    records = [
        Record(b"k", b"v", []),
        Record(None, b"", []),
        Record(b"", b"x\x00", [(b"n", b"c")]),
        Record(None, b"y" * 300, []),
    ]
    batch = build_batch(7, 1, 0, [encode_body(one.value, one.key, one.headers) for one in records])
    assert list(values_of(batch, 0, 99)) == [(7 + at, one.value) for at, one in enumerate(records)]
    assert [offset for offset, _ in values_of(batch, 8, 10)] == [8, 9]
    with pytest.raises(RecordError):
        value_of(encode_body(b"value") + b"\x00\x00")


def test_micro_batch_takes_a_share_of_each_partition() -> None:
    start = {"1": 10, "2": 0}
    assert latest_offsets(start, {"1": 40, "2": 5, "3": 100}, None) == {"1": 40, "2": 5, "3": 100}
    assert latest_offsets(start, {"1": 40, "2": 5, "3": 100}, 60) == {"1": 30, "2": 5, "3": 20}
    assert latest_offsets(start, {"1": 10, "2": 0}, 60) == start
    assert latest_offsets(start, {"2": 5}, None) == {"1": 10, "2": 5}, "a partition that is gone keeps its place"
    with pytest.raises(RecordsRemoved, match="partitions 1 end before"):
        latest_offsets(start, {"1": 9, "2": 5}, None)


def test_offsets_are_cut_into_tasks_without_gap_or_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.spark_jobs.source.stream_source.TASK_OFFSETS_MAX", 10)
    assert [(one.start, one.end) for one in ranges(4, 3, 25)] == [(3, 13), (13, 23), (23, 25)]
    assert ranges(4, 3, 3) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "cluster_id, nodes"),
        ({"cluster_id": "a", "nodes": "b"}, "either partitions or tag_prefix"),
        ({"cluster_id": "a", "nodes": "b", "partitions": "1", "tag_prefix": "x"}, "either partitions or tag_prefix"),
        ({"cluster_id": "a", "nodes": "b", "partitions": "1", "removed_records": "maybe"}, "removed_records"),
        ({"cluster_id": "a", "nodes": "b", "partitions": "1", "rows": "bytes"}, "rows"),
        ({"cluster_id": "a", "nodes": "b", "partitions": "x"}, "invalid literal"),
    ],
)
def test_options_are_read_strictly(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamOptions(options)
