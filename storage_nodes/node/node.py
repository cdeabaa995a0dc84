"""A storage node: opens its log, runs a replica per partition, serves clients and peers.

Start: open the log (recovery) -> make the replicas it holds -> listen -> dial the peers. Nothing is served for a
partition before its group has elected a leader and folded what is committed.

Which replicas a node holds is said by the cluster log alone (R23): it makes one when a partition is created there or
begins to move there, and drops one when the partition is deleted or the end of its move away is committed. A node that
joins a cluster (PENSTOCK_NODE_JOIN) starts with an empty cluster log in which it has no say, asks to be registered, and
is fed by the others from then on.
"""

from __future__ import annotations

import asyncio
import os
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
from storage_nodes.log.segment import segment_partition
from storage_nodes.machines.cluster.commands import (
    Effect,
    MoveBegun,
    MoveEnded,
    NodeChanged,
    PartitionCreated,
    PartitionDeleted,
    PartitionPlan,
)
from storage_nodes.model import CLUSTER_PARTITION, NodeState, PartitionKind
from storage_nodes.node.balance import LeaderBalance
from storage_nodes.node.bodies import BodyCache
from storage_nodes.node.clock import NodeClock
from storage_nodes.node.cluster_replica import ClusterReplica, partition_info
from storage_nodes.node.committer import Committer, disk_failed
from storage_nodes.node.connections import Connection, Token
from storage_nodes.node.early import EarlyMessages
from storage_nodes.node.joining import ask_to_join
from storage_nodes.node.moves import Moves
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
RESET_RETRY_S = 0.01

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
        self.log = NodeLog.open(config.node_dir, incarnation_min=self.clock.wall_ms())
        self.replicas: dict[int, Replica] = {}
        self.timers = Timers(self.loop, self.clock.mono_ms, self._ring)
        self.committer = Committer(self.loop, self.log, self.replicas.get, self.send, self._flush_if_due)
        peers = [node for node in config.nodes if node.node_id != self.node_id]
        self.links = PeerLinks(
            self.loop, self.clock, self.cluster_id, config.own_address, self.log.incarnation, peers, self._peer_changed
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
        # Partitions whose damaged log is being replaced by an empty one.
        self._resetting: set[int] = set()
        # Partitions to be made here again, whose earlier logs must leave the manifest first.
        self._forgetting: set[int] = set()
        self.moves = Moves(self.loop, self.node_id, self.links, self.replicas, lambda: self.cluster)
        self._balance = LeaderBalance(self.node_id, self._preferred_leader, self.moves.may_lead)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.committer.start()
        self._open_replicas()
        host, port = split_listen(self.config.node_listen)
        self._server = await self.loop.create_server(self._accept, host, port, reuse_address=True, backlog=1024)
        self.links.start()
        self.moves.start()
        self._tasks.append(self.loop.create_task(self._balance_forever()))
        if self.config.node_join and not self._is_registered():
            self._tasks.append(self.loop.create_task(ask_to_join(self.config, self._is_registered)))
        PARTITIONS.set_function(lambda: len(self.replicas))
        PARTITIONS_LED.set_function(lambda: sum(replica.serving for replica in self.replicas.values()))
        _log.info("storage node is up", node=self.node_id, listen=self.config.node_listen, replicas=len(self.replicas))

    async def close(self) -> None:
        """Hand leadership over, stop serving, write what is staged, close the log."""
        for task in self._tasks:
            task.cancel()
        self.moves.close()
        await self._retire()
        if self._server is not None:
            self._server.close()
        for replica in list(self.replicas.values()):
            replica.close()
        for connection in list(self._connections):
            connection.close()
        await self.links.close()
        await self.committer.close()
        while self._flushing or self.snapshots.installing or self._resetting or self._forgetting:
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
                replica.hand_over(self._preferred_leader(replica.partition))

    def _preferred_leader(self, partition: int) -> int:
        """0 = nobody: any leader will do."""
        if partition == CLUSTER_PARTITION:
            return self.cluster.voters[0]
        plan = self.cluster.machine.partitions.get(partition)
        return 0 if plan is None else plan.replicas[0]

    # --- Host: for replicas -----------------------------------------------------------------------------------

    def send(self, peer: int, message: RaftMessage) -> None:
        self.links.send(peer, message)

    def is_up(self, peer: int) -> bool:
        return self.links.is_up(peer)

    def peers_up(self) -> list[int]:
        return self.links.peers_up()

    def configuration_committed(self, replica: Replica, configuration: Configuration) -> None:
        """Who belongs to the group of this replica now."""
        self.moves.poke()

    def run_cold(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run blocking reads in a thread, then `done` on the event loop. A read error ends the process (R12, R21),
        unless it is damage to one partition's segment that the other voters can make good."""
        if self._stopped:
            return
        future = self.loop.run_in_executor(self._cold, work)
        future.add_done_callback(lambda finished: self._cold_done(finished, done))

    def _cold_done(self, finished: asyncio.Future[T], done: Callable[[T], None]) -> None:
        error = finished.exception()
        if isinstance(error, CorruptionError) and self._set_aside(error):
            return
        done(finished.result())

    # --- Requests: for connections ----------------------------------------------------------------------------

    def request(self, token: Token, payload: bytes) -> None:
        self._table.dispatch(token, payload)

    def cancelled(self, token: Token, partition: int) -> None:
        replica = self.replicas.get(partition)
        if isinstance(replica, QueueReplica | StreamReplica):
            replica.cancel(token)

    def peer_greeted(self, hello: PeerHello) -> str:
        objection = self.links.greeted(hello)
        if not objection:
            self.moves.poke()  # it may listen elsewhere now
        return objection

    def manage(self, commands: list[bytes]) -> None:
        self.cluster.manage(commands)

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

    def describe(self, partitions: list[int] | None, moving: bool = False) -> ClusterInfo:
        """Nodes and partitions as folded here; leaders as far as this node knows them. Nodes that are gone are left
        out."""
        machine = self.cluster.machine
        nodes = [
            NodeInfo(
                *address,
                alive=address.node_id == self.node_id or self.links.is_up(address.node_id),
                state=machine.state_of(address.node_id),
                replicas=len(machine.held.get(address.node_id, ())),
            )
            for address in machine.nodes.values()
            if machine.state_of(address.node_id) is not NodeState.GONE
        ]
        if partitions is None:
            plans = list(machine.partitions.values())
        else:
            wanted = dict.fromkeys([*partitions, *(machine.moving if moving else ())])
            plans = list(filter(None, map(machine.partitions.get, wanted)))
        infos = [self._info(partition_info(plan)) for plan in plans]
        if partitions is None or CLUSTER_PARTITION in partitions:
            own = PartitionInfo(CLUSTER_PARTITION, PartitionKind.CLUSTER, list(self.cluster.voters), "cluster")
            infos.insert(0, self._info(own))
        return ClusterInfo(self.cluster_id, self.cluster.raft.leader, nodes, infos)

    def _info(self, info: PartitionInfo) -> PartitionInfo:
        """With what the replica here knows, if there is one."""
        replica = self.replicas.get(info.partition)
        if replica is None:
            return info
        move = info.move
        if move is not None and replica.serving:
            status = replica.raft.status()
            match = next((peer.match for peer in status.peers if peer.node_id == move.target), 0)
            move = msgspec.structs.replace(move, match=match, log_end=status.log_end)
        return msgspec.structs.replace(info, leader=replica.raft.leader, epoch=replica.raft.epoch, move=move)

    def _is_registered(self) -> bool:
        return self.node_id in self.cluster.machine.nodes

    # --- replicas ---------------------------------------------------------------------------------------------

    def _open_replicas(self) -> None:
        if CLUSTER_PARTITION not in self.log.partitions:
            self._begin_cluster_log()
        for log in list(self.log.partitions.values()):
            self._open_replica(log).start(campaign=False)
        # The cluster's state may have become durable, by a flush or a snapshot, before what it made here was.
        self._adopt_nodes()
        for plan in list(self.cluster.machine.partitions.values()):
            self._create(plan)

    def _begin_cluster_log(self) -> None:
        """Empty, as one of the cluster's founders, or as a node that joins it and has no say until it is given one."""
        founders = sorted(node.node_id for node in self.config.nodes)
        joins = self.config.node_join or self.node_id not in founders[:CLUSTER_VOTERS_MAX]
        voters = [founder for founder in founders if not joins or founder != self.node_id][:CLUSTER_VOTERS_MAX]
        meta = PartitionMeta("cluster", voters, learner=joins)
        self.log.create(CLUSTER_PARTITION, PartitionKind.CLUSTER, msgspec.json.encode(meta).decode())
        # The directory is new, or another one was lost: the other voters decide which (R12, R12b).
        self.log.set_suspect(CLUSTER_PARTITION, not joins)
        self.committer.wake()

    def _open_replica(self, log: PartitionLog) -> Replica:
        meta = msgspec.json.decode(log.tag, type=PartitionMeta)
        if log.kind == PartitionKind.CLUSTER:
            replica: Replica = ClusterReplica(self, log, meta, self.config.nodes, self._changed, self._replaced)
        elif log.kind == PartitionKind.QUEUE:
            replica = QueueReplica(self, log, meta)
        else:
            assert log.kind == PartitionKind.STREAM, f"partition kind {log.kind}"
            replica = StreamReplica(self, log, meta)
        self.replicas[log.partition] = replica
        return replica

    def _changed(self, effect: Effect) -> None:
        """The cluster log says something, committed."""
        if isinstance(effect, PartitionCreated | MoveBegun):
            self._create(effect.plan)
        elif isinstance(effect, PartitionDeleted):
            self._drop(effect.plan.partition)
        elif isinstance(effect, MoveEnded):
            if effect.dropped == self.node_id:
                self._drop(effect.plan.partition)
        else:
            assert isinstance(effect, NodeChanged)
            self._adopt_node(effect.node_id)
        self.moves.poke()

    def _replaced(self, before: dict[int, PartitionPlan]) -> None:
        """A snapshot took the place of the cluster log: make and drop what the state that was skipped over made and
        dropped. Ids are never reused, so what is held no more was given up by a committed command (R23)."""
        machine = self.cluster.machine
        self._adopt_nodes()
        for partition, plan in before.items():
            after = machine.partitions.get(partition)
            if self.node_id in plan.holders() and (after is None or self.node_id not in after.holders()):
                self._drop(partition)
        for plan in list(machine.partitions.values()):
            self._create(plan)
        self.moves.poke()

    def _adopt_nodes(self) -> None:
        for node_id in self.cluster.machine.nodes:
            self._adopt_node(node_id)

    def _adopt_node(self, node_id: int) -> None:
        """Let it in, or, once it is gone, not any more."""
        machine = self.cluster.machine
        if machine.state_of(node_id) is not NodeState.GONE:
            self.links.admit(machine.nodes[node_id])
        elif node_id != self.node_id:
            self.links.expel(node_id)
            for connection in [one for one in self._connections if one.peer == node_id]:
                connection.close()

    def _create(self, plan: PartitionPlan) -> None:
        """The cluster log says that this partition exists, or that a replica of it is to come here."""
        if self.node_id not in plan.holders() or plan.partition in self.log.partitions:
            return
        if self.log.is_dropping(plan.partition):
            if plan.partition not in self._forgetting:
                self._forgetting.add(plan.partition)
                self._forget(plan.partition)
            return
        suspect = self.cluster.log.suspect
        # Made while this node still learns what it once knew: it may have held this replica before, as a voter.
        is_learner = self.node_id not in plan.replicas and not suspect
        meta = PartitionMeta(plan.tag, list(plan.holders() if suspect else plan.replicas), plan.config, is_learner)
        log = self.log.create(plan.partition, plan.kind, msgspec.json.encode(meta).decode())
        if suspect:
            self.log.set_suspect(plan.partition, True)
        self.committer.wake()
        replica = self._open_replica(log)
        replica.start(campaign=plan.replicas[0] == self.node_id)
        for sender, message in self._early.take(plan.partition):
            replica.receive(sender, message)

    def _forget(self, partition: int) -> None:
        """It was held here before and is to be held again: first its earlier log leaves the manifest."""
        plan = self.log.plan_forget(partition) if self.log.is_dropping(partition) else None
        if plan is not None:
            forget = plan
            self.run_cold(lambda: self.log.run_forget(forget), lambda _: self._forgotten(partition, True))
        elif self.log.is_dropping(partition):
            self.loop.call_later(RESET_RETRY_S, self._forget, partition)
        else:
            self._forgotten(partition, False)  # a flush came first

    def _forgotten(self, partition: int, here: bool) -> None:
        if here:
            self.log.forget_done()
        self._forgetting.discard(partition)
        now_planned = self.cluster.machine.partitions.get(partition)
        if now_planned is not None:
            self._create(now_planned)

    def _drop(self, partition: int) -> None:
        """The cluster log says, committed, that this partition is not, or no longer, held here (R23)."""
        replica = self.replicas.pop(partition, None)
        if replica is not None:
            replica.close()
        if partition in self.log.partitions:
            self.log.drop(partition)
            self.committer.wake()

    # --- damage -----------------------------------------------------------------------------------------------

    def _set_aside(self, error: CorruptionError) -> bool:
        """Replace the replica whose segment is damaged by an empty, suspect one, which is fed again by its group.

        Only where the other voters are a majority that is up: otherwise what is left here may be needed, and the node
        stops, for somebody to look at it.
        """
        partition = segment_partition(os.path.basename(error.path))
        replica = self.replicas.get(partition) if partition != CLUSTER_PARTITION else None
        if replica is None:
            return partition in self._resetting
        voters = replica.voters
        if sum(self.links.is_up(voter) for voter in voters) <= len(voters) // 2:
            return False
        _log.critical("stored data is damaged, replica is fed again", partition=partition, error=str(error))
        del self.replicas[partition]
        replica.close()
        self._resetting.add(partition)
        self._reset(replica.log)
        return True

    def _reset(self, log: PartitionLog) -> None:
        partition = log.partition
        if self.log.partitions.get(partition) is not log:
            self._resetting.discard(partition)  # deleted meanwhile
            return
        plan = self.log.plan_reset(partition)
        if plan is None:
            self.loop.call_later(RESET_RETRY_S, self._reset, log)
            return

        def done(_: None) -> None:
            self.log.install_done(plan)
            self._resetting.discard(partition)
            if self.log.partitions.get(partition) is log:
                self._open_replica(log).start(campaign=False)

        self.run_cold(lambda: self.log.run_install(plan), done)

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
