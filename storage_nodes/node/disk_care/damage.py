"""Damaged files of a node, from the finding to the repair.

    opening   the log repairs itself as far as it can (`log/salvage.py`); a checkpoint that cannot be read costs its
              replica
    scrub     a damaged segment or checkpoint costs its replica, which is fed again, if its group can do that; until
              then the damage is reported, and the replica goes on with what it has
    reading   the same, but a replica that cannot be helped stops (`node/replicas/stopped_replicas.py`): it never skips
              what it cannot read (F17). It is opened again after a while

**Can the group help?** The other voters' nodes (of the latest configuration in the log; learners cannot help, they
never lead) must be a majority that is up; and if the replica leads, one of them must hold everything committed, since
what it holds is fed by whoever leads next. So of three replicas that are all damaged in one place, two are emptied at
most, and the last one keeps what it has, and stops there.

A replica that was emptied, or that may lack something, is suspect until it holds again what its group has committed.
What was found counts as repaired when no replica that it made suspect still is.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from storage_nodes.log.checkpoint import checkpoint_partition
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.node_log import NodeLog, PartitionLog
from storage_nodes.log.segment import segment_partition
from storage_nodes.machines.raft.effects import Role
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.disk.blocking_work import BlockingWork
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.replicas.stopped_replicas import StopKind, StoppedReplicas

KINDS = ("wal", "mark", "manifest", "segment", "checkpoint")
_found = Counter("penstock_node_damage_found", "Damage to stored data that was found", ["kind"])
_repaired = Counter("penstock_node_damage_repaired", "Found damage whose replicas are all trusted again", ["kind"])
FOUND = {kind: _found.labels(kind) for kind in KINDS}
REPAIRED = {kind: _repaired.labels(kind) for kind in KINDS}
SUSPECT = Gauge("penstock_node_suspect_replicas", "Replicas that may lack what they acknowledged")

UNREPAIRED = Gauge("penstock_node_damage_unrepaired", "Found damage that is not repaired yet")

RESET_RETRY_S = 0.01
_KIND_OF_DIRECTORY = {"wal": "wal", "segments": "segment", "checkpoints": "checkpoint"}

_log = structlog.get_logger()


class DamageControl:
    """Of one node. On the event loop."""

    def __init__(
        self,
        log: NodeLog,
        replicas: LocalReplicas,
        work: BlockingWork,
        clock: NodeClock,
        is_up: Callable[[int], bool],
        wake: Callable[[], None],
    ) -> None:
        """`wake`: something was staged in the log."""
        self._log = log
        self._replicas = replicas
        self._work = work
        self._clock = clock
        self._is_up = is_up
        self.stopped = StoppedReplicas(log, replicas, clock, wake, self._others_up, work.run_cold)
        # Partitions whose damaged log is being replaced by an empty one.
        self.resetting: set[int] = set()
        # What was found and is not repaired: (kind, partitions that are suspect for it).
        self._open: list[tuple[str, set[int]]] = []
        # What the group cannot help with now, by path.
        self.waiting: dict[str, CorruptionError] = {}
        self._restate_wanted = False

    def opened(self) -> None:
        """Say what was found when the log was opened."""
        suspect = {log.partition for log in self._log.partitions.values() if log.suspect}
        for damage in self._log.damage:
            kind = _kind_of(damage.path)
            _log.critical("stored data is damaged", kind=kind, **damage._asdict())
            partition = _partition_of(damage.path)
            affected = suspect if kind in ("wal", "mark") else {partition} if partition is not None else set()
            self._begin(kind, affected)
        UNREPAIRED.set_function(lambda: self.unrepaired)
        SUSPECT.set_function(lambda: sum(log.suspect for log in self._log.partitions.values()))

    def open_replica(self, log: PartitionLog) -> Replica | None:
        """BLOCKING, before anything is served: a replica, made empty where its checkpoint cannot be read; None where
        that can be read and not be loaded."""
        try:
            if log.partition == CLUSTER_PARTITION:
                # Small, and a node whose cluster log turns out damaged later could do nothing but end.
                log.verify_segments()
            return self._replicas.open(log)
        except CorruptionError as error:
            self._report(error, log.partition, "its replica starts empty and is fed again by its group")
            plan = self._log.plan_reset(log.partition)
            assert plan is not None, "nothing is staged and no flush runs before the node serves"
            self._log.run_install(plan)
            self._log.install_done(plan)
            return self._replicas.open(self._log.partitions[log.partition])

    def on_read_corruption(self, error: CorruptionError) -> bool:
        """Somebody needed these bytes. False if they belong to no single partition: then the process ends."""
        partition = _partition_of(error.path)
        if partition is None or partition == CLUSTER_PARTITION:
            return False
        if not self.reset_replica(error):
            self._stop(partition, error)
        return True

    def scrubbed(self, error: CorruptionError) -> None:
        """Nobody needs these bytes now."""
        if _kind_of(error.path) == "manifest":
            _log.critical("stored data is damaged", kind="manifest", error=str(error))
            self._restate_wanted = True
            self._begin("manifest", set())
        elif _partition_of(error.path) is None:
            raise error  # of the write-ahead log: the next start repairs it
        elif not self.reset_replica(error) and error.path not in self.waiting:
            _log.critical("stored data is damaged, and its group cannot repair it now", error=str(error))
            FOUND[_kind_of(error.path)].inc()
            self.waiting[error.path] = error

    def reset_replica(self, error: CorruptionError) -> bool:
        """Replace the damaged replica by an empty, suspect one, which is fed again by its group. False where the group
        cannot help."""
        partition = _partition_of(error.path)
        if partition is None or partition == CLUSTER_PARTITION:
            return False
        replica = self._replicas.get(partition)
        if replica is None:
            return partition in self.resetting or partition not in self._log.partitions
        if not self._can_help(replica):
            return False
        self._report(error, partition, "its replica was emptied and is fed again by its group")
        self.waiting.pop(error.path, None)
        del self._replicas[partition]
        replica.give_up_leading()
        replica.close()
        self.resetting.add(partition)
        self._reset(replica.log)
        return True

    def _can_help(self, replica: Replica) -> bool:
        if not self._others_up(replica.log):
            return False
        if replica.raft.role is not Role.LEADER:
            return bool(replica.raft.leader)
        peers = [peer for peer in replica.raft.status().peers if peer.up and not peer.learner]
        return any(peer.match >= replica.raft.commit for peer in peers)

    def _others_up(self, log: PartitionLog) -> bool:
        """Of the voters that the group has now, by the latest configuration in the log."""
        boot = msgspec.json.decode(log.tag, type=PartitionMeta).boot(self._replicas.node_id)
        voters = (log.configurations[-1].configuration if log.configurations else boot).voters
        return sum(self._is_up(voter) for voter in voters) > len(voters) // 2

    def _stop(self, partition: int, error: CorruptionError) -> None:
        replica = self._replicas.get(partition)
        if replica is None:
            return
        self.stopped.stop(replica, StopKind.DAMAGE, replica.applied, error)
        if error.path not in self.waiting:
            FOUND[_kind_of(error.path)].inc()
            self.waiting[error.path] = error

    def look(self) -> None:
        """Now and then: what is repaired by now, and what can be?"""
        self.stopped.look()
        self._look_at_waiting()
        logs = self._log.partitions
        still_open = []
        for kind, partitions in self._open:
            waiting = {p for p in partitions if p in self.resetting or (p in logs and logs[p].suspect)}
            if waiting or (kind == "manifest" and self._restate_wanted):
                still_open.append((kind, waiting))
            else:
                REPAIRED[kind].inc()
                _log.warning("damage is repaired", kind=kind)
        self._open = still_open

    def _look_at_waiting(self) -> None:
        for path, error in list(self.waiting.items()):
            owner = _partition_of(path)
            assert owner is not None, "only files of one partition wait for its group"
            if not self._log.needs(owner, path):
                REPAIRED[_kind_of(path)].inc()
                del self.waiting[path]
            elif owner not in self.stopped:
                self.reset_replica(error)

    async def rewrite_manifest(self) -> None:
        """Write a damaged manifest anew, from what is in memory."""
        log = self._log
        if self._restate_wanted and log.plan_restate():
            await self._work.run_blocking(log.run_restate)
            log.restate_done()
            self._restate_wanted = False

    @property
    def unrepaired(self) -> int:
        return len(self._open) + len(self.waiting)

    def quarantined(self) -> list[int]:
        """Partitions whose replicas here are closed, or may lack what they acknowledged."""
        suspect = (log.partition for log in self._log.partitions.values() if log.suspect)
        return sorted({*self.stopped, *suspect})

    def _reset(self, log: PartitionLog) -> None:
        partition = log.partition
        if self._log.partitions.get(partition) is not log:
            self.resetting.discard(partition)  # deleted meanwhile
            return
        plan = self._log.plan_reset(partition)
        if plan is None:
            self._work.loop.call_later(RESET_RETRY_S, self._reset, log)
            return

        def done(_: None) -> None:
            self._log.install_done(plan)
            self.resetting.discard(partition)
            if self._log.partitions.get(partition) is log and not self._replicas.closing:
                replica = self._replicas.open(log)
                if replica is not None:
                    replica.start(campaign=False)

        self._work.run_maintenance(lambda: self._log.run_install(plan), done)

    def _report(self, error: CorruptionError, partition: int, outcome: str) -> None:
        kind = _kind_of(error.path)
        _log.critical(
            "stored data is damaged, replica is fed again", kind=kind, partition=partition, error=str(error),
            outcome=outcome,
        )  # fmt: skip
        note = {
            "found_ms": self._clock.wall_ms(), "path": error.path, "position": error.position,
            "problem": error.problem, "outcome": outcome,
        }  # fmt: skip
        self._log.note_damage(msgspec.json.encode(note) + b"\n")
        self._begin(kind, {partition}, counted=error.path in self.waiting)

    def _begin(self, kind: str, partitions: set[int], counted: bool = False) -> None:
        if not counted:
            FOUND[kind].inc()
        self._open.append((kind, set(partitions)))


def _kind_of(path: str) -> str:
    name = os.path.basename(path)
    if name.startswith("manifest"):
        return "manifest"
    return _KIND_OF_DIRECTORY.get(os.path.basename(os.path.dirname(path)), "mark")


def _partition_of(path: str) -> int | None:
    """Whose file it is; None for what belongs to all."""
    name = os.path.basename(path)
    return segment_partition(name) if name.endswith(".seg") else checkpoint_partition(name)
