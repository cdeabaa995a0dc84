"""The flush of finished write-ahead log files, driven: slices on the event loop, and a thread between.

    begin --> plan, a slice per turn --> wait for a group, if need be --> write, in a thread --> swap, a slice per turn

Why slices are safe: `log/flush.py`. Groups are committed meanwhile as always; the next flush begins when this one is
done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from storage_nodes.limits import TURN_SLICE_MS_MAX
from storage_nodes.log.errors import DiskFailedError
from storage_nodes.log.node_log import FlushFacts, FlushPlan, NodeLog
from storage_nodes.node.disk.committer import disk_failed


class Flushing:
    """Of one node. On the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: NodeLog,
        thread: Executor,
        facts: Callable[[int], FlushFacts | None],
    ) -> None:
        self._loop = loop
        self._log = log
        self._thread = thread
        self._facts = facts
        self.under_way = False
        # Planned, but something that was removed meanwhile is not durable yet.
        self._waiting: FlushPlan | None = None

    def look(self) -> None:
        """A group was written: may a flush begin, or go on?"""
        if self._waiting is not None:
            self._write_if_ready(self._waiting)
        elif not self.under_way and self._log.flush_due():
            plan = self._log.begin_flush()
            if plan is not None:
                self.under_way = True
                self._loop.call_soon(self._plan, plan)

    def _plan(self, plan: FlushPlan) -> None:
        until_s = self._loop.time() + TURN_SLICE_MS_MAX / 1000
        if self._log.plan_flush(plan, self._facts, lambda: self._loop.time() >= until_s):
            self._write_if_ready(plan)
        else:
            self._loop.call_soon(self._plan, plan)

    def _write_if_ready(self, plan: FlushPlan) -> None:
        if not self._log.flush_ready(plan):
            self._waiting = plan
            return
        self._waiting = None
        future = self._loop.run_in_executor(self._thread, self._log.run_flush, plan)
        future.add_done_callback(lambda finished: self._written(plan, finished.exception()))

    def _written(self, plan: FlushPlan, error: BaseException | None) -> None:
        if isinstance(error, OSError | DiskFailedError):
            disk_failed(error)
        if error is not None:
            raise error
        self._swap(plan)

    def _swap(self, plan: FlushPlan) -> None:
        self.under_way = not self._log.flush_done(plan)
        if self.under_way:
            self._loop.call_soon(self._swap, plan)
