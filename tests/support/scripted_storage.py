"""The storage calls of the lifecycle, recorded, with failures where a test wants them.

Keeps the promises the lifecycle relies on: creating by a tag that exists answers with it, deleting what is gone
succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import PartitionInfo, QueueConfig, QueueStats


class PartitionsByTag:
    """Partitions 1, 2, ... as they are asked for; one of each tag."""

    def __init__(self) -> None:
        self.partitions: dict[str, int] = {}
        self.configs: dict[int, QueueConfig] = {}
        # Messages that a partition holds, where it is not 0.
        self.held: dict[int, int] = {}
        self._created = 0

    def run(self, work: Callable[[Any], Awaitable[Any]], timeout_s: float) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(timeout_s):
                return await work(self)

        return asyncio.run(bounded())

    def made(self, kind: int, tag: str, config: QueueConfig | None) -> PartitionInfo:
        if tag not in self.partitions:
            self._created += 1
            self.partitions[tag] = self._created
            self.configs[self._created] = config or QueueConfig()
        return PartitionInfo(self.partitions[tag], kind, [1, 2, 3], tag, 1, 1)


class ScriptedStorage(PartitionsByTag):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.retired: list[int] = []  # as often as it was asked for
        self.is_usage_stuck = False  # nothing is exported
        self.quarantined: set[int] = set()
        # Called before each step with its name; may raise, or do something in between.
        self.before: Callable[[str], None] = lambda call: None

    async def create_partition(
        self, kind: int, tag: str, config: QueueConfig | None = None, replication_factor: int = 3
    ) -> PartitionInfo:
        self._step("create")
        return self.made(kind, tag, config)

    async def retire_partition(self, partition: int, tag: str) -> bool:
        """Known to have all its usage exported at the second look."""
        self._step("retire")
        if self.partitions.get(tag) != partition:
            return True
        self.retired.append(partition)
        return not self.is_usage_stuck and self.retired.count(partition) > 1

    async def is_quarantined(self, partition: int) -> bool:
        return partition in self.quarantined

    async def delete_partition(self, partition: int, tag: str) -> None:
        self._step("delete")
        if self.partitions.get(tag) == partition:
            del self.partitions[tag]

    async def configure(self, partition: int, config: QueueConfig) -> int:
        self._step("configure")
        self._known(partition)
        closed = config.closed or self.configs[partition].closed
        self.configs[partition] = msgspec.structs.replace(config, closed=closed)
        return self.held.get(partition, 0)

    async def stats(self, partition: int) -> QueueStats:
        self._step("stats")
        self._known(partition)
        return QueueStats(0, 0, 0)

    async def scheduled_count(self, partitions: Sequence[int]) -> int:
        """In the place of that of api/queues/spreading.py."""
        return sum([(await self.stats(one)).scheduled for one in partitions])

    def _known(self, partition: int) -> None:
        if partition not in self.partitions.values():
            raise StorageError(ErrorCode.UNKNOWN_PARTITION, str(partition))

    def _step(self, name: str) -> None:
        self.calls.append(name)
        self.before(name)
