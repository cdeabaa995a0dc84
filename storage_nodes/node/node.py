"""A storage node: opens its log, runs a replica per partition, serves clients and peers.

Start: open the log (recovery) -> make the replicas it holds -> listen -> dial the peers. Nothing is served for a
partition before its group has elected a leader and folded what is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
import structlog
from prometheus_client import Gauge

from storage_nodes.config import NodeConfig, split_listen
from storage_nodes.limits import (
    BALANCE_INTERVAL_MS,
    CLUSTER_VOTERS_MAX,
    HAND_OVERS_AT_ONCE_MAX,
    RETIRE_MS_MAX,
)
from storage_nodes.log.errors import CorruptionError, DiskFailedError
from storage_nodes.log.node_log import FlushFacts, FlushPlan, NodeLog, PartitionLog
from storage_nodes.machines.cluster.machine import PartitionPlan
from storage_nodes.model import CLUSTER_PARTITION, PartitionKind
from storage_nodes.node.balance import LeaderBalance
from storage_nodes.node.bodies import BodyCache
from storage_nodes.node.care import NodeCare
from storage_nodes.node.clock import NodeClock
from storage_nodes.node.cluster_replica import ClusterReplica
from storage_nodes.node.committer import Committer, disk_failed
from storage_nodes.node.connections import Connection, Token
from storage_nodes.node.damage import DamageControl
from storage_nodes.node.early import EarlyMessages
from storage_nodes.node.feeding import Feed
from storage_nodes.node.forwards import Forwards
from storage_nodes.node.peers import PeerLinks
from storage_nodes.node.queue_replica import QueueReplica
from storage_nodes.node.replica import PartitionMeta, Replica
from storage_nodes.node.requests import RequestTable
from storage_nodes.node.snapshots import Snapshots
from storage_nodes.node.stream_replica import StreamReplica
from storage_nodes.node.timers import Timers
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.messages import (
    ClusterInfo,
    Heartbeat,
    NodeInfo,
    PartitionInfo,
    PeerHello,
    RaftFrame,
    RaftMessage,
)

COLD_READERS = 2
HAND_OVER_POLL_S = 0.005

T = TypeVar("T")
PARTITIONS = Gauge("penstock_node_partitions", "Replicas held by this node")
PARTITIONS_LED = Gauge("penstock_node_partitions_led", "Partitions led by this node")

_log = structlog.get_logger()


class StorageNode:
    """One process. Satisfies `Host` for its replicas and `Requests` for its connections."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.cluster_id = config.cluster_id
        self.node_id = config.node_id
        self.clock = NodeClock()
        self.loop = asyncio.get_running_loop()
        # The time as incarnation: a node that lost its directory is still newer than it was before.
        self.log = NodeLog.open(config.node_dir, incarnation_min=self.clock.wall_ms(), repair=True)
        self.replicas: dict[int, Replica] = {}
        self.timers = Timers(self.loop, self.clock.mono_ms, self._ring)
        self.feed = Feed(self.run_cold, self.loop.call_later, self.clock.mono_ms)
        self.committer = Committer(self.loop, self.log, self.replicas.get, self.send, self._after_group)
        peers = [node for node in config.nodes if node.node_id != self.node_id]
        self.links = PeerLinks(
            self.loop, self.clock, self.cluster_id, self.node_id, self.log.incarnation, peers, self._peer_changed
        )
        self.bodies = BodyCache()
        self.snapshots = Snapshots()
        self._early = EarlyMessages()
        self._table = RequestTable(self)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._cold = ThreadPoolExecutor(COLD_READERS, "cold")
        self._flushing = False
        self._stopped = False
        self.damage = DamageControl(self)
        self._balance = LeaderBalance(self.node_id, self.links.may_lead)
        self._balancing: asyncio.Task[None] | None = None
        self._care = NodeCare(self)
        self.forwards = Forwards(self.loop, self.cluster_id, config.nodes, f"node-{self.node_id}")

    async def start(self) -> None:
        self.committer.start()
        self.damage.opened()
        self._open_replicas()
        host, port = split_listen(self.config.node_listen)
        self._server = await self.loop.create_server(self._accept, host, port, reuse_address=True, backlog=1024)
        self.links.start()
        self._balancing = self.loop.create_task(self._balance_forever())
        self._care.start()
        PARTITIONS.set_function(lambda: len(self.replicas))
        PARTITIONS_LED.set_function(lambda: sum(replica.serving for replica in self.replicas.values()))
        _log.info("storage node is up", node=self.node_id, listen=self.config.node_listen, replicas=len(self.replicas))

    async def close(self) -> None:
        """Hand leadership over, stop serving, write what is staged, close the log."""
        if self._balancing is not None:
            self._balancing.cancel()
        self._care.stop()
        await self._retire()
        if self._server is not None:
            self._server.close()
        for replica in list(self.replicas.values()):
            replica.close()
        await self.forwards.close()
        for connection in list(self._connections):
            connection.close()
        await self.links.close()
        await self.committer.close()
        while self._flushing or self.snapshots.installing or self.damage.resetting:
            await asyncio.sleep(0.01)
        self.timers.close()
        self._stopped = True
        self._cold.shutdown(wait=True)
        self.log.close()

    async def _retire(self) -> None:
        """Let others lead what this node leads, so that its stop costs nobody an election timeout. Bounded: whoever
        cannot take over in time will elect itself."""
        self.links.retire()
        deadline_ms = self.clock.mono_ms() + RETIRE_MS_MAX
        while self.clock.mono_ms() < deadline_ms:
            leading = [replica for replica in self.replicas.values() if replica.serving]
            under_way = sum(replica.handing_over for replica in leading)
            for replica in leading:
                if under_way >= HAND_OVERS_AT_ONCE_MAX:
                    break
                if not replica.handing_over:
                    replica.hand_over_to_any(self.links.may_lead)
                    under_way += replica.handing_over
            if not under_way:
                return
            await asyncio.sleep(HAND_OVER_POLL_S)

    async def _balance_forever(self) -> None:
        while True:
            await asyncio.sleep(BALANCE_INTERVAL_MS / 1000)
            for replica in self._balance.due(self.replicas, self.clock.mono_ms()):
                replica.hand_over(replica.voters[0])

    # --- Host: for replicas -----------------------------------------------------------------------------------

    def send(self, peer: int, message: RaftMessage) -> None:
        self.links.send(peer, message)

    def is_up(self, peer: int) -> bool:
        return self.links.is_up(peer)

    def peers_up(self) -> list[int]:
        return self.links.peers_up()

    def configuration_committed(self, replica: Replica, configuration: Configuration) -> None:
        """Who belongs to the group of this replica now."""

    def run_cold(
        self, work: Callable[[], T], done: Callable[[T], None], damaged: Callable[[], None] = lambda: None
    ) -> None:
        """Run blocking reads in a thread, then `done` on the event loop. A read error ends the process (R12, R21),
        unless it is damage to one partition's segment that the other voters can make good: then `damaged` is called."""
        if self._stopped:
            return
        future = self.loop.run_in_executor(self._cold, work)
        future.add_done_callback(lambda finished: self._cold_done(finished, done, damaged))

    def _cold_done(self, finished: asyncio.Future[T], done: Callable[[T], None], damaged: Callable[[], None]) -> None:
        error = finished.exception()
        if isinstance(error, CorruptionError) and self.damage.set_aside(error):
            damaged()
            return
        done(finished.result())

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """The same for what this node does of its own accord: a failed disk ends the process (R21)."""
        try:
            return await self.loop.run_in_executor(self._cold, work)
        except (OSError, DiskFailedError) as error:
            disk_failed(error)

    # --- Requests: for connections ----------------------------------------------------------------------------

    def request(self, token: Token, payload: bytes) -> None:
        self._table.dispatch(token, payload)

    def cancelled(self, token: Token, partition: int) -> None:
        replica = self.replicas.get(partition)
        if isinstance(replica, QueueReplica | StreamReplica):
            replica.cancel(token)

    def peer_greeted(self, hello: PeerHello) -> bool:
        return self.links.greeted(hello)

    def peer_heard(self, beat: Heartbeat) -> None:
        self.links.heard(beat)

    def raft_frame(self, sender: int, frame: RaftFrame) -> None:
        replicas = self.replicas
        for message in frame.messages:
            replica = replicas.get(message.partition)
            if replica is not None:
                replica.receive(sender, message)
            else:
                self._early.keep(sender, message, self.clock.mono_ms())

    # --- what the node knows ----------------------------------------------------------------------------------

    @property
    def cluster(self) -> ClusterReplica:
        replica = self.replicas[CLUSTER_PARTITION]
        assert isinstance(replica, ClusterReplica)
        return replica

    def describe(self, partitions: list[int] | None) -> ClusterInfo:
        """Nodes and partitions as folded here; leaders as far as this node knows them."""
        machine = self.cluster.machine
        nodes = [
            NodeInfo(*address, alive=address.node_id == self.node_id or self.links.is_up(address.node_id))
            for address in machine.nodes.values()
        ]
        plans = (
            machine.partitions.values() if partitions is None else filter(None, map(machine.partitions.get, partitions))
        )
        infos = [self._info(plan.partition, plan.kind, list(plan.replicas), plan.tag) for plan in plans]
        if partitions is None or CLUSTER_PARTITION in partitions:
            meta = self.cluster.meta
            infos.insert(0, self._info(CLUSTER_PARTITION, PartitionKind.CLUSTER, list(self.cluster.voters), meta.tag))
        return ClusterInfo(self.cluster_id, self.cluster.raft.leader, nodes, infos)

    def _info(self, partition: int, kind: int, replicas: list[int], tag: str) -> PartitionInfo:
        replica = self.replicas.get(partition)
        if replica is None:
            return PartitionInfo(partition, kind, replicas, tag)
        return PartitionInfo(partition, kind, replicas, tag, replica.raft.leader, replica.raft.epoch)

    # --- replicas ---------------------------------------------------------------------------------------------

    def _open_replicas(self) -> None:
        if CLUSTER_PARTITION not in self.log.partitions:
            voters = sorted(node.node_id for node in self.config.nodes)[:CLUSTER_VOTERS_MAX]
            meta = PartitionMeta("cluster", voters)
            self.log.create(CLUSTER_PARTITION, PartitionKind.CLUSTER, msgspec.json.encode(meta).decode())
            # The directory is new, or another one was lost: the other voters decide which (R12, R12b).
            self.log.set_suspect(CLUSTER_PARTITION, True)
            self.committer.wake()
        for log in list(self.log.partitions.values()):
            self.damage.open_replica(log).start(campaign=False)
        # The cluster's state may have become durable, by a flush or a snapshot, before what it made here was.
        for plan in list(self.cluster.machine.partitions.values()):
            self._create(plan)

    def open_replica(self, log: PartitionLog) -> Replica:
        meta = msgspec.json.decode(log.tag, type=PartitionMeta)
        if log.kind == PartitionKind.CLUSTER:
            replica: Replica = ClusterReplica(self, log, meta, self.config.nodes, self._create, self._drop)
        elif log.kind == PartitionKind.QUEUE:
            replica = QueueReplica(self, log, meta)
        else:
            assert log.kind == PartitionKind.STREAM, f"partition kind {log.kind}"
            replica = StreamReplica(self, log, meta)
        self.replicas[log.partition] = replica
        return replica

    def _create(self, plan: PartitionPlan) -> None:
        """The cluster log says that this partition exists."""
        if self.node_id not in plan.replicas or plan.partition in self.replicas:
            return
        meta = PartitionMeta(plan.tag, list(plan.replicas), plan.config)
        log = self.log.create(plan.partition, plan.kind, msgspec.json.encode(meta).decode())
        if self.cluster.log.suspect:
            # Made while this node still learns what it once knew: it may have held this replica before.
            self.log.set_suspect(plan.partition, True)
        self.committer.wake()
        replica = self.open_replica(log)
        replica.start(campaign=plan.replicas[0] == self.node_id)
        for sender, message in self._early.take(plan.partition):
            replica.receive(sender, message)

    def _drop(self, plan: PartitionPlan) -> None:
        """The cluster log says, committed, that this partition is deleted (R23)."""
        replica = self.replicas.pop(plan.partition, None)
        if replica is not None:
            replica.close()
        if plan.partition in self.log.partitions:
            self.log.drop(plan.partition)
            self.committer.wake()

    def _ring(self, partition: int) -> None:
        replica = self.replicas.get(partition)
        if replica is not None:
            replica.tick()

    def _peer_changed(self, peer: int, up: bool) -> None:
        for replica in list(self.replicas.values()):
            replica.peer_changed(peer, up)

    # --- connections and background ---------------------------------------------------------------------------

    def _accept(self) -> Connection:
        connection = Connection(self, self.loop, self._connections.discard)
        self._connections.add(connection)
        return connection

    def _after_group(self, size_bytes: int) -> None:
        self.feed.pace.wrote(size_bytes, self.clock.mono_ms())
        self._flush_if_due()

    def _flush_if_due(self) -> None:
        if self._flushing or not self.log.flush_due():
            return
        plan = self.log.plan_flush(self._flush_facts)
        if plan is None:
            return
        self._flushing = True
        future = self.loop.run_in_executor(self._cold, self.log.run_flush, plan)
        future.add_done_callback(lambda finished: self._flushed(plan, finished.exception()))

    def _flushed(self, plan: FlushPlan, error: BaseException | None) -> None:
        if isinstance(error, OSError | DiskFailedError):
            disk_failed(error)
        if error is not None:
            raise error
        self.log.flush_done(plan)
        self._flushing = False

    def _flush_facts(self, partition: int) -> FlushFacts | None:
        replica = self.replicas.get(partition)
        return None if replica is None else replica.flush_facts()
