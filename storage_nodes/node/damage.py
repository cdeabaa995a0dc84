"""Damaged files of a node, from the finding to the repair.

    opening   the log repairs itself as far as it can (`log/salvage.py`); a checkpoint that cannot be read costs its replica
    reading   a damaged segment costs its replica, which is fed again, while the other voters are a majority that is up;
              otherwise what is left here may be needed, and the process ends
    scrub     as reading, except that nobody waits for an answer: while the group cannot help, the partition is reported

A replica that was emptied, or that may lack something, is suspect until it holds again what its group has committed.
What was found counts as repaired when no replica that it made suspect still is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from storage_nodes.log.checkpoint import checkpoint_partition
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.segment import segment_partition
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.replica import Replica

if TYPE_CHECKING:
    from storage_nodes.node.node import StorageNode

KINDS = ("wal", "mark", "manifest", "segment", "checkpoint")
_found = Counter("penstock_node_damage_found", "Damage to stored data that was found", ["kind"])
_repaired = Counter("penstock_node_damage_repaired", "Found damage whose replicas are all trusted again", ["kind"])
FOUND = {kind: _found.labels(kind) for kind in KINDS}
REPAIRED = {kind: _repaired.labels(kind) for kind in KINDS}
SUSPECT = Gauge("penstock_node_suspect_replicas", "Replicas that may lack what they acknowledged")

RESET_RETRY_S = 0.01
_KIND_OF_DIRECTORY = {"wal": "wal", "segments": "segment", "checkpoints": "checkpoint"}

_log = structlog.get_logger()


class DamageControl:
    """Of one node. On the event loop."""

    def __init__(self, node: StorageNode) -> None:
        self._node = node
        # Partitions whose damaged log is being replaced by an empty one.
        self.resetting: set[int] = set()
        # What was found and is not repaired: (kind, partitions that are suspect for it).
        self._open: list[tuple[str, set[int]]] = []

    def opened(self) -> None:
        """Say what was found when the log was opened."""
        suspect = {log.partition for log in self._node.log.partitions.values() if log.suspect}
        for damage in self._node.log.damage:
            kind = _kind_of(damage.path)
            _log.critical("stored data is damaged", kind=kind, **damage._asdict())
            partition = _partition_of(damage.path)
            affected = suspect if kind in ("wal", "mark") else {partition} if partition is not None else set()
            self._begin(kind, affected)
        SUSPECT.set_function(lambda: sum(log.suspect for log in self._node.log.partitions.values()))

    def open_replica(self, log: PartitionLog) -> Replica:
        """BLOCKING, before anything is served: a replica, made empty where its checkpoint cannot be read."""
        try:
            if log.partition == CLUSTER_PARTITION:
                # Small, and a node whose cluster log turns out damaged later could do nothing but end.
                log.verify_segments()
            return self._node.open_replica(log)
        except CorruptionError as error:
            self._report(error, log.partition, "its replica starts empty and is fed again by its group")
            plan = self._node.log.plan_reset(log.partition)
            assert plan is not None, "nothing is staged and no flush runs before the node serves"
            self._node.log.run_install(plan)
            self._node.log.install_done(plan)
            return self._node.open_replica(self._node.log.partitions[log.partition])

    def set_aside(self, error: CorruptionError) -> bool:
        """Replace the replica whose segment is damaged by an empty, suspect one, which is fed again by its group.
        False where the group cannot help."""
        node = self._node
        partition = segment_partition(os.path.basename(error.path))
        replica = node.replicas.get(partition) if partition != CLUSTER_PARTITION else None
        if replica is None:
            return partition in self.resetting
        voters = replica.voters
        if sum(node.links.is_up(voter) for voter in voters) <= len(voters) // 2:
            return False
        self._report(error, partition, "its replica was emptied and is fed again by its group")
        del node.replicas[partition]
        replica.close()
        self.resetting.add(partition)
        self._reset(replica.log)
        return True

    def look(self) -> None:
        """Now and then: what is repaired by now?"""
        logs = self._node.log.partitions
        still_open = []
        for kind, partitions in self._open:
            waiting = {p for p in partitions if p in self.resetting or (p in logs and logs[p].suspect)}
            if waiting:
                still_open.append((kind, waiting))
            else:
                REPAIRED[kind].inc()
                _log.warning("damage is repaired", kind=kind)
        self._open = still_open

    def _reset(self, log: PartitionLog) -> None:
        node, partition = self._node, log.partition
        if node.log.partitions.get(partition) is not log:
            self.resetting.discard(partition)  # deleted meanwhile
            return
        plan = node.log.plan_reset(partition)
        if plan is None:
            node.loop.call_later(RESET_RETRY_S, self._reset, log)
            return

        def done(_: None) -> None:
            node.log.install_done(plan)
            self.resetting.discard(partition)
            if node.log.partitions.get(partition) is log:
                node.open_replica(log).start(campaign=False)

        node.run_cold(lambda: node.log.run_install(plan), done)

    def _report(self, error: CorruptionError, partition: int, outcome: str) -> None:
        kind = _kind_of(error.path)
        _log.critical(
            "stored data is damaged, replica is fed again", kind=kind, partition=partition, error=str(error),
            outcome=outcome,
        )  # fmt: skip
        note = {
            "found_ms": self._node.clock.wall_ms(), "path": error.path, "position": error.position,
            "problem": error.problem, "outcome": outcome,
        }  # fmt: skip
        self._node.log.note_damage(msgspec.json.encode(note) + b"\n")
        self._begin(kind, {partition})

    def _begin(self, kind: str, partitions: set[int]) -> None:
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
