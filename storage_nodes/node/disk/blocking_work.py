"""Runs what blocks, mostly reads of segments, in threads of the node, so that the event loop is free for requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from storage_nodes.log.errors import CorruptionError, DiskFailedError
from storage_nodes.node.disk.committer import disk_failed

COLD_READERS = 2

T = TypeVar("T")


class BlockingWork:
    """Of one node. Used on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.executor = ThreadPoolExecutor(COLD_READERS, "cold")
        # Told of damage that a read met; True: it is of a single partition, and taken care of.
        self.on_corruption: Callable[[CorruptionError], bool] = lambda error: False
        self._stopped = False

    def run_cold(
        self, work: Callable[[], T], done: Callable[[T], None], damaged: Callable[[], None] = lambda: None
    ) -> None:
        """Run blocking reads in a thread, then `done` on the event loop. A read error ends the process (R12, R21),
        unless it is damage to a file of one partition (`damage.py`): then `damaged` is called."""
        if self._stopped:
            return
        future = self.loop.run_in_executor(self.executor, work)
        future.add_done_callback(lambda finished: self._cold_done(finished, done, damaged))

    def _cold_done(self, finished: asyncio.Future[T], done: Callable[[T], None], damaged: Callable[[], None]) -> None:
        error = finished.exception()
        if isinstance(error, CorruptionError) and self.on_corruption(error):
            damaged()
            return
        done(finished.result())

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """The same for what the node does of its own accord: a failed disk ends the process (R21)."""
        try:
            return await self.loop.run_in_executor(self.executor, work)
        except (OSError, DiskFailedError) as error:
            disk_failed(error)

    def stop(self) -> None:
        """Begin nothing more, and wait for what is under way."""
        self._stopped = True
        self.executor.shutdown(wait=True)
