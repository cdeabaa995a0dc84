"""Runs what blocks in threads of the node, so that the event loop is free for requests.

Two pools, so that what takes seconds and nobody waits for does not stand in the way of what a caller waits for:

    reads         entries read back from disk: deliveries, streams, folds after a start, feeding of peers
    maintenance   flushes, rewrites, installs and the files of snapshots, the scrub, looks at the disk

A flush, an install and a rewrite never run beside each other (`log/flush.py`): one thread more is enough for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from storage_nodes.log.errors import CorruptionError, DiskFailedError
from storage_nodes.node.disk.committer import disk_failed

COLD_READERS = 2
MAINTENANCE_THREADS = 2

T = TypeVar("T")


class BlockingWork:
    """Of one node. Used on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._reads = ThreadPoolExecutor(COLD_READERS, "cold")
        self.maintenance = ThreadPoolExecutor(MAINTENANCE_THREADS, "maintenance")
        # Told of damage that a read met; True: it is of a single partition, and taken care of.
        self.on_corruption: Callable[[CorruptionError], bool] = lambda error: False
        self._stopped = False

    def run_cold(
        self, work: Callable[[], T], done: Callable[[T], None], damaged: Callable[[], None] = lambda: None
    ) -> None:
        """Run blocking reads in a thread, then `done` on the event loop. A read error ends the process (R12, R21),
        unless it is damage to a file of one partition (`disk_care/damage.py`): then `damaged` is called."""
        if self._stopped:
            return
        future = self.loop.run_in_executor(self._reads, work)
        future.add_done_callback(lambda finished: self._cold_done(finished, done, damaged))

    def run_maintenance(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """As `run_cold`, for what writes: a failed write or sync ends the process (R21)."""
        if self._stopped:
            return
        future = self.loop.run_in_executor(self.maintenance, work)
        future.add_done_callback(lambda finished: self._maintained(finished, done))

    def _maintained(self, finished: asyncio.Future[T], done: Callable[[T], None]) -> None:
        error = finished.exception()
        if isinstance(error, OSError | DiskFailedError):
            disk_failed(error)
        done(finished.result())

    def _cold_done(self, finished: asyncio.Future[T], done: Callable[[T], None], damaged: Callable[[], None]) -> None:
        error = finished.exception()
        if isinstance(error, CorruptionError) and self.on_corruption(error):
            damaged()
            return
        done(finished.result())

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """The same for what the node does of its own accord: a failed disk ends the process (R21)."""
        try:
            return await self.loop.run_in_executor(self.maintenance, work)
        except (OSError, DiskFailedError) as error:
            disk_failed(error)

    def stop(self) -> None:
        """Begin nothing more, and wait for what is under way."""
        self._stopped = True
        self._reads.shutdown(wait=True)
        self.maintenance.shutdown(wait=True)
