"""What is to be written to one connection, in order, as fast as its other end takes it.

    put      a frame joins the queue
    flush    as much of the queue as the transport takes goes to it, in writes of about WRITE_BYTES
    pause    the transport holds enough (asyncio's pause_writing): the rest waits here, where it can be counted
    resume   it drained: go on

What the transports of clients hold counts against the budget, too, as it is found at `pause`, at `resume` and at every
look. A frame larger than what a transport takes is in it as a whole. Links to peers are few: theirs are not counted.

Nothing is cut because much waits: whoever fills the queue is told to stop (`bytes`). A connection is cut only when
nothing at all left its transport for WRITE_STALL_MS_MAX although there was something to write. Time in which this node
itself stood still does not count: whatever the other end read meanwhile could not be seen.
"""

from __future__ import annotations

import asyncio
from collections import deque

from storage_nodes.limits import LOOK_COUNTS_MS_MAX, TRANSPORT_BYTES_MAX, WRITE_BYTES, WRITE_STALL_MS_MAX
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget


class Outflow:
    """`bytes` and the frames behind it wait; `written` counts the frames that were handed to the transport."""

    __slots__ = (
        "_accounted", "_budget", "_kind", "_left_bytes", "_looked_ms", "_moved_frames", "_still_ms", "_transport",
        "bytes", "is_paused", "passed_bytes", "waiting", "written",
    )  # fmt: skip

    def __init__(self, transport: asyncio.Transport, budget: MemoryBudget, kind: Kind) -> None:
        transport.set_write_buffer_limits(TRANSPORT_BYTES_MAX, TRANSPORT_BYTES_MAX // 2)
        self._transport = transport
        self._budget = budget
        self._kind = kind
        self.waiting: deque[bytes] = deque()
        self.bytes = 0
        self.passed_bytes = 0  # in the transport, as far as the budget knows
        self.written = 0
        self.is_paused = False
        # Of `bytes`, as far as the budget knows: what comes and goes within one turn is not told.
        self._accounted = 0
        # For how long nothing left, as far as anybody looked, when that was, and what the transport held then.
        self._still_ms = 0
        self._looked_ms = 0
        self._moved_frames = 0
        self._left_bytes = 0

    @property
    def frames(self) -> int:
        """How many were ever put: the number of the next one."""
        return self.written + len(self.waiting)

    def put(self, frame: bytes) -> None:
        self.waiting.append(frame)
        self.bytes += len(frame)

    def put_first(self, frame: bytes) -> None:
        """Small, rare and urgent: past everything that waits here."""
        self._left_bytes += len(frame)
        self._transport.write(frame)

    def flush(self) -> None:
        if not self.is_paused:
            while self.bytes > WRITE_BYTES and not self.is_paused:
                data = self._next_frames()
                self.bytes -= len(data)
                self._transport.write(data)
            waiting = self.waiting
            if waiting and not self.is_paused:
                self.written += len(waiting)
                self.bytes = 0
                data = b"".join(waiting)
                waiting.clear()
                self._transport.write(data)
        if self.bytes != self._accounted:
            self._budget.take(self._kind, self.bytes - self._accounted)
            self._accounted = self.bytes

    def _next_frames(self) -> bytes:
        frames: list[bytes] = []
        size = 0
        while self.waiting and size < WRITE_BYTES:
            frames.append(self.waiting.popleft())
            size += len(frames[-1])
        self.written += len(frames)
        return b"".join(frames)

    def pause(self) -> None:
        self.is_paused = True
        self._account_passed(self._transport.get_write_buffer_size())

    def resume(self) -> None:
        self.is_paused = False
        self._account_passed(self._transport.get_write_buffer_size())
        self.flush()

    def _account_passed(self, size_bytes: int) -> None:
        if size_bytes != self.passed_bytes and self._kind is Kind.ANSWERS:
            self._budget.take(self._kind, size_bytes - self.passed_bytes)
            self.passed_bytes = size_bytes

    def close(self) -> None:
        """The connection is gone, and with it what waited."""
        self.waiting.clear()
        self._budget.give(self._kind, self._accounted + self.passed_bytes)
        self.bytes = self.passed_bytes = self._accounted = 0
        self.is_paused = True

    def is_stuck(self, now_ms: int) -> bool:
        """To be asked now and then: has nothing left for WRITE_STALL_MS_MAX?"""
        left_bytes = self._transport.get_write_buffer_size()
        self._account_passed(left_bytes)
        if not self.is_paused or left_bytes < self._left_bytes or self.written != self._moved_frames:
            self._still_ms = 0
            self._moved_frames = self.written
        else:
            self._still_ms += min(now_ms - self._looked_ms, LOOK_COUNTS_MS_MAX)
        self._looked_ms = now_ms
        self._left_bytes = left_bytes
        return self._still_ms >= WRITE_STALL_MS_MAX
