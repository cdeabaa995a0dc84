"""What befalls single replicas: entries that cannot be folded, and promises of Raft that seem broken.

Both end once the world heals, as if a new version had been started. Until then an entry that a node cannot fold stops
its replica each time that it comes by; a second of two draws makes an entry one that no node can fold. A promise seems
broken once: nothing is, but the replica cannot know that. It may have lost something, so this happens only where all
other nodes hold, beyond doubt, what they acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import BatchHeader
from storage_nodes.machines.raft.effects import SafetyViolation
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.replicas.cluster_replica import ClusterReplica
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.replicas.stopped_replicas import StopKind
from storage_nodes.node.replicas.stream_replica import StreamReplica
from tests.simulation.guards import NEVER_CONTAINED
from tests.simulation.log_oracle import BrokenInvariant
from tests.storage_nodes.log.faulty_disk import PowerLost

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

POISONED_MAX = 3
NEVER_CONTAINED += [BrokenInvariant, PowerLost]


class PoisonedEntryError(ValueError):
    """The fold of an entry raises."""


class SeemingViolation(SafetyViolation):
    """Nothing is broken, but a replica takes it for that."""


class Accidents:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}-accidents")
        # Partition -> base offset of the entry (-1: the next that is folded), the nodes that cannot fold it.
        self._poisoned: dict[int, tuple[int, frozenset[int]]] = {}
        # (node, partition) whose next message seems to break a promise.
        self._violated: set[tuple[int, int]] = set()
        self.stops = 0

    def tick(self, may_lose: Callable[[SimProcess], bool]) -> None:
        """`may_lose`: may this node lose something now?"""
        chance, faults, world = self._chance, self._world.faults, self._world
        if chance.random() < faults.poison_rate and len(self._poisoned) < POISONED_MAX and world.partitions:
            partition = chance.choice([CLUSTER_PARTITION, *world.partitions, *world.partitions])
            nodes = [chance.choice(world.node_ids)]
            if partition != CLUSTER_PARTITION and chance.random() < 0.5:
                nodes = world.node_ids
            self._poisoned.setdefault(partition, (-1, frozenset(nodes)))
        if chance.random() < faults.violation_rate:
            process = chance.choice(list(world.processes.values()))
            replicas = getattr(process.node, "replicas", {})
            if replicas and process.is_up and may_lose(process):
                self._violated.add((process.process_id, chance.choice(list(replicas))))

    def check_fold(self, node_id: int, partition: int, header: BatchHeader) -> bool:
        """Can this entry not be folded there?"""
        if self._world.draining or partition not in self._poisoned:
            return False
        offset, nodes = self._poisoned[partition]
        if offset < 0:
            offset = header.base_offset
            self._poisoned[partition] = offset, nodes
        return offset == header.base_offset and node_id in nodes

    def seems_broken(self, node_id: int, partition: int) -> bool:
        if (node_id, partition) not in self._violated:
            return False
        self._violated.discard((node_id, partition))
        return not self._world.draining and self._world.others_are_sound(self._world.processes[node_id])

    # --- what must hold ---------------------------------------------------------------------------------------

    def check_stop(self, process: SimProcess, partition: int, kind: StopKind, error: BaseException) -> None:
        """F17: a replica stops for what befell it, and for nothing else."""
        if isinstance(error, tuple(NEVER_CONTAINED)):
            raise error
        if not isinstance(error, PoisonedEntryError | SeemingViolation) and kind is not StopKind.DAMAGE:
            text = f"node {process.process_id}, partition {partition}: {kind}: {type(error).__name__}: {error}"
            raise BrokenInvariant("REPLICA STOPPED", text) from error
        self.stops += 1
        self._see_commit(process, partition)

    def _see_commit(self, process: SimProcess, partition: int) -> None:
        """The oracle looks at replicas after each turn: what this one committed, and answered, in its last one counts,
        though it is gone by then."""
        oracle, node_id = self._world.oracle, process.process_id
        replica = getattr(process.node, "replicas", {}).get(partition)
        seen = oracle._seen.get(node_id, {}).get(partition)
        if replica is not None and seen is not None and seen.replica is replica and replica.raft.commit != seen.commit:
            oracle._commit_changed(node_id, partition, seen, replica)

    def check_stopped(self, process: SimProcess, log: PartitionLog, kind: StopKind) -> None:
        """R12: whoever takes its group for broken may itself be what is: it is suspect from here on."""
        if kind is StopKind.RAFT and not log.suspect:
            text = f"node {process.process_id}, partition {log.partition}"
            raise BrokenInvariant("R12 suspect after a broken promise", text)

    # --- in the product ---------------------------------------------------------------------------------------

    @contextmanager
    def in_product(self) -> Iterator[None]:
        with ExitStack() as stack:
            for kind in (QueueReplica, StreamReplica, ClusterReplica):
                stack.enter_context(mock.patch.object(kind, "fold", self._fold_of(kind.fold)))
            stack.enter_context(mock.patch.object(RaftMachine, "step", self._step_of(RaftMachine.step)))
            yield

    def _fold_of(self, real: Callable[[Any, BatchHeader, bytes], None]) -> Callable[..., None]:
        def fold(replica: Replica, header: BatchHeader, batch: bytes) -> None:
            if not self.check_fold(replica.host.node_id, replica.partition, header):
                real(replica, header, batch)
                return
            if header.base_offset % 2:
                real(replica, header, batch)  # what it did to the state must be gone with the replica
            raise PoisonedEntryError(f"entry {header.base_offset}")

        return fold

    def _step_of(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(raft: RaftMachine, *arguments: Any) -> Any:
            if self._violated and self.seems_broken(raft.node_id, raft.partition):
                raise SeemingViolation("so it seems")
            return real(raft, *arguments)

        return step


def may_be_closed(process: SimProcess, partition: int) -> bool:
    """While its node stops; or that of the cluster, which stays where it was stopped."""
    is_cluster = partition == CLUSTER_PARTITION
    return process.is_stopping or (is_cluster and process.node is not None and partition in process.node.stopped)
