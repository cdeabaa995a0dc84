"""What a node looks after while it serves, once a second: damage, room on its disk, how fast that is, the scrub, trash.

Nothing here is on the way of a message. What blocks runs in a thread, one piece at a time. What is decided is decided
elsewhere (`disk_space.py`, `slow_disk.py`); here it is measured, told to the peers (heartbeats) and acted upon:

    nearly full   requests that bring messages are refused, leadership goes elsewhere, trash is emptied early, and the
                  write-ahead log is flushed before its file is full, so that what is deleted frees space
    slow          leadership goes elsewhere
    clock off     the same (`clock_watch.py`)
"""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import structlog
from prometheus_client import Counter, Gauge

from storage_nodes.limits import (
    BODY_CACHE_IDLE_MS,
    CARE_INTERVAL_MS,
    MARK_SYNC_INTERVAL_MS,
    REWRITE_INTERVAL_MS,
    REWRITE_LOOKS_MAX,
    SPACE_FLUSH_INTERVAL_MS,
    TRASH_AGE_MS_MAX,
    TRASH_BYTES_MAX,
    TRASH_DAMAGED_AGE_MS_MAX,
    TRASH_INTERVAL_MS,
)
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.node_log import NodeLog
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.disk.blocking_work import BlockingWork
from storage_nodes.node.disk.committer import Committer
from storage_nodes.node.disk.disk_space import SpaceLevel, SpaceWatch
from storage_nodes.node.disk.slow_disk import SlowDisk, SyncTimes
from storage_nodes.node.disk.tails import carry, old_tails, read_tail
from storage_nodes.node.disk_care.damage import DamageControl
from storage_nodes.node.disk_care.scrub import Scrub, raise_error
from storage_nodes.node.replicas.bodies import BodyCache
from storage_nodes.node.replicas.hand_over import hand_over_some
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.transport.peers import PeerLinks

FREE_BYTES = Gauge("penstock_node_disk_free_bytes", "Free space on the disk of the node's directory")
SPACE_LEVEL = Gauge("penstock_node_disk_level", "0 = room, 1 = read-only, 2 = takes nothing from other leaders either")
SYNC_P99 = Gauge("penstock_node_sync_p99_seconds", "99th percentile of the group syncs of the last ten seconds")
SLOW = Gauge("penstock_node_slow_disk", "1 = the disk is so slow that others lead")
REWRITES = Counter("penstock_node_segment_rewrites", "Segments merged, or written anew without what was dead in them")

_log = structlog.get_logger()


class MaintainedNode(Protocol):
    """What this needs of the node; `StorageNode` has it."""

    @property
    def log(self) -> NodeLog: ...
    @property
    def replicas(self) -> LocalReplicas: ...
    @property
    def work(self) -> BlockingWork: ...
    @property
    def clock(self) -> NodeClock: ...
    @property
    def committer(self) -> Committer: ...
    @property
    def links(self) -> PeerLinks: ...
    @property
    def bodies(self) -> BodyCache: ...
    @property
    def damage(self) -> DamageControl: ...
    def may_lead(self, node_id: int) -> bool:
        """Is it the best choice: up, and neither about to stop nor being emptied?"""

    def gate_sends(self) -> None: ...


class DiskMaintenance:
    """Of one node. On the event loop."""

    def __init__(self, node: MaintainedNode, scrub: Scrub, reserve_bytes: int) -> None:
        self._node = node
        self._task: asyncio.Task[None] | None = None
        self._done_ms: dict[str, int] = {}
        self._space = SpaceWatch(reserve_bytes)
        self.closed = False  # so full that no entries of other leaders are taken
        self._sync_times = SyncTimes()
        self._slow_disk = SlowDisk()
        self._to_look_at: deque[tuple[int, int]] = deque()
        self.scrub = scrub
        # A step that keeps flushes and resets of damaged logs away is under way; a stop waits for it.
        self.busy = False
        self._stopping = False

    def start(self) -> None:
        self._task = self._node.work.loop.create_task(self._forever())
        self._task.add_done_callback(raise_error)

    def stop(self) -> None:
        self._stopping = True
        if self._task is not None and not self.busy:
            self._task.cancel()
        self.scrub.stop()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """What is done in here is done to its end: its thread goes on whoever is cancelled, and those it keeps away
        wait until it says that it is over."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
            if self._stopping and self._task is not None:
                self._task.cancel()

    async def _forever(self) -> None:
        while True:
            await asyncio.sleep(CARE_INTERVAL_MS / 1000)
            await self._once()

    async def _once(self) -> None:
        node = self._node
        node.damage.look()
        await self._look_at_space()
        self._look_at_syncs()
        self._hand_over_if_unfit()
        await self._carry_tails()
        if self._is_due("bodies", BODY_CACHE_IDLE_MS):
            node.bodies.drop_idle()
        if self._is_due("mark", MARK_SYNC_INTERVAL_MS):
            await node.work.run_blocking(node.log.sync_mark)
        if self._is_due("rewrite", CARE_INTERVAL_MS if node.links.read_only else REWRITE_INTERVAL_MS):
            await self._rewrite_some()
        if self._is_due("trash", TRASH_INTERVAL_MS):
            await self._purge_trash()
        with self._exclusive():
            await node.damage.rewrite_manifest()
        await self.scrub.look()

    # --- room ---------------------------------------------------------------------------------------------------

    async def _look_at_space(self) -> None:
        node = self._node
        free_bytes = await node.work.run_blocking(node.log.free_bytes)
        before, level = self._space.level, self._space.look(free_bytes)
        self.closed = level is SpaceLevel.CLOSED
        FREE_BYTES.set(free_bytes)
        SPACE_LEVEL.set(level)
        if level is not before:
            _log.critical(
                "disk space changed", level=level.name.lower(), free_bytes=free_bytes,
                reserve_bytes=self._space.reserve_bytes,
            )  # fmt: skip
            node.links.read_only = level is not SpaceLevel.ROOMY
            node.links.beat_all()
        node.gate_sends()
        if level is not SpaceLevel.ROOMY and self._is_due("space", SPACE_FLUSH_INTERVAL_MS):
            await self._purge_trash()
            node.log.roll()
            node.committer.wake()

    async def _carry_tails(self) -> None:
        """What stopped replicas hold beyond their commit keeps no files of the write-ahead log for long."""
        node, stopped = self._node, self._node.damage.stopped
        for tail in old_tails(node.log, stopped.logs()):
            try:
                batches = await node.work.run_blocking(partial(read_tail, tail))
            except CorruptionError as error:
                node.damage.scrubbed(error)
                continue
            if (tail.log, tail.commit) in stopped.logs() and carry(node.log, tail, batches):
                node.committer.wake()

    async def _rewrite_some(self) -> None:
        """Look at the next few segments, in turn over all of them."""
        node = self._node
        if not self._to_look_at:
            logs = node.log.partitions.values()
            self._to_look_at.extend((log.partition, ref.number) for log in logs for ref in log.segments)
        for _ in range(min(REWRITE_LOOKS_MAX, len(self._to_look_at))):
            partition, number = self._to_look_at.popleft()
            try:
                await self._rewrite(partition, number)
            except CorruptionError as error:
                node.damage.scrubbed(error)

    async def _rewrite(self, partition: int, number: int) -> None:
        """Raises CorruptionError."""
        node, rewriter = self._node, self._node.log.rewriter
        log = node.log.partitions.get(partition)
        refs = rewriter.candidate(log, number) if log is not None else ()
        if log is None or not refs:
            return
        try:
            indexes = await node.work.run_blocking(lambda: rewriter.read_indexes(partition, refs))
        except FileNotFoundError:
            return  # a flush was quicker
        replica = node.replicas.get(partition)
        if replica is None or replica.closed or replica.log is not log or node.log.partitions.get(partition) is not log:
            return
        with self._exclusive():
            plan = rewriter.plan(log, refs, indexes, replica.rewrite_facts())
            if plan is None:
                return
            try:
                await node.work.run_blocking(lambda: rewriter.run(plan))
            except CorruptionError:
                rewriter.failed()
                raise
            rewriter.done(plan)
        REWRITES.inc()

    async def _purge_trash(self) -> None:
        now_ms = self._node.links.clocks.agreed_ms()
        older_than_ms = now_ms if self._node.links.read_only else now_ms - TRASH_AGE_MS_MAX
        log = self._node.log
        purged = await self._node.work.run_blocking(
            lambda: log.purge_trash(older_than_ms, now_ms - TRASH_DAMAGED_AGE_MS_MAX, TRASH_BYTES_MAX)
        )
        if purged:
            _log.info("trash emptied", files=purged)

    # --- speed --------------------------------------------------------------------------------------------------

    def _look_at_syncs(self) -> None:
        node = self._node
        own_us, window_us = self._sync_times.look(*node.committer.take_sync_times())
        peers_us, better = node.links.sync_times()
        before, slow = self._slow_disk.slow, self._slow_disk.look(own_us, peers_us, better)
        SYNC_P99.set(window_us / 1_000_000)
        SLOW.set(slow)
        node.links.sync_us = window_us
        if slow is not before:
            _log.warning("disk is slow" if slow else "disk is slow no longer", sync_p99_us=own_us, peers_us=peers_us)
            node.links.slow = slow
            node.links.beat_all()

    def _hand_over_if_unfit(self) -> None:
        node = self._node
        if node.links.read_only or node.links.slow or node.links.clocks.is_off:
            # A node that is being emptied is better than this one.
            hand_over_some(node.replicas.values(), node.may_lead, node.links.may_lead)

    def _is_due(self, what: str, interval_ms: int) -> bool:
        now_ms = self._node.clock.mono_ms()
        if now_ms - self._done_ms.get(what, -interval_ms) < interval_ms:
            return False
        self._done_ms[what] = now_ms
        return True


def free_bytes_of(directory: str) -> int:
    """What is left of the file system; 0 = cannot be told."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0
