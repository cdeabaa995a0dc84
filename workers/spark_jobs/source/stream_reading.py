"""Reads partitions of a stream through the storage client, from the synchronous code of Spark's Python workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from storage_nodes.client import StorageClient, streams_tagged
from storage_nodes.log.record_batch import iterate_bodies, read_header
from storage_nodes.model import parse_node_list
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.records import decode_body
from storage_nodes.trust.credentials import own_credentials
from workers.spark_jobs.limits import READ_BYTES, READ_TIMEOUT_S

# The partitions of the usage stream have tags that begin so.
USAGE_TAG_PREFIX = "__usage:"
_NO_GROUP = b"spark"
# (offset, timestamp_ms, key, value)
StreamRecord = tuple[int, int, bytes | None, bytes]
# What lets a run go on behind records that retention removed before they were read.
SETTING = "PENSTOCK_USAGE_REMOVED_RECORDS"
SKIPS = f"--removed-records skip, of the usage worker {SETTING}=skip, leaves them out"


class RecordsRemoved(Exception):
    """Records that were not read yet are no longer in the stream."""


class Bounds(NamedTuple):
    """The offsets that can be read: from `log_start` on, before `high_watermark`."""

    log_start: int
    high_watermark: int


class StreamReading:
    """A client on a loop of its own. `with StreamReading(...) as reading:`"""

    def __init__(self, cluster_id: str, nodes: str) -> None:
        self._runner = asyncio.Runner()
        credentials = own_credentials(cluster_id)
        self._client = StorageClient(
            cluster_id, parse_node_list(nodes), "spark", READ_TIMEOUT_S, credentials=credentials
        )

    def __enter__(self) -> StreamReading:
        self._runner.run(self._client.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def partitions_tagged(self, prefix: str) -> list[int]:
        """Ids of the stream partitions whose tag begins so. Raises StorageError."""
        return self._runner.run(streams_tagged(self._client, prefix))

    def bounds(self, partition: int) -> Bounds:
        """Asked for as what a consumer group that never was has committed: that answer carries both."""
        reply = self._runner.run(self._client.group_committed(partition, _NO_GROUP))
        return Bounds(reply.log_start, reply.high_watermark)

    def records(self, partition: int, start: int, end: int, skip_removed: bool = False) -> Iterator[StreamRecord]:
        """Records at offsets from `start` on, before `end`. Raises RecordsRemoved, or StorageError."""
        for offset, batches in self.batches(partition, start, end, skip_removed):
            for batch in batches:
                yield from records_of(batch, offset, end)

    def batches(
        self, partition: int, start: int, end: int, skip_removed: bool = False
    ) -> Iterator[tuple[int, list[bytes]]]:
        """The record batches that hold them, by the read: those records of them are meant that stand at the offset
        beside them or later, and before `end`. Raises RecordsRemoved, or StorageError."""
        offset = start
        while offset < end:
            try:
                reply = self._runner.run(self._client.stream_read(partition, offset, READ_BYTES))
            except StorageError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                offset = self._behind_removed(partition, offset, skip_removed)
                continue
            yield offset, [batch for batch in reply.batches if not read_header(batch).is_control]
            if reply.next_offset <= offset:
                raise RecordsRemoved(f"partition {partition} ends at {offset}; it went up to {end}")
            offset = reply.next_offset

    def _behind_removed(self, partition: int, offset: int, skip_removed: bool) -> int:
        begin = self.bounds(partition).log_start
        if begin <= offset:
            raise RecordsRemoved(f"partition {partition} ends before {offset}, which was there: is it another stream?")
        if not skip_removed:
            raise RecordsRemoved(
                f"partition {partition}: offsets {offset} to {begin - 1} were removed unread ({SKIPS})"
            )
        return begin


def records_of(batch: bytes, start: int, end: int) -> Iterator[StreamRecord]:
    """Records of a batch at offsets from `start` on, before `end`."""
    timestamp_ms = read_header(batch).timestamp_ms
    for offset, body in iterate_bodies(batch):
        if start <= offset < end:
            record = decode_body(body)
            yield offset, timestamp_ms, record.key, record.value
