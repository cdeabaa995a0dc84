"""One timer for all partitions of a node: a heap of (due, partition). Idle partitions are not in it.

**Behind.** While messages wait their turn in the inbox, an election timer says little: the votes, or the leader, that
it waits for may be among them. Campaigns begun all the same bring more messages, and a node with thousands of groups
that is short of processor time comes to do nothing else. So timers that are due wait while the node is behind, and a
slice of them rings every TIMERS_HELD_MS_MAX even then.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from storage_nodes.limits import TIMERS_HELD_MS_MAX, TIMERS_SLICE_PARTITIONS

# Overtaken wishes that the heap may hold beyond one per partition.
OVERTAKEN_MAX = 64
# How often it is looked whether the node is still behind.
LOOK_MS = 10


class Timers:
    """Calls `fire(partition)` no earlier than asked. Only the earliest wish of a partition counts."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        mono_ms: Callable[[], int],
        fire: Callable[[int], None],
        is_behind: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_behind = is_behind
        # Since when due timers wait for the node; 0 = they do not.
        self._held_since_ms = 0
        self._loop = loop
        self._mono_ms = mono_ms
        self._fire = fire
        self._heap: list[tuple[int, int]] = []
        self._due: dict[int, int] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._handle_due = 0

    def wake(self, partition: int, due_ms: int) -> None:
        """Fire `partition` at `due_ms` (monotonic) unless it is due earlier anyway."""
        current = self._due.get(partition)
        if current is not None and current <= due_ms:
            return
        self._due[partition] = due_ms
        heapq.heappush(self._heap, (due_ms, partition))
        if len(self._heap) > 2 * len(self._due) + OVERTAKEN_MAX:
            # Wishes that were overtaken by earlier ones leave the heap here, not only when their own time comes.
            self._heap = [(due, waiting) for waiting, due in self._due.items()]
            heapq.heapify(self._heap)
        if self._handle is None or due_ms < self._handle_due:
            self._arm()

    def look(self) -> None:
        """After a pause: the loop's own clock may have stood still while ours ran on."""
        self._arm()

    def forget(self, partition: int) -> None:
        self._due.pop(partition, None)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._heap.clear()
        self._due.clear()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap:
            self._handle_due = self._heap[0][0]
            delay_s = max(self._handle_due - self._mono_ms(), 0) / 1000
            self._handle = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._handle = None
        now = self._mono_ms()
        if self._is_behind():
            self._held_since_ms = self._held_since_ms or now
            if now - self._held_since_ms < TIMERS_HELD_MS_MAX:
                self._handle_due = 0  # nothing that becomes due rings sooner
                self._handle = self._loop.call_later(LOOK_MS / 1000, self._on_timer)
                return
        self._held_since_ms = 0
        ready: list[int] = []
        # What is left rings in the next turn of the loop.
        while self._heap and self._heap[0][0] <= now and len(ready) < TIMERS_SLICE_PARTITIONS:
            due, partition = heapq.heappop(self._heap)
            if self._due.get(partition) == due:
                del self._due[partition]
                ready.append(partition)
        if not self._due:
            self._due.clear()  # its table was as large as it ever had to be: thousands rang after a start
        for partition in ready:
            self._fire(partition)
        self._arm()
