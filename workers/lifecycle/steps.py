"""What each desired state takes in the storage plane. Every step may be repeated, also after a stop anywhere.

Partitions are named by their tag, `queue:<uuid>:<number>`: creating one that exists answers with it, deleting one that
is gone succeeds. So a step never needs to know how far an earlier attempt came.

A FIFO queue gets other partitions in rounds, each one claim:

    replace    (the claim has noted that the old set is closing: a close is for good.) Make the new set; close the old
               one, in its logs; then note both. Who still sends to the old one is told that it takes nothing, and asks
               for the queue's record anew
    drain      until a close answers that the old set holds no message any more
    remember   until no deduplication id of the old set counts any more
    drop       note that the old set is gone; then delete it

A partition is deleted in two parts: it is retired, which ends its use and has its last usage exported, and deleted once
that is confirmed (docs/decisions/0043-last-windows-are-exported-before-a-partition-goes.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec
import structlog

from api.limits import (
    DRAIN_CHECK_MS,
    DRAIN_WINDOW_MARGIN_MS,
    LAST_USAGE_FAILURES_MAX,
    LAST_USAGE_LAST_WAIT_MS,
    LAST_USAGE_POLL_MS,
    LAST_USAGE_QUARANTINED_FAILURES_MAX,
    LAST_USAGE_WAIT_MS,
)
from api.queues.layout import LayoutRow, closed, opened
from api.queues.lifecycle import Claim, ReconcileResult
from api.queues.models import QueueStatus
from storage_nodes.limits import REPLICATION_FACTOR
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import PartitionInfo, QueueConfig, QueueStats

_log = structlog.get_logger(__name__)


class PartitionAdmin(Protocol):
    """The part of `StorageClient` that is used here."""

    async def create_partition(
        self, kind: int, tag: str, config: QueueConfig | None = None, replication_factor: int = 3
    ) -> PartitionInfo: ...

    async def retire_partition(self, partition: int, tag: str) -> bool: ...

    async def delete_partition(self, partition: int, tag: str) -> None: ...

    async def is_quarantined(self, partition: int) -> bool: ...

    async def configure(self, partition: int, config: QueueConfig) -> int: ...

    async def stats(self, partition: int) -> QueueStats: ...


def partition_tag(queue_uuid: UUID, number: int) -> str:
    return f"queue:{queue_uuid.hex}:{number}"


async def reconcile_partitions(
    storage: PartitionAdmin, claim: Claim, now_ms: Callable[[], int], factor: int = REPLICATION_FACTOR
) -> ReconcileResult:
    """Brings the partitions to the claimed state, or a round nearer to it. `now_ms`: the time as rows have it
    (api/clock.py), since other workers go on from the times that are noted here. Raises StorageError."""
    made = await _create(storage, claim, factor)
    if claim.state == QueueStatus.DELETING:
        lost = await _delete(storage, claim, [(row.partition, row.number) for row in (*claim.rows, *made)])
        retired, lost_before = await _drop(storage, claim)
        return ReconcileResult([], retired, usage_lost={**lost, **lost_before})
    if claim.state == QueueStatus.KEPT:
        await _configure(storage, claim, claim.rows)
        return ReconcileResult(claim.rows, claim.retired)
    if claim.state == QueueStatus.CREATING and claim.generation == 1:
        # Created with this very configuration: that their leaders answer is all that is left to know.
        await asyncio.gather(*(storage.stats(row.partition) for row in made))
        return ReconcileResult(made, claim.retired)
    if claim.fifo and made and claim.rows:
        return await _replace(storage, claim, made, now_ms)
    rows = [*claim.rows, *made]
    held = await _configure(storage, claim, rows)
    if claim.fifo:
        return await _go_on(storage, claim, rows, held, now_ms())
    return ReconcileResult(rows, claim.retired)


async def _create(storage: PartitionAdmin, claim: Claim, factor: int) -> list[LayoutRow]:
    tags = [partition_tag(claim.queue_uuid, row.number) for row in claim.planned]
    configs = [config_of(claim, row, place) for place, row in enumerate(claim.planned, len(opened(claim.rows)))]
    infos = await asyncio.gather(
        *(
            storage.create_partition(PartitionKind.QUEUE, tag, config, factor)
            for tag, config in zip(tags, configs, strict=True)
        )
    )
    return [row._replace(partition=info.partition) for row, info in zip(claim.planned, infos, strict=True)]


async def _delete(storage: PartitionAdmin, claim: Claim, places: Sequence[tuple[int, int]]) -> dict[int, str]:
    """A queue deleted while it was being created may own partitions nobody has noted: asking for them again by tag
    named them (they are planned), so that they can be deleted. Those whose last usage is lost, and why."""
    tags = [partition_tag(claim.queue_uuid, number) for _, number in places]
    lost = await asyncio.gather(
        *(_delete_one(storage, claim, one, tag) for (one, _), tag in zip(places, tags, strict=True))
    )
    return {partition: reason for (partition, _), reason in zip(places, lost, strict=True) if reason}


async def _delete_one(storage: PartitionAdmin, claim: Claim, partition: int, tag: str) -> str:
    """Why its last usage is lost; empty: it is not. Raises StorageError where that is not confirmed yet. What can never
    be, is not waited for for ever: least where most of its replicas have stopped, so that it has no leader."""
    is_last_wait = claim.failures >= LAST_USAGE_FAILURES_MAX
    wait_ms = LAST_USAGE_LAST_WAIT_MS if is_last_wait else LAST_USAGE_WAIT_MS
    reason = await _unconfirmed(storage, partition, tag, wait_ms)
    if reason and not is_last_wait:
        if await storage.is_quarantined(partition):
            reason = "QUARANTINED: most of its replicas have stopped"
            is_last_wait = claim.failures >= LAST_USAGE_QUARANTINED_FAILURES_MAX
        if not is_last_wait:
            text = f"the last usage of partition {partition} is not confirmed yet: {reason}"
            raise StorageError(ErrorCode.UNAVAILABLE, text)
    if reason:
        _log.error("last_usage_lost", queue=str(claim.queue_uuid), partition=partition, reason=reason)
    await storage.delete_partition(partition, tag)
    return reason


async def _unconfirmed(storage: PartitionAdmin, partition: int, tag: str, wait_ms: int) -> str:
    """Why the last usage of a partition is not confirmed after so long; empty: it is."""
    try:
        async with asyncio.timeout(wait_ms / 1000):
            while not await storage.retire_partition(partition, tag):
                await asyncio.sleep(LAST_USAGE_POLL_MS / 1000)
    except TimeoutError:
        return "it is not exported, or the partition has no leader"
    except StorageError as error:
        return str(error)
    return ""


async def _replace(
    storage: PartitionAdmin, claim: Claim, made: list[LayoutRow], now_ms: Callable[[], int]
) -> ReconcileResult:
    await _configure(storage, claim, made)
    former = [row._replace(closed_ms=now_ms(), closing=False) for row in claim.rows]
    await _configure(storage, claim, former)
    # Their ids count from their sends, none of which is later than this.
    former = [row._replace(closed_ms=now_ms()) for row in former]
    return ReconcileResult([*former, *made], claim.retired, DRAIN_CHECK_MS)


async def _go_on(
    storage: PartitionAdmin, claim: Claim, rows: list[LayoutRow], held: list[int], now_ms: int
) -> ReconcileResult:
    """The rounds after `_replace`; nothing where there was none."""
    retired, lost = await _drop(storage, claim)
    former = closed(rows)
    if not former:
        rows = [row._replace(per_group=claim.wanted.per_group) for row in rows]
        return ReconcileResult(rows, retired, usage_lost=lost)
    if not all(row.drained for row in former):
        if any(count for row, count in zip(rows, held, strict=True) if row.closed_ms):
            return ReconcileResult(rows, retired, DRAIN_CHECK_MS, lost)
        rows = [row._replace(drained=True) if row.closed_ms else row for row in rows]
    remember_ms = claim.config.dedup_window_ms + DRAIN_WINDOW_MARGIN_MS
    left_ms = max(row.closed_ms for row in former) + remember_ms - now_ms
    if left_ms > 0:
        return ReconcileResult(rows, retired, left_ms, lost)
    gone = [{"partition": row.partition, "number": row.number, "deleted": False} for row in former]
    return ReconcileResult(opened(rows), retired + gone, 0, lost)


async def _drop(storage: PartitionAdmin, claim: Claim) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Deletes what was noted to be dropped. It stays noted: dead letters may name it as where they come from."""
    due = [one for one in claim.retired if not one["deleted"]]
    lost = await _delete(storage, claim, [(one["partition"], one["number"]) for one in due])
    return [{**one, "deleted": True} for one in claim.retired], lost


async def _configure(storage: PartitionAdmin, claim: Claim, rows: Sequence[LayoutRow]) -> list[int]:
    """How many messages each of them held."""
    places = {row.partition: place for place, row in enumerate(opened(rows))}
    configs = [config_of(claim, row, places.get(row.partition, 0)) for row in rows]
    calls = [storage.configure(row.partition, config) for row, config in zip(rows, configs, strict=True)]
    return list(await asyncio.gather(*calls))


def config_of(claim: Claim, row: LayoutRow, place: int) -> QueueConfig:
    """Of one partition. Dead letters of a standard queue go to the same level, and around its partitions; of a FIFO
    queue, to where their groups are."""
    config = claim.config
    targets = claim.targets
    if claim.fifo:
        groups = tuple(targets[0]) if targets and len(targets[0]) > 1 and config.max_receives else ()
        return msgspec.structs.replace(config, closed=row.closed_ms > 0, dead_letter_groups=groups)
    if not config.max_receives:
        return config
    lane = targets[min(row.level, len(targets) - 1)]
    return msgspec.structs.replace(config, dead_letter_partition=lane[place % len(lane)])
