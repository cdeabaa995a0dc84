"""Snapshots between nodes: how a replica that cannot be fed from its leader's log gets it anyway.

    leader    SendSnapshot -> SnapshotSender: state as of `applied`, then the entries below that still matter, one chunk
              at a time; the next one leaves when the last one was answered, so at most one is under way per follower
    follower  TakeSnapshot -> SnapshotReceiver: entries go to segment files that nothing names yet; after the last chunk
              the log is installed by one manifest switch, the machine restored, and appends resume

A chunk that is not answered is sent again; the snapshot is given up after some of that, when the leader leads no more,
or when another one takes its place. Giving up costs only time: the leader asks again where the follower's log ends.
What arrives is fenced by the Raft machine (epoch, R14; never over newer committed state, R18) before it comes here.

Every snapshot has a number of its own. Another one to the same follower, up to the same offset, is cut into chunks at
other places once a flush dropped dead entries or moved live ones: going on with it where the last one ended would leave
out entries that nobody ever misses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

import structlog
from prometheus_client import Counter

from storage_nodes.limits import (
    SNAPSHOT_CHECKPOINT_BYTES_MAX,
    SNAPSHOT_CHUNK_BYTES_MAX,
    SNAPSHOT_RESEND_MS,
    SNAPSHOT_RESENDS_MAX,
    SNAPSHOTS_SENDING_MAX,
)
from storage_nodes.log.checkpoint import Blob, BlobReader
from storage_nodes.log.node_log import FlushFacts, ImportedLog, NodeLog, PartitionLog
from storage_nodes.log.record_batch import BatchError, read_header, verify_batch
from storage_nodes.log.segment import SegmentRef
from storage_nodes.machines.raft.effects import SendSnapshot, TakeSnapshot
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.node.replicas.catch_up_reads import CatchUpReads
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.stopped_replicas import StopKind, StoppableReplica, StoppedReplicas
from storage_nodes.protocol.configuration import (
    ConfigurationEntry,
    ConfigurationError,
    decode_configuration,
    encode_configuration,
)
from storage_nodes.protocol.peer_messages import RaftMessage, SnapshotChunk, SnapshotReply

SNAPSHOTS_SENT = Counter("penstock_node_snapshots_sent", "Snapshots that followers of leaders here took wholly")
SNAPSHOTS_INSTALLED = Counter("penstock_node_snapshots_installed", "Snapshots installed in the place of a local log")
# A flush or a staged entry may be in the way of an install for a moment.
INSTALL_RETRY_S = 0.01

_log = structlog.get_logger()


T = TypeVar("T")


class SnapshotHost(Protocol):
    """What snapshots need of the node of their replica."""

    @property
    def node_id(self) -> int: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def log(self) -> NodeLog: ...
    @property
    def catch_up_reads(self) -> CatchUpReads: ...
    def send(self, peer: int, message: RaftMessage) -> None: ...
    @property
    def stopped(self) -> StoppedReplicas: ...
    @property
    def snapshots(self) -> Snapshots: ...
    def run_maintenance(self, work: Callable[[], T], done: Callable[[T], None]) -> None: ...


class SnapshotReplica(StoppableReplica, Protocol):
    """What a snapshot needs of its replica."""

    @property
    def host(self) -> SnapshotHost: ...
    @property
    def log(self) -> PartitionLog: ...
    @property
    def raft(self) -> RaftMachine: ...
    @property
    def meta(self) -> PartitionMeta: ...
    @property
    def partition(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def flush_facts(self) -> FlushFacts: ...
    def restoring(self, checkpoint: bytes) -> Callable[[], None]: ...
    def installed(self, end_offset: int, restore: Callable[[], None]) -> None: ...
    def snapshot_ended(self, peer: int) -> None: ...


class SnapshotSender:
    """One snapshot for one follower."""

    def __init__(self, snapshots: Snapshots, replica: SnapshotReplica, effect: SendSnapshot, serial: int) -> None:
        self.replica = replica
        self.serial = serial
        self.peer = effect.peer
        self.epoch = effect.epoch
        self._learner = effect.learner
        self._configuration = ConfigurationEntry(0, replica.meta.boot(replica.host.node_id))
        self._snapshots = snapshots
        self._end_offset = 0
        self._last_epoch = 0
        self._checkpoint = BlobReader(b"")
        self._live: Callable[[int, int], bool] = _all_live
        self._checkpoint_at = 0
        self._read_at = 0
        self._chunk: SnapshotChunk | None = None
        self._awaited = False  # an answer to the last chunk; else the next one is being read
        self._resends = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        replica = self.replica
        log = replica.log
        facts = replica.flush_facts()
        self._live = facts.live
        self._end_offset = facts.applied
        self._last_epoch = log.epoch_at(facts.applied)
        self._configuration = log.configuration_at(facts.applied) or self._configuration
        self._read_at = log.log_start
        _log.info("sending a snapshot", partition=replica.partition, peer=self.peer, end_offset=self._end_offset)
        epochs, starts = log.boundaries(log.log_start, self._end_offset)
        begin = partial(self._begin, list(epochs), list(starts))
        if isinstance(facts.checkpoint, bytes):
            begin(BlobReader(facts.checkpoint))
        else:
            replica.host.run_maintenance(partial(self._pack, facts.checkpoint), begin)

    def _pack(self, checkpoint: Blob) -> BlobReader | Exception:
        """BLOCKING. A large state takes its time to be packed: not on the event loop."""
        try:
            return BlobReader(b"" if self._closed else checkpoint)
        except Exception as error:
            return error

    def _begin(self, epochs: list[int], starts: list[int], checkpoint: BlobReader | Exception) -> None:
        if self._closed:
            return
        if isinstance(checkpoint, BlobReader):
            self._checkpoint = checkpoint
            self._send_state(0, epochs, starts)
        else:
            self._snapshots.cannot_be_sent(self, checkpoint)

    def replied(self, number: int) -> None:
        if self._closed or self._chunk is None or not self._awaited or number != self._chunk.number:
            return
        # The next chunk may be read from disk, in its turn, for seconds. Meanwhile a second answer to the last one (the
        # network repeats, or a chunk was sent again because the first answer was late) must not read the same entries
        # beside it, and nothing is to be sent again or given up: it is us who are slow.
        self._awaited = False
        assert self._timer is not None, "a chunk that left has a timer"
        self._timer.cancel()
        if self._chunk.done:
            SNAPSHOTS_SENT.inc()
            self._snapshots.ended(self)
        elif self._checkpoint_at < len(self._checkpoint):
            self._send_state(number + 1, [], [])
        else:
            self._read()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _send_state(self, number: int, epochs: list[int], starts: list[int]) -> None:
        try:
            piece = self._checkpoint.read(self._checkpoint_at, SNAPSHOT_CHUNK_BYTES_MAX)
        except Exception as error:
            self._snapshots.cannot_be_sent(self, error)
            return
        self._checkpoint_at += len(piece)
        self._send(number, piece, [], False, epochs, starts)

    def _read(self) -> None:
        log = self.replica.log
        at = self._read_at
        batches = log.read_hot(at, SNAPSHOT_CHUNK_BYTES_MAX) if at < self._end_offset else []
        if batches is not None:
            self._send_entries(batches)
        else:
            self.replica.host.catch_up_reads.submit(
                lambda: log.read_cold(at, SNAPSHOT_CHUNK_BYTES_MAX), self._send_entries
            )

    def _send_entries(self, batches: list[bytes]) -> None:
        """Those below the end that hold anything live; dead ones are gone after their state, as in a flush."""
        if self._closed or self._chunk is None:
            return
        entries: list[bytes] = []
        done = not batches
        for batch in batches:
            header = read_header(batch)
            if header.end_offset > self._end_offset:
                done = True
                break
            self._read_at = header.end_offset
            if self._live(header.base_offset, header.last_offset):
                entries.append(batch)
        if entries or done:
            self._send(self._chunk.number + 1, b"", entries, done, [], [])
        else:
            # From the loop, not from here: a long stretch of dead entries must not nest.
            self.replica.host.loop.call_soon(self._read)

    def _send(
        self, number: int, checkpoint: bytes, entries: list[bytes], done: bool, epochs: list[int], starts: list[int]
    ) -> None:
        end, configuration = self._configuration
        self._chunk = SnapshotChunk(
            self.replica.partition, self.epoch, self._end_offset, self._last_epoch, number, checkpoint, entries, done,
            epochs, starts, self._learner, b"" if number else encode_configuration(configuration), end, self.serial,
        )  # fmt: skip
        self._awaited = True
        self._resends = -1
        self._leave()

    def _leave(self) -> None:
        assert self._chunk is not None
        self._resends += 1
        if self._closed:
            return
        if self._resends > SNAPSHOT_RESENDS_MAX:
            _log.warning("giving up a snapshot: no answer", partition=self.replica.partition, peer=self.peer)
            self._snapshots.ended(self)
            return
        if self._timer is not None:
            self._timer.cancel()
        host = self.replica.host
        self._timer = host.loop.call_later(SNAPSHOT_RESEND_MS / 1000, self._leave)
        host.send(self.peer, self._chunk)


class SnapshotReceiver:
    """One snapshot that is coming in."""

    def __init__(self, snapshots: Snapshots, replica: SnapshotReplica, first: TakeSnapshot) -> None:
        self._snapshots = snapshots
        self.replica = replica
        self.sender = first.sender
        self.epoch = first.chunk.epoch
        self.end_offset = first.chunk.end_offset
        self.serial = first.chunk.serial
        self._epochs = first.chunk.epochs
        self._starts = first.chunk.starts
        configuration = decode_configuration(first.chunk.configuration)
        self._configuration = ConfigurationEntry(first.chunk.configuration_end, configuration)
        self._import = replica.host.log.begin_import(replica.partition)
        self._state: list[bytes] = []
        self._state_bytes = 0
        self._expected = 0
        self._busy = False
        self._closed = False
        self.installing = False

    def is_of(self, effect: TakeSnapshot) -> bool:
        return (self.sender, self.epoch, self.serial) == (effect.sender, effect.chunk.epoch, effect.chunk.serial)

    def overtook(self, effect: TakeSnapshot) -> bool:
        """Is this a late chunk of one that its sender gave up for ours? In an epoch one process leads, and counts."""
        chunk = effect.chunk
        return (self.sender, self.epoch) == (effect.sender, chunk.epoch) and chunk.serial < self.serial

    def take(self, chunk: SnapshotChunk) -> None:
        if self._busy or self.installing:
            return
        if chunk.number != self._expected:
            if chunk.number < self._expected:
                self._answer(chunk.number)  # the answer was lost
            return
        try:
            for entry in chunk.entries:
                verify_batch(entry)
        except BatchError as error:
            _log.error("dropping a damaged chunk", partition=chunk.partition, sender=self.sender, error=str(error))
            return
        self._state_bytes += len(chunk.checkpoint)
        assert self._state_bytes <= SNAPSHOT_CHECKPOINT_BYTES_MAX, "a checkpoint outgrew its bound"
        self._state.append(chunk.checkpoint)
        self._expected += 1
        if not chunk.entries and not chunk.done:
            self._answer(chunk.number)
            return
        self._busy = True
        self.replica.host.run_maintenance(lambda: self._import.add(chunk.entries), lambda _: self._taken(chunk))

    def close(self) -> None:
        """Give it up: its files go. One that is being installed is not given up any more."""
        assert not self.installing
        self._closed = True
        if not self._busy:
            self._discard()

    def _taken(self, chunk: SnapshotChunk) -> None:
        self._busy = False
        if self._closed:
            self._discard()
        elif chunk.done:
            self._busy = True
            self.replica.host.run_maintenance(self._finish, lambda finished: self._finished(chunk, *finished))
        else:
            self._answer(chunk.number)

    def _finish(self) -> tuple[list[tuple[str, SegmentRef]], bytes]:
        """BLOCKING. A large state takes its time to be joined, and to be read: not on the event loop."""
        return self._import.finish(), b"".join(self._state)

    def _finished(self, chunk: SnapshotChunk, segments: list[tuple[str, SegmentRef]], state: bytes) -> None:
        self._busy = False
        if self._closed or not self.replica.raft.may_install(self.end_offset):
            self._snapshots.gave_up(self)
            self._discard()
            return
        self.installing = True
        self.replica.raft.installing()
        self._state.clear()
        image = ImportedLog(self.end_offset, self._epochs, self._starts, state, segments, self._configuration)
        self._install(chunk, state, image)

    def _install(self, chunk: SnapshotChunk, state: bytes, image: ImportedLog) -> None:
        replica = self.replica
        log = replica.host.log
        if replica.closed:
            self.installing = False
            self._snapshots.installed(replica.partition)
            self._discard()
            return
        plan = log.plan_install(replica.partition, image)
        if plan is None:
            replica.host.loop.call_later(INSTALL_RETRY_S, self._install, chunk, state, image)
            return

        def install() -> Callable[[], None]:
            log.run_install(plan)
            return replica.restoring(state)

        def done(restore: Callable[[], None]) -> None:
            log.install_done(plan)
            self.installing = False
            self._snapshots.installed(replica.partition)
            if not replica.closed:
                SNAPSHOTS_INSTALLED.inc()
                _log.info("snapshot installed", partition=replica.partition, end_offset=self.end_offset)
                replica.installed(self.end_offset, restore)
                self._answer(chunk.number)

        replica.host.run_maintenance(install, done)

    def _answer(self, number: int) -> None:
        reply = SnapshotReply(self.replica.partition, self.epoch, self.end_offset, number, self.serial)
        self.replica.host.send(self.sender, reply)

    def _discard(self) -> None:
        self.replica.host.run_maintenance(self._import.discard, lambda _: None)


def _all_live(_base_offset: int, _last_offset: int) -> bool:
    return True


class Snapshots:
    """All snapshots of a node, on their way out and in."""

    def __init__(self) -> None:
        self._sending: dict[tuple[int, int], SnapshotSender] = {}
        self._waiting: deque[SnapshotSender] = deque()
        self._receiving: dict[int, SnapshotReceiver] = {}
        self._last_serial = 0

    def send(self, replica: SnapshotReplica, effect: SendSnapshot) -> None:
        self._forget(replica.partition, effect.peer)
        self._last_serial += 1
        self._waiting.append(SnapshotSender(self, replica, effect, self._last_serial))
        replica.host.loop.call_soon(self._start_next)

    def replied(self, sender: int, reply: SnapshotReply) -> None:
        out = self._sending.get((reply.partition, sender))
        if out is None or (out.epoch, out.serial) != (reply.epoch, reply.serial):
            return  # late: about another one
        if out.replica.raft.epoch == reply.epoch:
            out.replied(reply.number)

    def take(self, replica: SnapshotReplica, effect: TakeSnapshot) -> None:
        chunk = effect.chunk
        receiver = self._receiving.get(replica.partition)
        if receiver is not None and receiver.installing:
            return
        if receiver is not None and receiver.overtook(effect):
            return
        if receiver is None or not receiver.is_of(effect):
            if receiver is not None:
                receiver.close()
                del self._receiving[replica.partition]
            if chunk.number or not chunk.configuration:
                return  # the rest of one that was given up
            try:
                receiver = self._receiving[replica.partition] = SnapshotReceiver(self, replica, effect)
            except ConfigurationError as error:
                _log.error("refusing a snapshot", partition=replica.partition, sender=effect.sender, error=str(error))
                return
        receiver.take(chunk)

    def ended(self, out: SnapshotSender) -> None:
        """Wholly taken, or given up."""
        self._forget(out.replica.partition, out.peer)
        replica = out.replica
        if not replica.closed and replica.raft.epoch == out.epoch:
            replica.snapshot_ended(out.peer)
        replica.host.loop.call_soon(self._start_next)

    def cannot_be_sent(self, out: SnapshotSender, error: Exception) -> None:
        """No checkpoint can be made of what was folded: the replica goes no further, as where a flush finds so."""
        self._forget(out.replica.partition, out.peer)
        out.replica.host.loop.call_soon(self._start_next)
        out.replica.host.stopped.stop(out.replica, StopKind.CHECKPOINT, out.replica.applied, error)

    def stop_sending(self, partition: int) -> None:
        """The replica leads no more."""
        self._give_up([out for out in self._under_way() if out.replica.partition == partition])

    def peer_down(self, peer: int) -> None:
        """Its leaders, whose machines know, ask anew once it is up and answers. Until then these would only keep others
        from being sent, until each is given up, and it may come back without those replicas."""
        self._give_up([out for out in self._under_way() if out.peer == peer])

    def drop(self, partition: int) -> None:
        """The replica is closed, or the snapshot that was coming in is installed."""
        self.stop_sending(partition)
        receiver = self._receiving.get(partition)
        if receiver is not None and not receiver.installing:
            receiver.close()
            del self._receiving[partition]

    def installed(self, partition: int) -> None:
        """The snapshot that was coming in is the log now, or nobody wants it any more."""
        self._receiving.pop(partition, None)

    def gave_up(self, receiver: SnapshotReceiver) -> None:
        """It is wanted no more."""
        if self._receiving.get(receiver.replica.partition) is receiver:
            del self._receiving[receiver.replica.partition]

    @property
    def installing(self) -> bool:
        return any(receiver.installing for receiver in self._receiving.values())

    def _start_next(self) -> None:
        while self._waiting and len(self._sending) < SNAPSHOTS_SENDING_MAX:
            out = self._waiting.popleft()
            self._sending[(out.replica.partition, out.peer)] = out
            try:
                out.start()
            except Exception as error:
                self.cannot_be_sent(out, error)

    def _under_way(self) -> list[SnapshotSender]:
        return [*self._sending.values(), *self._waiting]

    def _give_up(self, unwanted: list[SnapshotSender]) -> None:
        for out in unwanted:
            self._forget(out.replica.partition, out.peer)
            out.replica.host.loop.call_soon(self._start_next)

    def _forget(self, partition: int, peer: int) -> None:
        out = self._sending.pop((partition, peer), None)
        if out is not None:
            out.close()
        for waiting in [w for w in self._waiting if (w.replica.partition, w.peer) == (partition, peer)]:
            self._waiting.remove(waiting)


def send_snapshot(replica: SnapshotReplica, effect: SendSnapshot) -> None:
    replica.host.snapshots.send(replica, effect)


def take_snapshot(replica: SnapshotReplica, effect: TakeSnapshot) -> None:
    replica.host.snapshots.take(replica, effect)
