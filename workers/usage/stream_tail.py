"""The end of the usage stream, read without Spark: what is not settled yet, for the live meter.

Only what cannot be wrong is taken; what is refused here is for the pipeline to judge, and to put into quarantine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from api.billing.limits import USAGE_SOURCE_CHARACTERS_MAX
from api.billing.pricing.meters import UsageMeter, UsageOrigin
from api.billing.provisional import SHOWN, ProvisionalRow
from storage_nodes.client import StorageClient, streams_tagged
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.usage import Origin
from workers import limits
from workers.spark_jobs.limits import CLOCK_AHEAD_MS_MAX, COUNTER_MAX, HOUR_MS, STORED_BYTE_MS_MAX, STORED_BYTES_MAX
from workers.spark_jobs.schemas.usage_record import (
    ACCOUNT_ID_DIGITS,
    UUID_BYTES,
    OriginCounters,
    RequestReport,
    UsageRecordError,
    UsageWindow,
    decode_record,
)
from workers.spark_jobs.source.stream_reading import USAGE_TAG_PREFIX, records_of

_GROUP = b"meter"
_METERS = len(UsageMeter)
_NAMES = {int(origin): UsageOrigin[origin.name] for origin in Origin}
_CLIENT = UsageOrigin.CLIENT
# Of an origin, in the order of UsageMeter.
_OPERATIONS = OriginCounters.__struct_fields__[1:]
_UNSHOWN = (0,) * len(SHOWN)
Key = tuple[datetime, str, UUID, str, str]


class Tail(NamedTuple):
    """`at_end`: nothing was left to be read."""

    rows: list[ProvisionalRow]
    next_offset: int
    at_end: bool


async def usage_partitions(client: StorageClient) -> list[int]:
    return await streams_tagged(client, USAGE_TAG_PREFIX)


async def read_tail(client: StorageClient, partition: int, offset: int, now_ms: int) -> Tail:
    """What stands from `offset` on, up to a bound. Raises StorageError."""
    values: list[bytes] = []
    held_bytes = 0
    at_end = False
    while not at_end and len(values) < limits.METER_RECORDS_MAX and held_bytes < limits.METER_BYTES_MAX:
        try:
            page = await client.stream_read(partition, offset, limits.METER_READ_BYTES)
        except StorageError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            begins = (await client.group_committed(partition, _GROUP)).log_start
            if begins <= offset:
                raise
            offset = begins  # retention took what was not read: it was settled long ago, or never will be
            continue
        for batch in page.batches:
            values.extend(value for _, _, _, value in records_of(batch, offset, page.next_offset))
            held_bytes += len(batch)
        at_end = page.next_offset >= page.high_watermark or page.next_offset <= offset
        offset = page.next_offset
    return Tail(rows_of(values, now_ms), offset, at_end)


def rows_of(values: Iterable[bytes], now_ms: int) -> list[ProvisionalRow]:
    """One of each key: the greatest figures."""
    found: dict[Key, list[int]] = {}
    for value in values:
        try:
            record = decode_record(value)
        except UsageRecordError:
            continue
        if record.hour_ms % HOUR_MS or not 0 <= record.hour_ms <= now_ms + CLOCK_AHEAD_MS_MAX:
            continue
        rows = _of_window(record) if isinstance(record, UsageWindow) else _of_requests(record)
        for key, counters in rows:
            if not _is_storable(key):
                continue
            known = found.get(key)
            found[key] = counters if known is None else list(map(max, known, counters))
    return [ProvisionalRow(*key, figures[:_METERS], figures[_METERS:]) for key, figures in found.items()]


def _of_window(window: UsageWindow) -> Iterator[tuple[Key, list[int]]]:
    """A row of each origin, judged by the rules of the pipeline (`spark_jobs/transforms/checks.py`): what that refuses
    is spent in no budget. What is stored stands in the row of clients."""
    if len(window.queue_uuid) != UUID_BYTES or not 0 <= window.until_ms - window.hour_ms <= HOUR_MS:
        return
    queue, hour = UUID(bytes=window.queue_uuid), _time_of(window.hour_ms)
    source = f"{window.cluster}/{window.partition}"[:USAGE_SOURCE_CHARACTERS_MAX]
    origins = [(counters.origin, _figures(counters)) for counters in window.origins]
    if all(origin != Origin.CLIENT for origin, _ in origins):
        origins.append((int(Origin.CLIENT), [0] * len(_OPERATIONS)))
    for origin, figures in origins:
        name = _NAMES.get(origin)
        if name is None or not _are_sound(figures):
            continue
        if name == _CLIENT:
            if _is_storable_level(window):
                yield (hour, window.account_id, queue, source, name), [*figures, window.stored_byte_ms, 0, 0, *_UNSHOWN]
        else:
            yield (hour, window.account_id, queue, source, name), [*figures, 0, 0, 0, *_UNSHOWN]


def _figures(counters: OriginCounters) -> list[int]:
    return [getattr(counters, name) for name in _OPERATIONS]


def _is_storable_level(window: UsageWindow) -> bool:
    return 0 <= window.stored_byte_ms <= STORED_BYTE_MS_MAX and 0 <= window.stored_bytes <= STORED_BYTES_MAX


def _of_requests(report: RequestReport) -> Iterator[tuple[Key, list[int]]]:
    hour, nothing = _time_of(report.hour_ms), [0] * (_METERS - 2)
    for row in report.rows:
        figures = [row.requests, row.empty_receives, row.throttled, row.errors]
        if len(row.queue_uuid) == UUID_BYTES and any(figures) and _are_sound(figures):
            source = f"{report.front_end.hex()}/{report.sequence}/{row.access_key_id}"[:USAGE_SOURCE_CHARACTERS_MAX]
            key = (hour, row.account_id, UUID(bytes=row.queue_uuid), source, _CLIENT)
            yield key, [*nothing, *figures]


def _is_storable(key: Key) -> bool:
    """What PostgreSQL would refuse would hold up all that stands behind it in the stream."""
    _, account_id, _, source, _ = key
    return len(account_id) <= ACCOUNT_ID_DIGITS and account_id.isdigit() and "\0" not in source


def _are_sound(figures: list[int]) -> bool:
    return all(0 <= figure <= COUNTER_MAX for figure in figures)


def _time_of(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
