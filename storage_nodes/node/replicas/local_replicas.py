"""The replicas that a node holds, by partition: opens one over its log, and knows the one of the cluster's own log."""

from __future__ import annotations

import gc
from collections.abc import Callable

from storage_nodes.limits import STALL_SLICE_PARTITIONS, TURN_SLICE_MS_MAX
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.machines.raft.effects import Role
from storage_nodes.model import CLUSTER_PARTITION, PartitionKind
from storage_nodes.node.replicas.cluster_replica import ClusterReplica
from storage_nodes.node.replicas.host import Host
from storage_nodes.node.replicas.partition_meta import PartitionMeta, shared_meta
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.replicas.replica_steps import FoundState
from storage_nodes.node.replicas.stream_replica import StreamReplica

# Replicas hold no cycles that die young. A full collection over those of 20,000 groups would stop the event loop for
# hundreds of milliseconds, so from time to time all there are leave the collector's sight.
FREEZE_EVERY_REPLICAS = 1_000

_KINDS: dict[int, type[QueueReplica] | type[StreamReplica]] = {
    PartitionKind.QUEUE: QueueReplica,
    PartitionKind.STREAM: StreamReplica,
}

OpenCluster = Callable[[PartitionLog, PartitionMeta], ClusterReplica]


class LocalReplicas(dict[int, Replica]):
    """Of one node. `open_cluster` makes the replica of the cluster log, whose folds decide about all others."""

    def __init__(self, host: Host, open_cluster: OpenCluster) -> None:
        super().__init__()
        self.node_id = host.node_id
        # The node stops, and no replica is to be opened any more: nobody would write what it stages.
        self.closing = False
        self._host = host
        self._open_cluster = open_cluster

    @property
    def cluster(self) -> ClusterReplica:
        replica = self[CLUSTER_PARTITION]
        assert isinstance(replica, ClusterReplica)
        return replica

    @staticmethod
    def find_state(log: PartitionLog) -> FoundState:
        """BLOCKING, in any thread: for `open`."""
        return _KINDS.get(log.kind, Replica).find_state(log)

    def open(
        self, log: PartitionLog, meta: PartitionMeta | None = None, found: FoundState | None = None
    ) -> Replica | None:
        """With its state as it was found before, or as it is found now (BLOCKING). None where that cannot be loaded:
        the replica is stopped. Raises CorruptionError."""
        meta = meta or shared_meta(log.tag)
        try:
            replica = self._made(log, meta)
            replica.load(found)
        except CorruptionError:
            raise
        except Exception as error:
            self._host.stopped.not_opened(log, error)
            if log.kind != PartitionKind.CLUSTER:
                return None
            # The node needs one. What this one says exists is nothing, so nothing is made or dropped.
            replica = self._made(log, meta)
            replica.close()
        self[log.partition] = replica
        if not len(self) % FREEZE_EVERY_REPLICAS:
            gc.freeze()
        return replica

    def discard(self, partition: int) -> None:
        """The replica is not here any more."""
        self.pop(partition, None)

    def on_stall(self) -> None:
        """The node stood still for longer than its peers wait: what leads steps down, a slice of it in each turn of the
        loop. All at once would take thousands of leaders so long that the node stands still once more. Their leases are
        over already, so none of them answers anything from its own state until then."""
        leading = [(replica, replica.raft.epoch) for replica in self.values() if replica.raft.role is Role.LEADER]
        leading.reverse()
        self._step_down_some(leading)

    def _step_down_some(self, leading: list[tuple[Replica, int]]) -> None:
        """The last ones first. A replica that was elected again since then goes on."""
        until_ms = self._host.clock.mono_ms() + TURN_SLICE_MS_MAX
        for _ in range(min(STALL_SLICE_PARTITIONS, len(leading))):
            replica, epoch = leading.pop()
            if replica.raft.epoch == epoch:
                replica.on_stall()
            if self._host.clock.mono_ms() >= until_ms:
                break
        if leading:
            self._host.loop.call_soon(self._step_down_some, leading)

    def _made(self, log: PartitionLog, meta: PartitionMeta) -> Replica:
        if log.kind == PartitionKind.CLUSTER:
            return self._open_cluster(log, meta)
        return _KINDS[PartitionKind(log.kind)](self._host, log, meta)

    def is_led(self, partition: int) -> bool:
        """Has it a leader, as far as this node knows? One without a replica here is taken to have one."""
        replica = self.get(partition)
        return replica is None or bool(replica.raft.leader)
