"""A storage node process in the simulated world: the real `StorageNode` on a simulated loop, clock, disk and network.

What is replaced is what touches the machine, and only that: the event loop, `NodeClock`, the threads (the committer's
writer and the cold readers become disk jobs that take simulated time), and the disk below `NodeLog`. A crash stops
the process between two callbacks; disk jobs under way stop in the middle of one of their writes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from storage_nodes.config import NodeConfig
from storage_nodes.log.bounds import LogBounds
from storage_nodes.log.errors import CorruptionError, DiskFailedError
from storage_nodes.log.manifest import manifest_version
from storage_nodes.log.mark import MARK_NAME, SLOT_BYTES
from storage_nodes.log.node_log import NodeLog, PartitionLog, WriteGroup
from storage_nodes.log.segment import segment_partition
from storage_nodes.log.wal import GROUP_HEADER_BYTES, wal_name
from storage_nodes.node import node as node_module
from storage_nodes.node.disk import blocking_work as blocking_work_module
from storage_nodes.node.disk import flushing as flushing_module
from storage_nodes.node.disk.committer import Committer
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas import replica as replica_module
from storage_nodes.node.replicas.stopped_replicas import StopKind, StoppedReplicas
from storage_nodes.node.transport import inter_partition_client as forwards_module
from storage_nodes.protocol.levels import Speaks
from storage_nodes.protocol.peer_messages import Heartbeat, RaftFrame, RaftMessage
from tests.simulation.clocks import MachineClock, SimClock
from tests.simulation.guards import NotDeterministic
from tests.simulation.network import Network, between
from tests.simulation.oracle import BrokenInvariant
from tests.simulation.process_loop import ProcessLoop
from tests.simulation.sim_disk import DiskFull, PowerLost, SimDisk, SyncFailed
from tests.simulation.touched import Touched
from tests.simulation.transport import SimTransport

if TYPE_CHECKING:
    from tests.simulation.world import World

DIRECTORY = "/data"
BOOT_US = 20_000
MARK_BYTES = 32  # of a slot


class GroupWriter:
    """Takes the place of the queue to the WAL thread."""

    def __init__(self, process: SimProcess, written: Callable[[WriteGroup, float], None]) -> None:
        self._process = process
        self._written = written

    def put(self, group: WriteGroup) -> None:
        self._process.disk_job(partial(self._process.log.write_group, group), partial(self._done, group))

    def _done(self, group: WriteGroup, result: object, error: Exception | None) -> None:
        if error is not None:
            self._process.exit()  # R21
        else:
            self._process.group_synced(group)
            self._process.world.scheduler.after(
                self._process.random.randrange(100), self._process.post, self._written, group, 0.0
            )


class SimCommitter(Committer):
    """The real one but for its thread."""

    def __init__(self, loop: Any, *arguments: Any) -> None:
        super().__init__(loop, *arguments)
        self._work = GroupWriter(loop.process, lambda group, elapsed_s: self._written(group, elapsed_s))  # type: ignore[assignment]

    def start(self) -> None:
        pass

    async def close(self) -> None:
        self._gather()
        await self._idle.wait()


class NodeLoop(ProcessLoop):
    """The loop of a node: its executor is the disk."""

    def __init__(self, process: SimProcess) -> None:
        super().__init__(process, process.world.scheduler)
        self.process = process

    async def create_server(self, accept: Callable[[], Any], host: str, port: int, **_: object) -> Any:  # type: ignore[override]
        self.process.world.network.servers[port] = (self.process, accept)
        return SimpleNamespace(close=lambda: None)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, work: Callable[..., Any], *args: Any
    ) -> Any:
        future = self.create_future()

        def settle(result: object, error: Exception | None) -> None:
            if future.done():
                return  # whoever waited was cancelled
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def done(result: object, error: Exception | None) -> None:
            if not self.dead:
                self.post(settle, result, error)

        self.process.disk_job(partial(work, *args), done, at_once=self.process.world.faults.early_work)
        return future


class SimProcess:
    """One node over its lives."""

    def __init__(self, world: World, node_id: int, bounds: LogBounds) -> None:
        self.world = world
        self.process_id = node_id
        self.random = random.Random(f"{world.seed}-node-{node_id}")
        self.disk = SimDisk(random.Random(f"{world.seed}-disk-{node_id}"))
        self.clock = MachineClock(world.scheduler)
        self.damaged = ""  # the file in which a byte changed, or cannot be read
        self.spoiled = 0
        self.gone_back: set[int] = set()  # partitions that an older directory holds, and that are not trusted yet
        self.is_untold = False  # no peer has said so yet
        self.is_up = False
        self.is_stopping = False
        self.resumed_us = 0
        self.lives = 0
        self.speaks = Speaks()
        self.hears = (0, 0)  # (node, incarnation) whose messages are being read
        self.heard = {node_id}  # nodes whose answering heartbeats came in this life, and itself
        self.confirmed_groups: list[tuple[int, int, int]] = []  # (WAL file, position, length) of the last ones
        self.loop: NodeLoop
        self.node: StorageNode | None = None
        self.touched = Touched(lambda: world.oracle.check_incarnation(self, *self.hears))
        self.log: NodeLog
        self._bounds = bounds
        self._jobs: dict[int, Callable[[], object]] = {}
        self._job_number = 0

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        assert not self.is_up
        self.world.levels.starting(self)
        self.is_up = True
        self.lives += 1
        self.loop = NodeLoop(self)  # type: ignore[abstract]
        self._jobs = {}
        self.is_stopping = False
        self.heard = {self.process_id}
        self.world.clock_faults.starting(self)
        if self.world.faults.crash_rate and self.random.random() < 0.05:
            self.disk.crash_after = self.random.randrange(1, 15)
        self.loop.post(lambda: self.loop.create_task(self._boot()))

    def crash(self, power_lost: bool) -> None:
        """Stop now, jobs in the middle; with `power_lost` the disk loses what was not synced."""
        if not self.is_up:
            return
        self.is_up = False
        self.loop.dead = True
        for job in list(self._jobs.values()):
            if self.random.random() < 0.8:
                self.disk.crash_after = self.random.randrange(1, 12)
                with suppress(PowerLost, OSError, CorruptionError, DiskFailedError):
                    job()
                if self.disk.crash_after is not None and self.disk.crash_after > 0 and not power_lost:
                    continue
                break
        self._end(power_lost)

    def _end(self, power_lost: bool) -> None:
        self.is_up = False
        self.loop.end()
        self._jobs = {}
        self.disk = self.disk.restarted(power_lost)
        self.world.network.ended(self)
        self.node = None

    def stop(self) -> None:
        """As by SIGTERM: the node hands over, writes what is staged and ends."""
        if self.is_up and self.node is not None and not self.is_stopping:
            self.is_stopping = True
            self.loop.post(lambda: self.loop.create_task(self._stop()))

    async def _stop(self) -> None:
        node = self.node
        if node is not None and node._server is not None:
            await node.close()
            self.world.stops += 1
            self._end(power_lost=False)

    def finish_jobs(self, wait: bool) -> None:
        """What the node's threads still do; nobody hears of how it ended."""
        for job in list(self._jobs.values()):
            job()
        self._jobs = {}

    def wipe(self) -> None:
        """The disk is replaced by an empty one, and the node keeps its name."""
        assert not self.is_up
        self.disk = SimDisk(self.disk.chance)
        self.damaged, self.confirmed_groups, self.gone_back = "", [], set()
        self.world.lost_disks.lost(self)
        self.world.oracle.wiped(self.process_id)

    def exit(self) -> None:
        """The process ends itself."""
        self.crash(power_lost=False)

    def pause(self, duration_us: int) -> None:
        """A shorter pause wakes no machine that sleeps."""
        if self.is_up:
            until_us = max(self.loop.paused_until_us, self.world.scheduler.now_us + duration_us)
            self.resumed_us = self.loop.paused_until_us = until_us

    def group_synced(self, group: WriteGroup) -> None:
        extent = (group.file_number, group.position, GROUP_HEADER_BYTES + group.length_bytes)
        self.confirmed_groups = [*self.confirmed_groups[-7:], extent]

    def rot(self, chance: random.Random, power_lost: bool, unreadable: bool) -> None:
        """A synced byte changes, or the file is cut there. After a power loss the mark of the synced end may be behind,
        so that nothing but a changed byte before the last group can be told from a torn tail; or a sector that cannot
        be read, since a torn write can be."""
        groups = self.confirmed_groups[:-1] if power_lost and not unreadable else self.confirmed_groups
        if groups:
            number, position, length = chance.choice(groups)
            name = wal_name(number)
            directory = os.path.join(DIRECTORY, "wal")
            if name in self.disk.list_directory(directory):
                cut = chance.random() < 0.5 and not power_lost and not unreadable
                is_last = (number, position, length) == self.confirmed_groups[-1]
                if cut or is_last:
                    # Written back in the meantime: a start that loses power first would take it for a torn tail.
                    self.disk.open(os.path.join(DIRECTORY, MARK_NAME))._inode.sync()
                self._damage(os.path.join(directory, name), position + chance.randrange(length), cut, unreadable)

    def spoil(self, chance: random.Random, unreadable: bool) -> None:
        """A file that is read at the start is damaged: a manifest, both, a slot of the mark, both, a checkpoint."""
        versions = [name for name in self.disk.names_in(DIRECTORY) if manifest_version(name) is not None]
        manifests = [os.path.join(DIRECTORY, name) for name in versions]
        checkpoints = os.path.join(DIRECTORY, "checkpoints")
        paths = [os.path.join(checkpoints, name) for name in self.disk.names_in(checkpoints)]
        mark = os.path.join(DIRECTORY, MARK_NAME)
        what = chance.randrange(8)
        if what < 3 and len(manifests) == 2:
            self._damage_any(chance, chance.choice(manifests), unreadable)
        elif what == 3 and len(manifests) == 2:
            # As good as no disk at all: nothing of what it held is expected any more.
            for path in manifests:
                self._damage_any(chance, path, unreadable)
            self.confirmed_groups = []
            self.world.oracle.wiped(self.process_id)
        elif what < 6 and self.disk.holds(mark):
            slots = chance.choice([(0,), (SLOT_BYTES,), (0, SLOT_BYTES)])
            for slot in slots:
                self._damage(mark, slot + chance.randrange(MARK_BYTES), False, unreadable)
        elif paths:
            self._damage_any(chance, chance.choice(paths), unreadable)

    def _damage_any(self, chance: random.Random, path: str, unreadable: bool) -> None:
        if self.disk.data_of(path):  # one may be in the making
            self._damage(path, chance.randrange(len(self.disk.data_of(path))), False, unreadable)

    def _damage(self, path: str, position: int, cut: bool, unreadable: bool) -> None:
        self.damaged = path
        self.spoiled += 1
        self.world.lost_disks.lost(self)
        if unreadable:
            self.disk.make_unreadable(path, position)
        else:
            self.disk.rot(path, position, cut)

    def rot_segment(self, chance: random.Random, unreadable: bool) -> None:
        """A byte of a segment changes. Whoever reads it notices, and lets the group feed the replica again."""
        directory = os.path.join(DIRECTORY, "segments")
        names = [name for name in self.disk.names_in(directory) if segment_partition(name) > 0]
        paths = [os.path.join(directory, name) for name in names]
        paths = [path for path in paths if self.disk.data_of(path)]  # one may be in the making
        if paths:
            self._damage_any(chance, chance.choice(paths), unreadable)

    @property
    def rotted(self) -> bool:
        """Was something damaged, and may still be there?"""
        return bool(self.damaged)

    def look_at_damage(self) -> None:
        """What was damaged may be gone by now."""
        if not self.disk.holds(self.damaged):
            self.damaged = ""

    def opened(self) -> None:
        """A start makes another mark where none was left, and its first group goes to the slot that was lost."""
        if os.path.basename(self.damaged) == MARK_NAME:
            self.damaged = ""
        self.look_at_damage()

    async def _boot(self) -> None:
        node = StorageNode(self._config(), None, self.speaks)
        self._follow_stops(node.stopped)
        self.touched.follow_all(node.replicas)
        self.node = node
        oracle, real_send = self.world.oracle, node.links.send

        def send(peer: int, message: RaftMessage) -> None:
            oracle.leaves(self, peer, message)
            real_send(peer, message)

        real_frame = node.raft_frame

        def raft_frame(sender: int, frame: RaftFrame) -> None:
            self.hears = (sender, frame.incarnation)
            real_frame(sender, frame)
            self.hears = (0, 0)

        real_heard = node.peer_heard

        def peer_heard(beat: Heartbeat) -> str:
            if beat.echo_incarnation == node.links.incarnation and beat.echo_seq:
                self.heard.add(beat.node_id)
            return real_heard(beat)

        node.links.send = send  # type: ignore[method-assign]
        node.peer_heard = peer_heard  # type: ignore[method-assign]
        node.raft_frame = raft_frame  # type: ignore[method-assign]
        await node.start()

    def _follow_stops(self, stopped: StoppedReplicas) -> None:
        accidents, real_note = self.world.accidents, stopped._note

        def note(log: PartitionLog, kind: StopKind, offset: int, error: BaseException, commit: int) -> None:
            accidents.check_stop(self, log.partition, kind, error)
            real_note(log, kind, offset, error, commit)
            accidents.check_stopped(self, log, kind)

        stopped._note = note  # type: ignore[method-assign]

    def open_log(self, **more: Any) -> NodeLog:
        self.log = NodeLog.open(DIRECTORY, self._bounds, self.disk, **more)
        self.disk.crash_after = None
        self.disk.eio_rate = self.world.faults.eio_rate
        self.world.oracle.opened(self, self.log)
        return self.log

    def _config(self) -> NodeConfig:
        nodes = ",".join(f"{node_id}=sim:{node_id}@zone-{node_id}" for node_id in self.world.node_ids)
        more: dict[str, Any] = {}
        if self.world.faults.tight:
            more["node_memory_bytes"] = self.world.faults.node_memory_bytes
        return NodeConfig("sim", self.process_id, DIRECTORY, f"sim:{self.process_id}", nodes, **more)

    # --- loop and disk --------------------------------------------------------------------------------------------

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        if self.is_up:
            self.loop.post(callback, *args)

    @property
    def network(self) -> Network:
        return self.world.network

    def connected(self, here: SimTransport) -> None:
        pass

    def entered(self) -> None:
        self.world.current = self

    def turned(self) -> None:
        if self.is_up:
            self.world.oracle.turned(self)

    def unhandled(self, error: BaseException) -> None:
        """As the node's own handler: the process ends. Only what a fault explains is no bug."""
        if isinstance(error, ConnectionError | TimeoutError):
            return
        if isinstance(error, BrokenInvariant | NotDeterministic):
            raise error
        if isinstance(error, PowerLost):
            self.crash(power_lost=True)
        elif isinstance(error, SyncFailed | DiskFull | DiskFailedError) or (
            isinstance(error, CorruptionError) and self.rotted
        ):
            self.exit()
        else:
            self.world.oracle.stopped_by_bug(self, error)

    def disk_job(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None], at_once: bool = False
    ) -> None:
        """Do `work` after the disk's delay and tell `done`; `at_once`: do it now, and tell `done` after the delay, as a
        thread that is quick and whose loop hears of it late."""
        self._job_number += 1
        number = self._job_number
        self._jobs[number] = work
        scheduler, delay_us = self.world.scheduler, between(self.random, *self.world.faults.disk_us)
        if at_once:
            scheduler.after(0, self._perform, self.loop, number, partial(scheduler.after, delay_us, done))
        else:
            scheduler.after(delay_us, self._perform, self.loop, number, done)

    def _perform(self, loop: NodeLoop, number: int, done: Callable[[Any, Exception | None], None]) -> None:
        if loop.dead or number not in self._jobs:
            return  # the second: `finish_jobs` has done it
        work = self._jobs.pop(number)
        self.entered()
        try:
            result = work()
        except (OSError, CorruptionError, DiskFailedError) as error:
            done(None, error)
        else:
            done(result, None)


def _raise(error: BaseException) -> NoReturn:
    """Where the node would end its process: `stopped` of the simulated one hears of the error instead."""
    raise error


@contextmanager
def node_in(world: World) -> Iterator[None]:
    """The storage node's modules take clock, log, threads and chance from the process that runs at the moment."""

    class CurrentRandom:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.current.random, name)

        def random(self) -> float:
            return world.current.random.random()

        def getrandbits(self, bits: int) -> int:
            return world.current.random.getrandbits(bits)

    replaced: list[tuple[Any, str, Any]] = [
        (node_module, "NodeClock", lambda: SimClock(world.current.clock)),
        (node_module, "NodeLog", SimpleNamespace(open=lambda directory, **more: world.current.open_log(**more))),
        (node_module, "Committer", SimCommitter),
        (blocking_work_module, "disk_failed", _raise),
        (flushing_module, "disk_failed", _raise),
        (blocking_work_module, "ThreadPoolExecutor", lambda *_: SimpleNamespace(shutdown=world.current.finish_jobs)),
        (replica_module, "random", CurrentRandom()),
        (forwards_module, "random", CurrentRandom()),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
