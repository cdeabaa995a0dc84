"""Measures how long the event loop of a node stands still: whatever runs for long in it keeps all partitions waiting.

A timer looks every LOOP_LOOK_MS; what it comes too late by is a stall. Shorter ones than LOOP_STALL_MS_MIN are not
counted: they are what a busy loop does.

A stall has two causes that ask for different remedies: this process computed or blocked for long, or its thread waited
for a CPU that others had. So a second histogram counts the node's own part:

    own = what it came late by, less what the thread waited for a CPU since the look before (as Linux counts it),
          and at least what the thread computed since then, as far as that fits into the stall

Waiting for the lock of the interpreter counts as own: another thread of this process had it.
"""

from __future__ import annotations

import asyncio
import os
import time

from prometheus_client import Histogram

from storage_nodes.limits import LOOP_LOOK_MS, LOOP_STALL_MS_MIN

_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
STALLS = Histogram(
    "penstock_node_loop_stall_seconds",
    "Times for which the event loop of the node stood still",
    buckets=_BUCKETS,
)
OWN_STALLS = Histogram(
    "penstock_node_loop_own_stall_seconds",
    "The same, less the time for which its thread waited for a CPU",
    buckets=_BUCKETS,
)
# Of the thread that opens it: nanoseconds on a CPU, nanoseconds ready but waiting for one, turns.
_SCHEDULING = "/proc/thread-self/schedstat"
_SCHEDULING_BYTES = 128


class LoopStalls:
    """Of one event loop, from `start` to `stop`, both on its thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stalls: Histogram = STALLS, own_stalls: Histogram = OWN_STALLS
    ) -> None:
        self._loop = loop
        self._stalls = stalls
        self._own_stalls = own_stalls
        self._due_s = 0.0
        self._computed_s = self._waited_s = 0.0  # until the last look
        self._timer: asyncio.TimerHandle | None = None
        self._scheduling = -1  # a file descriptor

    def start(self) -> None:
        try:
            self._scheduling = os.open(_SCHEDULING, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._scheduling = -1  # not told here: all of a stall counts as own
        self._look_again()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._scheduling >= 0:
            os.close(self._scheduling)
            self._scheduling = -1

    def _look_again(self) -> None:
        self._computed_s, self._waited_s = time.thread_time(), self._waited_for_cpu_s()
        self._due_s = self._loop.time() + LOOP_LOOK_MS / 1_000
        self._timer = self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        late_s = self._loop.time() - self._due_s
        if late_s * 1_000 >= LOOP_STALL_MS_MIN:
            self._stalls.observe(late_s)
            computed_s = time.thread_time() - self._computed_s
            own_s = own_part_s(late_s, computed_s, self._waited_for_cpu_s() - self._waited_s)
            if own_s * 1_000 >= LOOP_STALL_MS_MIN:
                self._own_stalls.observe(own_s)
        self._look_again()

    def _waited_for_cpu_s(self) -> float:
        return int(os.pread(self._scheduling, _SCHEDULING_BYTES, 0).split()[1]) / 1e9 if self._scheduling >= 0 else 0.0


def own_part_s(late_s: float, computed_s: float, waited_s: float) -> float:
    """Of a stall: both times are those since the look before, which was LOOP_LOOK_MS earlier than the stall began."""
    return max(late_s - waited_s, min(late_s, computed_s))
