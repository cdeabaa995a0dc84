"""What each wish takes in the storage plane. Every step may be repeated, also after having been stopped anywhere.

Partitions are named by their tag, `queue:<uuid>:<index>`: creating one that exists answers with it, deleting one that
is gone succeeds. So a step never needs to know how far an earlier attempt came.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

from api.limits import PARTITIONS_PER_QUEUE
from api.queues.lifecycle import Claim
from api.queues.models import QueueState
from storage_nodes.limits import REPLICATION_FACTOR
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import PartitionInfo, QueueConfig, QueueStats


class Storage(Protocol):
    """The part of `StorageClient` that is used here."""

    async def create_partition(
        self, kind: int, tag: str, config: QueueConfig | None = None, replication_factor: int = 3
    ) -> PartitionInfo: ...

    async def delete_partition(self, partition: int, tag: str) -> None: ...

    async def configure(self, partition: int, config: QueueConfig) -> None: ...

    async def stats(self, partition: int) -> QueueStats: ...


def partition_tag(queue_uuid: UUID, index: int) -> str:
    return f"queue:{queue_uuid.hex}:{index}"


async def fulfil(storage: Storage, claim: Claim, factor: int = REPLICATION_FACTOR) -> list[int]:
    """Does what the claimed wish asks for; the partitions the queue has then. Raises StorageError."""
    if claim.state == QueueState.DELETING:
        return await _delete(storage, claim, factor)
    partitions = await _create(storage, claim, factor)
    if claim.state == QueueState.CREATING and claim.generation == 1:
        # Created with this very configuration: that their leaders answer is all that is left to know.
        await asyncio.gather(*(storage.stats(partition) for partition in partitions))
    else:
        await asyncio.gather(*(storage.configure(partition, claim.config) for partition in partitions))
    return partitions


async def _create(storage: Storage, claim: Claim, factor: int) -> list[int]:
    if len(claim.partitions) == PARTITIONS_PER_QUEUE:
        return claim.partitions
    tags = [partition_tag(claim.queue_uuid, index) for index in range(PARTITIONS_PER_QUEUE)]
    infos = await asyncio.gather(
        *(storage.create_partition(PartitionKind.QUEUE, tag, claim.config, factor) for tag in tags)
    )
    return [info.partition for info in infos]


async def _delete(storage: Storage, claim: Claim, factor: int) -> list[int]:
    """A queue deleted while it was being created may own partitions nobody has noted: asking for them again by tag
    names them, so that they can be deleted."""
    partitions = await _create(storage, claim, factor)
    await asyncio.gather(
        *(
            storage.delete_partition(partition, partition_tag(claim.queue_uuid, index))
            for index, partition in enumerate(partitions)
        )
    )
    return []
