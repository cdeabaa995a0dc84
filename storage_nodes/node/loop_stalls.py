"""Measures how long the event loop of a node stands still: whatever runs for long in it keeps all partitions waiting.

A timer looks every LOOP_LOOK_MS; what it comes too late by is a stall. Shorter ones than LOOP_STALL_MS_MIN are not
counted: they are what a busy loop does.
"""

from __future__ import annotations

import asyncio

from prometheus_client import Histogram

from storage_nodes.limits import LOOP_LOOK_MS, LOOP_STALL_MS_MIN

STALLS = Histogram(
    "penstock_node_loop_stall_seconds",
    "Times for which the event loop of the node stood still",
    buckets=(0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)


class LoopStalls:
    """Of one event loop, from `start` to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stalls: Histogram = STALLS) -> None:
        self._loop = loop
        self._stalls = stalls
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due_s = self._loop.time() + LOOP_LOOK_MS / 1_000
        self._timer = self._loop.call_at(self._due_s, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        late_s = self._loop.time() - self._due_s
        if late_s * 1_000 >= LOOP_STALL_MS_MIN:
            self._stalls.observe(late_s)
        self.start()
