"""Tells the usage stream now and then how many requests were counted (docs/usage_records.md, kind 2).

A record is named by this process, the hour, and its rows: what is told again, because its outcome is not known, is the
same record with figures at least as great. A process that is killed takes what it counted since its last report along:
requests are shown, and never priced.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from frontend.limits import (
    REQUEST_REPORT_INTERVAL_S,
    REQUEST_REPORT_ROWS_MAX,
    REQUEST_REPORT_S_MAX,
)
from frontend.metering.request_counts import HOUR_MS, CountedHour, CountedRow
from storage_nodes.limits import RETENTION_MS_MAX
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import PartitionInfo, QueueConfig, SendReply
from storage_nodes.protocol.records import encode_body
from storage_nodes.protocol.usage import USAGE_TAG
from storage_nodes.protocol.usage_records import VERSION, window_key

if TYPE_CHECKING:
    from frontend.services import FrontendServices

KIND_REQUESTS = 2
FRONT_END_BYTES = 16
_PREFIX = bytes((VERSION, KIND_REQUESTS))
_encode = msgspec.msgpack.Encoder().encode
_log = structlog.get_logger("frontend")


class UsageStream(Protocol):
    """What is needed of a storage client."""

    async def create_partition(self, kind: int, tag: str, config: QueueConfig) -> PartitionInfo: ...
    async def stream_append(self, partition: int, bodies: list[bytes]) -> SendReply: ...


class UsageReports:
    """Of one front end's process."""

    def __init__(self, services: FrontendServices, stream: UsageStream) -> None:
        self._counts = services.request_counts
        self._now_s = services.now_s
        self._stream = stream
        self._partition = 0  # not known yet
        # A process has one of its own: it says which front end counted, and in which life.
        self.front_end = os.urandom(FRONT_END_BYTES)

    async def run(self) -> None:
        while True:
            now_ms = int(self._now_s() * 1000)
            # Not beyond the hour: what comes after it is of the next one.
            await asyncio.sleep(min(REQUEST_REPORT_INTERVAL_S, (HOUR_MS - now_ms % HOUR_MS) / 1000 + 0.01))
            await self.tell()

    async def tell(self) -> bool:
        """What was not told yet. False: the usage stream did not take all of it, and the next call tells it."""
        self._counts.roll(int(self._now_s() * 1000))
        try:
            async with asyncio.timeout(REQUEST_REPORT_S_MAX):
                for hour in self._counts.hours():
                    for rows in _pieces(hour.untold()):
                        await self._append(request_record(self.front_end, hour, rows))
                        hour.note_told(rows)
        except (StorageError, TimeoutError) as error:
            if isinstance(error, StorageError) and error.code == ErrorCode.UNKNOWN_PARTITION:
                self._partition = 0
            _log.warning("requests_not_told", reason=str(error) or type(error).__name__)
            return False
        return True

    async def _append(self, body: bytes) -> None:
        if not self._partition:
            # As storage nodes do: the same tag again answers with the one that exists.
            config = QueueConfig(retention_ms=RETENTION_MS_MAX)
            made = await self._stream.create_partition(PartitionKind.STREAM, USAGE_TAG, config)
            self._partition = made.partition
        await self._stream.stream_append(self._partition, [body])


def request_record(front_end: bytes, hour: CountedHour, rows: Sequence[CountedRow]) -> bytes:
    """The record body. Its sequence is the hour's number: figures are those of the hour so far."""
    content = [front_end, hour.hour_ms // HOUR_MS, hour.hour_ms, [[*row.key, *row.counters] for row in rows]]
    return encode_body(_PREFIX + _encode(content), window_key(0, hour.hour_ms))


def _pieces(rows: list[CountedRow]) -> Iterator[list[CountedRow]]:
    for at in range(0, len(rows), REQUEST_REPORT_ROWS_MAX):
        yield rows[at : at + REQUEST_REPORT_ROWS_MAX]
