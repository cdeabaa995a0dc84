"""What queues hold, asked of the leaders of their partitions: a bounded number, in a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from api.series import limits
from api.series.collecting import HeldQueue, QueueLevels
from storage_nodes.client import StorageClient
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import QueueStats


async def read_levels(client: StorageClient, queues: Sequence[HeldQueue]) -> list[QueueLevels]:
    """Of the queues whose partitions all answered in time. The others are asked again after the meter's next look."""
    turn = asyncio.Semaphore(limits.LEVEL_CALLS_AT_ONCE_MAX)
    found: list[QueueLevels] = []

    async def ask(queue: HeldQueue) -> None:
        stats: list[QueueStats] = []
        for partition in queue.partitions:
            async with turn:
                try:
                    stats.append(await client.stats(partition))
                except (StorageError, OSError):
                    return
        found.append(_sum(queue, stats))

    tasks = [asyncio.create_task(ask(queue)) for queue in queues]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=limits.LEVEL_S_MAX)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


def _sum(queue: HeldQueue, stats: Sequence[QueueStats]) -> QueueLevels:
    return QueueLevels(
        queue.account_id,
        queue.queue_uuid,
        sum(one.waiting for one in stats),
        sum(one.in_flight for one in stats),
        sum(one.delayed for one in stats),
        min((one.oldest_sent_ms for one in stats if one.oldest_sent_ms), default=0),
    )
