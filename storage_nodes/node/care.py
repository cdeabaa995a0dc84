"""What a node looks after while it serves, once a second: what is repaired, and how much room its disk has.

Nothing here is on the way of a message. What blocks runs in a thread, one piece at a time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from storage_nodes.limits import CARE_INTERVAL_MS, MARK_SYNC_INTERVAL_MS

if TYPE_CHECKING:
    from storage_nodes.node.node import StorageNode


class NodeCare:
    """Of one node. On the event loop."""

    def __init__(self, node: StorageNode) -> None:
        self._node = node
        self._task: asyncio.Task[None] | None = None
        self._mark_synced_ms = 0

    def start(self) -> None:
        self._task = self._node.loop.create_task(self._forever())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _forever(self) -> None:
        while True:
            await asyncio.sleep(CARE_INTERVAL_MS / 1000)
            await self._once()

    async def _once(self) -> None:
        node = self._node
        now_ms = node.clock.mono_ms()
        node.damage.look()
        if now_ms - self._mark_synced_ms >= MARK_SYNC_INTERVAL_MS:
            self._mark_synced_ms = now_ms
            await node.run_blocking(node.log.sync_mark)
