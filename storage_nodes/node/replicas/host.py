"""What a replica needs of its node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from storage_nodes.log.node_log import NodeLog
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.clocks.clock_watch import ClockWatch
from storage_nodes.node.disk.committer import Committer
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.replicas.bodies import BodyCache
from storage_nodes.node.replicas.catch_up_reads import CatchUpReads
from storage_nodes.node.replicas.failover import Failover
from storage_nodes.node.replicas.fold_turn import FoldTurn
from storage_nodes.node.replicas.snapshots import Snapshots
from storage_nodes.node.replicas.stopped_replicas import StoppedReplicas
from storage_nodes.node.timers import Timers
from storage_nodes.node.transport.inter_partition_client import InterPartitionClient
from storage_nodes.node.transport.leases import LeaderLeases
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.levels import Speaks
from storage_nodes.protocol.peer_messages import RaftMessage

T = TypeVar("T")


class Host(Protocol):
    """Satisfied by `StorageNode`."""

    node_id: int
    cluster_id: str
    loop: asyncio.AbstractEventLoop
    clock: NodeClock
    clocks: ClockWatch
    leases: LeaderLeases
    log: NodeLog
    committer: Committer
    timers: Timers
    snapshots: Snapshots
    stopped: StoppedReplicas
    bodies: BodyCache
    other_partitions: InterPartitionClient
    failover: Failover
    catch_up_reads: CatchUpReads
    room: NodeRoom
    fold_turn: FoldTurn
    # What this process speaks, and the highest feature level that entries may need (protocol/levels.py).
    speaks: Speaks
    feature_level: int

    def has_room(self, peer: int) -> bool:
        """May entries be sent to this peer now?"""

    def when_room(self, peer: int, resume: Callable[[], None]) -> None:
        """Call `resume`, in a later turn, when they may."""

    def send(self, peer: int, message: RaftMessage) -> None: ...
    def is_up(self, peer: int) -> bool: ...
    def nodes_without_room(self, voters: Sequence[int]) -> list[int]: ...
    def peers_up(self) -> list[int]: ...
    def was_heard(self, peer: int) -> bool:
        """Has this node told, since it greeted us, what it knows of our directory?"""

    def configuration_committed(self, partition: int, configuration: Configuration) -> None:
        """The configuration in force of a replica here is committed; perhaps said again after a restart."""

    def retired(self, partition: int) -> None:
        """A queue partition led here is to be deleted, and takes no requests any more."""

    def run_cold(self, work: Callable[[], T], done: Callable[[T], None], damaged: Callable[[], None] = ...) -> None:
        """A read that a request waits for, in a thread; then `done` on the event loop, or `damaged` where the partition
        cannot be read."""

    def run_maintenance(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """The same for what takes long, and keeps no read waiting."""
