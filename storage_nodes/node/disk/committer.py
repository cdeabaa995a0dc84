"""Group commit: gathers what all partitions want written, writes and syncs it off the event loop, then tells them.

While one group is on its way to the disk the next one gathers; so the batch size follows the disk by itself. What must
not leave before the disk has it (votes, append answers: R1, R5) waits here with the group that holds it.

What a group's entries send to peers goes out before the thread that writes the group is woken: the two would take the
interpreter from each other, and the peers, who have a way to go, would get the entries later.

What the partitions led here add to one group is bounded: each in its turn adds its share, and when the group is full
the others are first in line for the next one. What other leaders append is not held back here; that is bounded by the
node's memory budget (`room.py`).
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import NoReturn, Protocol

import structlog
from prometheus_client import REGISTRY

from storage_nodes.limits import BATCH_BYTES_MAX, WAL_GROUP_BYTES_MAX
from storage_nodes.log.node_log import NodeLog, WriteGroup
from storage_nodes.node.plain_metrics import GroupMetrics
from storage_nodes.protocol.peer_messages import RaftMessage

GROUPS = GroupMetrics()
REGISTRY.register(GROUPS)
SYNC_TIMES_MAX = 10_000  # between two looks; more tell nothing new
EXIT_DISK_FAILED = 74  # EX_IOERR

_log = structlog.get_logger()


def disk_failed(error: BaseException) -> NoReturn:
    """R21: one failed write or fsync ends the process, whatever it was. No retry, no clean-up."""
    _log.critical("disk write failed, stopping", error=repr(error))
    os._exit(EXIT_DISK_FAILED)


class Proposer(Protocol):
    """A partition that may have something to propose, and wants to hear how far its log is durable."""

    def stage(self) -> None: ...

    def durable(self, end_offset: int) -> None: ...


class Committer:
    """One per node. `wake` is cheap and may be called any number of times."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: NodeLog,
        find: Callable[[int], Proposer | None],
        send: Callable[[int, RaftMessage], None],
        after_group: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._log = log
        self._find = find
        self._send = send
        self._after_group = after_group
        # Hands what waits for peers to their connections now; False: nothing did.
        self.flush_peers: Callable[[], bool] = lambda: False
        self._proposers: list[Proposer] = []
        # What one proposer may add to the group that gathers.
        self.share_bytes = WAL_GROUP_BYTES_MAX
        self._scheduled = False
        self._writing = False
        self._held: list[tuple[int, RaftMessage]] = []
        self._held_writing: list[tuple[int, RaftMessage]] = []
        self._work: queue.SimpleQueue[WriteGroup | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_groups, name="wal", daemon=True)
        # Of the groups written since somebody took them, and when the one under way began.
        self._sync_seconds: list[float] = []
        self._writing_since_s = 0.0
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()

    def start(self) -> None:
        self._thread.start()

    async def close(self) -> None:
        """Write what is staged, then stop."""
        self._gather()
        await self._idle.wait()
        self._work.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def propose_soon(self, proposer: Proposer) -> None:
        """Call `proposer.stage()` when the next group gathers. The caller asks once until staged."""
        self._proposers.append(proposer)
        self.wake()

    def wake(self) -> None:
        """Something was staged in the log, or wants to be."""
        if not self._scheduled and not self._writing:
            self._scheduled = True
            self._loop.call_soon(self._gather)

    def send_after_sync(self, peer: int, message: RaftMessage) -> None:
        """Send once everything staged up to now is durable."""
        if self._log.staged_bytes:
            self._held.append((peer, message))
            self.wake()
        elif self._writing:
            self._held_writing.append((peer, message))
        else:
            self._send(peer, message)

    def take_sync_times(self) -> tuple[list[float], float]:
        """(seconds each group took since the last call, how long the one under way has taken so far)."""
        taken, self._sync_seconds = self._sync_seconds, []
        return taken, self.writing_s()

    def writing_s(self) -> float:
        """How long the disk has been at its present group; 0 = it rests."""
        return self._loop.time() - self._writing_since_s if self._writing else 0.0

    def forget(self, partition: int, proposer: Proposer | None) -> None:
        """Send nothing that waits here for a sync of this partition: its replica, this proposer, is closed, and what
        the answers promise may be gone with it before they would leave (R5)."""
        self._proposers = [each for each in self._proposers if each is not proposer]
        self._held = [held for held in self._held if held[1].partition != partition]
        self._held_writing = [held for held in self._held_writing if held[1].partition != partition]

    def _gather(self) -> None:
        self._scheduled = False
        if self._writing:
            return
        self._stage_proposers()
        group = self._log.take_group()
        if group is None:
            return
        self._writing = True
        self._idle.clear()
        self._writing_since_s = self._loop.time()
        self._held_writing, self._held = self._held, []
        if self.flush_peers():
            self._loop.call_soon(self._work.put, group)
        else:
            self._work.put(group)

    def _stage_proposers(self) -> None:
        """Those that wait, in turn, until the group is full; whoever has more than its share asks again, behind."""
        proposers, self._proposers = self._proposers, []
        if len(proposers) == 1:
            proposers[0].stage()
        if len(proposers) <= 1:
            return
        self.share_bytes = max(WAL_GROUP_BYTES_MAX // len(proposers), BATCH_BYTES_MAX)
        # One takes its turn however much other leaders appended.
        full_bytes = self._log.staged_bytes + WAL_GROUP_BYTES_MAX - self.share_bytes
        for index, proposer in enumerate(proposers):
            proposer.stage()
            if self._log.staged_bytes > full_bytes:
                self._proposers = proposers[index + 1 :] + self._proposers
                break
        self.share_bytes = WAL_GROUP_BYTES_MAX

    def _write_groups(self) -> None:
        while (group := self._work.get()) is not None:
            started = time.perf_counter()
            try:
                self._log.write_group(group)
            except BaseException as error:
                disk_failed(error)
            elapsed = time.perf_counter() - started
            self._loop.call_soon_threadsafe(self._written, group, elapsed)

    def _written(self, group: WriteGroup, elapsed_s: float) -> None:
        self._writing = False
        held, self._held_writing = self._held_writing, []
        for partition, end_offset in self._log.group_written(group):
            proposer = self._find(partition)
            if proposer is not None:
                proposer.durable(end_offset)
        for peer, message in held:
            self._send(peer, message)
        GROUPS.note(group.length_bytes, elapsed_s)
        if len(self._sync_seconds) < SYNC_TIMES_MAX:
            self._sync_seconds.append(elapsed_s)
        self._after_group()
        if self._proposers or self._log.staged_bytes:
            self._gather()
        if not self._writing:
            self._idle.set()
