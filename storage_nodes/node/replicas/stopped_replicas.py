"""Replicas that go no further, while their node and all other replicas on it do.

    entry           a committed entry cannot be folded: the fold raised
    unknown-entry   a later version wrote an entry that this one does not know
    checkpoint      the checkpoint is intact, and cannot be loaded; or none can be made of what was folded
    leading         the machine raised while it began to lead, looked at what is due, or proposed
    raft            the group broke a promise of Raft: the replica is suspect from here on, on disk too
    damage          stored data is damaged, and the group cannot repair it now (`node/disk_care/damage.py`)

What stops one replica may stop its peers too: a fold decides the same everywhere. Then the partition has no leader, and
requests are refused with QUARANTINED; of another partition nobody notices anything.

A replica that stops is closed: it votes and acknowledges no more. If it led, it says so to its followers first. After
STOPPED_RETRY_MS it is opened again, from its log, STOPPED_RETRIES_AT_ONCE_MAX at a time, and later each time where it
stops the same way: its node may run another version by now, or the damage may be repaired. A start is such an attempt,
too, and what raised before raises again, within the replica; so nothing but `raft` has to be remembered on disk.

What it holds stays, and goes on through flushes: entries that were committed move to segments, all of them, so that the
write-ahead log is not kept for their sake. Those behind wait for the next attempt, in which they become committed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

import structlog
from prometheus_client import Counter, Gauge

from storage_nodes.limits import (
    STOPPED_REASON_CHARS_MAX,
    STOPPED_RETRIES_AT_ONCE_MAX,
    STOPPED_RETRY_DOUBLINGS_MAX,
    STOPPED_RETRY_MS,
)
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.node_log import FlushFacts, NodeLog, PartitionLog
from storage_nodes.machines.unknown_entries import LevelTooHighError, UnknownEntryError
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.replicas.partition_meta import shared_meta
from storage_nodes.node.replicas.replica_steps import FoundState
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import StoppedReplica

STOPPED = Gauge("penstock_node_replicas_stopped", "Replicas that are closed while their node goes on (QUARANTINED)")
STOPS = Counter("penstock_node_replica_stops", "Times that a replica was closed while its node went on", ["kind"])

_NOT_FOLDED = -1

_log = structlog.get_logger()


class StopKind(enum.StrEnum):
    ENTRY = "entry"
    UNKNOWN_ENTRY = "unknown-entry"
    CHECKPOINT = "checkpoint"
    LEADING = "leading"
    RAFT = "raft"
    DAMAGE = "damage"


_OF_ENTRY = (StopKind.ENTRY, StopKind.UNKNOWN_ENTRY)
# Another attempt of the same process comes to the same end.
_ALIKE = (*_OF_ENTRY, StopKind.CHECKPOINT)
for _kind in StopKind:
    STOPS.labels(_kind)


class ReplicaError(Exception):
    """A replica cannot go on; its cause says why. The driver of the replica stops it, and nothing else."""

    def __init__(self, kind: StopKind, offset: int) -> None:
        super().__init__(kind)
        self.kind = kind
        self.offset = offset  # of the entry, or where the replica had come to

    @classmethod
    def of_fold(cls, error: Exception, offset: int) -> ReplicaError:
        is_unknown = isinstance(error, UnknownEntryError)
        return cls(StopKind.UNKNOWN_ENTRY if is_unknown else StopKind.ENTRY, offset)


class Stopped(NamedTuple):
    """Why a replica is closed, and since when."""

    log: PartitionLog
    kind: StopKind
    offset: int
    reason: str
    commit: int  # known to be committed, and here
    since_ms: int  # ms since the epoch
    retry_ms: int  # monotonic
    repeats: int = 0  # how often it stopped so before


ReadInThread = Callable[[Callable[[], FoundState], Callable[[FoundState], None]], None]
"""Runs the first in a thread, then the second, with what it found, on the event loop."""


class Positions(Protocol):
    @property
    def commit(self) -> int: ...


class StoppableReplica(Protocol):
    """What this needs of a replica."""

    @property
    def partition(self) -> int: ...
    @property
    def log(self) -> PartitionLog: ...
    @property
    def raft(self) -> Positions: ...
    @property
    def closed(self) -> bool: ...
    @property
    def applied(self) -> int:
        """All below is folded."""

    def give_up_leading(self) -> None: ...
    def close(self) -> None: ...
    def start(self, campaign: bool) -> None: ...


class StoppableReplicas(Protocol):
    """The replicas of the node."""

    @property
    def closing(self) -> bool: ...
    def discard(self, partition: int) -> None:
        """The replica is not here any more."""

    def find_state(self, log: PartitionLog) -> FoundState:
        """BLOCKING, in any thread: for `open`."""

    def open(self, log: PartitionLog, *, found: FoundState) -> StoppableReplica | None:
        """Raises CorruptionError."""

    def get(self, partition: int) -> StoppableReplica | None: ...


class StoppedReplicas:
    """Of one node. On the event loop."""

    def __init__(
        self,
        log: NodeLog,
        replicas: StoppableReplicas,
        clock: NodeClock,
        wake: Callable[[], None],
        may_retry_damage: Callable[[PartitionLog], bool],
        read: ReadInThread,
    ) -> None:
        """`wake`: something was staged in the log. `may_retry_damage`: could the group help by now?"""
        self._log = log
        self._replicas = replicas
        self._clock = clock
        self._wake = wake
        self._may_retry_damage = may_retry_damage
        self._read = read
        self._reading: set[int] = set()  # partitions whose state is being read for another attempt
        # Called when the cluster's own log is at a feature level that this process does not speak.
        self.on_level: Callable[[int], None] = lambda level: None
        self._stopped: dict[int, Stopped] = {}
        # Opened again, not yet for STOPPED_RETRY_MS: one that stops again was stopped all the time.
        self._tried: dict[int, Stopped] = {}
        # Asked from another thread. One that is tried counts until it has held: an alarm must not come and go.
        STOPPED.set_function(lambda: len({*self._stopped, *self._tried}))

    def __contains__(self, partition: int) -> bool:
        return partition in self._stopped

    def __iter__(self) -> Iterator[int]:
        """Those that are told."""
        return iter(self._ailing())

    # --- stopping ---------------------------------------------------------------------------------------------

    def stop(self, replica: StoppableReplica, kind: StopKind, offset: int, error: BaseException) -> None:
        """The replica goes no further. Called where `error` is handled."""
        if replica.closed:
            return
        self._note(replica.log, kind, offset, error, replica.raft.commit)
        for step in (replica.give_up_leading, replica.close):
            try:
                step()
            except Exception:
                # Its machine may be in the middle of something: those who wait there are answered by their deadline.
                _log.critical("a replica that stops could not tell all", partition=replica.partition, exc_info=True)
        if not replica.closed:
            replica.close()  # now that it serves nobody, without its machine
        if replica.partition != CLUSTER_PARTITION:
            self._replicas.discard(replica.partition)

    def failed(self, replica: StoppableReplica, error: ReplicaError) -> None:
        assert error.__cause__ is not None, "a replica stops for something"
        self.stop(replica, error.kind, error.offset, error.__cause__)

    def not_opened(self, log: PartitionLog, error: Exception, kind: StopKind = StopKind.CHECKPOINT) -> None:
        """There is no replica over this log. What was flushed is committed, more is not known."""
        self._note(log, kind, log.checkpoint_offset, error, max(log.checkpoint_offset, log.flushed_end))

    def _note(self, log: PartitionLog, kind: StopKind, offset: int, error: BaseException, commit: int) -> None:
        partition = log.partition
        reason = f"{type(error).__name__}: {error}"[:STOPPED_REASON_CHARS_MAX]
        before = self._tried.pop(partition, None)
        is_again = before is not None and (before.kind, before.offset, before.reason) == (kind, offset, reason)
        if kind is StopKind.RAFT and not log.suspect:
            self._log.set_suspect(partition, True)
            self._wake()
        now_ms = self._clock.mono_ms()
        since_ms = before.since_ms if before is not None else self._clock.wall_ms()
        repeats = before.repeats + 1 if before is not None and is_again else 0
        # A state is folded and loaded the same each time, and a large one takes the event loop for long.
        doublings = min(repeats, STOPPED_RETRY_DOUBLINGS_MAX) if kind in _ALIKE else 0
        retry_ms = now_ms + (STOPPED_RETRY_MS << doublings)
        self._stopped[partition] = Stopped(log, kind, offset, reason, commit, since_ms, retry_ms, repeats)
        STOPS.labels(kind).inc()
        if partition == CLUSTER_PARTITION and isinstance(error, LevelTooHighError):
            self.on_level(error.level)
        _log.critical(
            "replica quarantined, its node goes on", partition=partition, tag=shared_meta(log.tag).tag, kind=kind,
            offset=offset, reason=reason, again=is_again, exc_info=not is_again and error,
        )  # fmt: skip

    # --- again ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Now and then: who may be tried again?"""
        now_ms = self._clock.mono_ms()
        for partition, tried in list(self._tried.items()):
            if self._replicas.get(partition) is None or now_ms >= tried.retry_ms + STOPPED_RETRY_MS:
                del self._tried[partition]
        tries = 0
        for partition, stopped in list(self._stopped.items()):
            if self._is_gone(partition, stopped):
                del self._stopped[partition]  # it went, and perhaps came back by a move
            elif now_ms >= stopped.retry_ms and tries < STOPPED_RETRIES_AT_ONCE_MAX and not self._replicas.closing:
                if stopped.kind is StopKind.DAMAGE and not self._may_retry_damage(stopped.log):
                    continue
                tries += 1
                self._read_again(partition, stopped)

    def _is_gone(self, partition: int, stopped: Stopped) -> bool:
        replica = self._replicas.get(partition)
        is_replaced = replica is not None and not replica.closed
        return is_replaced or self._log.partitions.get(partition) is not stopped.log

    def _read_again(self, partition: int, stopped: Stopped) -> None:
        """A large state takes its time to be read: in a thread, and the replica stays stopped meanwhile."""
        if partition in self._reading:
            return
        self._reading.add(partition)

        def found(state: FoundState) -> None:
            self._reading.discard(partition)
            if self._stopped.get(partition) is stopped and not self._is_gone(partition, stopped):
                self._open_again(partition, stopped._replace(retry_ms=self._clock.mono_ms()), state)

        self._read(partial(self._replicas.find_state, stopped.log), found)

    def _open_again(self, partition: int, stopped: Stopped, state: FoundState) -> None:
        if self._replicas.closing:
            return
        del self._stopped[partition]
        self._tried[partition] = stopped
        try:
            replica = self._replicas.open(stopped.log, found=state)
        except CorruptionError as error:
            self.not_opened(stopped.log, error, StopKind.DAMAGE)
            return
        if replica is not None:
            _log.warning("a quarantined replica is tried again", partition=partition, kind=stopped.kind)
            replica.start(campaign=False)

    # --- what the node knows ----------------------------------------------------------------------------------

    def refusal(self, partition: int) -> StorageError | None:
        """What a request for this partition is answered with here; None where its replica is not stopped. The caller
        tries the other nodes: one of them may lead, or know who does."""
        stopped = self._stopped.get(partition)
        if stopped is None:
            return None
        text = f"partition {partition} is quarantined here, at offset {stopped.offset} ({stopped.kind})"
        return StorageError(ErrorCode.QUARANTINED, f"{text}: {stopped.reason}")

    def told(self, count_max: int) -> list[StoppedReplica]:
        """For operators, those that were stopped first before others."""
        eldest = sorted(self._ailing().items(), key=lambda item: (item[1].since_ms, item[0]))[:count_max]
        return [
            StoppedReplica(
                partition, shared_meta(stopped.log.tag).tag, stopped.kind, stopped.offset, stopped.reason,
                stopped.since_ms, shared_meta(stopped.log.tag).config.account_id,
            )
            for partition, stopped in eldest
        ]  # fmt: skip

    def _ailing(self) -> dict[int, Stopped]:
        """Those that are stopped, and those that are tried and have not come past what stopped them."""
        if not self._tried:
            return self._stopped
        trying = {}
        for partition, tried in self._tried.items():
            replica = self._replicas.get(partition)
            if replica is not None and tried.kind in _OF_ENTRY and replica.applied <= tried.offset:
                trying[partition] = tried
        return {**self._stopped, **trying}

    def logs(self) -> list[tuple[PartitionLog, int]]:
        """With the position up to which each is known to be committed."""
        return [(stopped.log, stopped.commit) for stopped in self._stopped.values()]

    def flush_facts(self, partition: int) -> FlushFacts | None:
        """All that is committed is kept, and the checkpoint stays what it is."""
        stopped = self._stopped.get(partition)
        return None if stopped is None else FlushFacts(stopped.commit, b"", _NOT_FOLDED, 0, _all_live)


def _all_live(_base_offset: int, _last_offset: int) -> bool:
    return True
