"""A storage node: opens its log, runs a replica per partition, serves clients and peers.

Start: open the log (recovery) -> make the replicas it holds -> listen -> dial the peers. Nothing is served for a
partition before its group has elected a leader and folded what is committed.

Which replicas a node holds is said by the cluster log alone (`assigned_replicas.py`). A node that joins a cluster
(PENSTOCK_NODE_JOIN) starts with an empty cluster log in which it has no say, asks to be registered, and is fed by the
others from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog
from prometheus_client import Gauge

from storage_nodes.config import NodeConfig, split_listen
from storage_nodes.limits import (
    BALANCE_INTERVAL_MS,
    CLUSTER_VOTERS_MAX,
    DESCRIBE_PARTITIONS_MAX,
    QUARANTINED_TOLD_MAX,
    RETIRE_MS_MAX,
    STARTS_PER_MS_MAX,
)
from storage_nodes.log.node_log import FlushFacts, NodeLog, PartitionLog
from storage_nodes.log.record_batch import BatchError, verify_batch
from storage_nodes.model import CLUSTER_PARTITION, NodeAddress, NodeState, PartitionKind
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.disk.blocking_work import BlockingWork
from storage_nodes.node.disk.committer import Committer
from storage_nodes.node.disk.flushing import Flushing
from storage_nodes.node.disk_care.damage import DamageControl
from storage_nodes.node.disk_care.going_back import GoingBack
from storage_nodes.node.disk_care.maintenance import DiskMaintenance, free_bytes_of
from storage_nodes.node.disk_care.scrub import Scrub
from storage_nodes.node.membership.assigned_replicas import AssignedReplicas
from storage_nodes.node.membership.balance import LeaderBalance
from storage_nodes.node.membership.feature_levels import FeatureLevels
from storage_nodes.node.membership.joining import ask_to_join
from storage_nodes.node.membership.replica_moves import Moves
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.replicas.bodies import BodyCache
from storage_nodes.node.replicas.catch_up_reads import CatchUpReads
from storage_nodes.node.replicas.cluster_replica import ClusterReplica, partition_info
from storage_nodes.node.replicas.failover import Failover
from storage_nodes.node.replicas.fold_turn import FoldTurn
from storage_nodes.node.replicas.hand_over import hand_over_some
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.replicas.partition_meta import PartitionMeta, meta_text
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.retiring import become_retired
from storage_nodes.node.replicas.snapshots import Snapshots
from storage_nodes.node.replicas.stopped_replicas import StopKind
from storage_nodes.node.replicas.stream_replica import StreamReplica
from storage_nodes.node.requests import RequestTable
from storage_nodes.node.timers import Timers
from storage_nodes.node.transport.connection_table import ConnectionTable
from storage_nodes.node.transport.connections import Token
from storage_nodes.node.transport.inbox import Inbox
from storage_nodes.node.transport.inter_partition_client import InterPartitionClient
from storage_nodes.node.transport.peer_state_notifier import PeerStateNotifier
from storage_nodes.node.transport.peers import PeerLinks
from storage_nodes.node.transport.pending_raft_messages import PendingRaftMessages
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.levels import LEVEL_FIRST, Speaks, spoken
from storage_nodes.protocol.messages import ClusterInfo, NodeInfo, PartitionInfo
from storage_nodes.protocol.peer_messages import (
    AppendEntries,
    AppendReply,
    Heartbeat,
    PeerHello,
    PeerRefusal,
    RaftFrame,
    RaftMessage,
    SnapshotChunk,
)
from storage_nodes.trust.credentials import Credentials

HAND_OVER_POLL_S = 0.005
PARTITIONS = Gauge("penstock_node_partitions", "Replicas held by this node")
PARTITIONS_LED = Gauge("penstock_node_partitions_led", "Partitions led by this node")

_log = structlog.get_logger()


class StorageNode:
    """One process. Satisfies `Host` for its replicas and `Requests` for its connections. Without `credentials` its
    connections are plain, and every caller that knows the cluster id is believed."""

    def __init__(
        self, config: NodeConfig, credentials: Credentials | None = None, speaks: Speaks | None = None
    ) -> None:
        self.config = config
        self.speaks = speaks or spoken(config.feature_level_max)
        self.feature_level = LEVEL_FIRST
        self.cluster_id = config.cluster_id
        self.node_id = config.node_id
        self.clock = NodeClock()
        self.loop = asyncio.get_running_loop()
        # The time as incarnation: a node that lost its directory is still newer than it was before.
        self.log = NodeLog.open(config.node_dir, incarnation_min=self.clock.wall_ms(), repair=True)
        self.work = BlockingWork(self.loop)
        self.run_cold = self.work.run_cold
        self.run_maintenance = self.work.run_maintenance
        self.replicas = LocalReplicas(self, self._open_cluster)
        self.timers = Timers(self.loop, self.clock.mono_ms, self._on_timer, lambda: self._inbox.is_behind())
        self.catch_up_reads = CatchUpReads(self.run_cold, self.loop.call_later, self.clock.mono_ms)
        self.committer = Committer(self.loop, self.log, self.replicas.get, self.send, self._after_group)
        peers = [node for node in config.nodes if node.node_id != self.node_id]
        self.peer_states = PeerStateNotifier(self.loop, lambda: self.replicas, self.clock.mono_ms)
        budget = MemoryBudget(config.node_memory_bytes)
        budget.watch(Kind.STAGED, self.log.unsynced_bytes)
        self.fold_turn = FoldTurn(self.loop)
        self.room = NodeRoom(budget, self.committer.writing_s, self._tell_crowded)
        self.links = PeerLinks(
            self.loop, self.clock, self.cluster_id, config.own_address, self.log.incarnation, peers, self._peer_changed,
            budget, credentials, self.speaks,
        )  # fmt: skip
        self.levels = FeatureLevels(self.node_id, self.speaks, self.links, self._refuse_clients)
        self.clocks = self.links.clocks
        self.leases = self.links.leases
        self.has_room = self.links.has_room
        self.when_room = self.links.when_room
        self.committer.flush_peers = self.links.flush_now
        self.links.on_beat = self._look
        self.links.on_stall = self._stood_still
        self.turn = self.links.look_at_clock
        self.failover = Failover(self.loop, self.clock, self.node_id, self.links, self._preferred_leader)
        self.bodies = BodyCache()
        self.snapshots = Snapshots()
        self._early = PendingRaftMessages(self.links.incarnation_of)
        self._inbox: Inbox = Inbox(
            self.loop, self._raft_message, self.links.incarnation_of, budget, self.clock.mono_ms
        )  # fmt: skip
        self._connections = ConnectionTable(self, self.loop, credentials)
        self._credentials = credentials
        self.links.is_connected = self._connections.has_peer
        self._server: asyncio.Server | None = None
        self._flushing = Flushing(self.loop, self.log, self.work.maintenance, self._flush_facts)
        self.damage = DamageControl(self.log, self.replicas, self.work, self.clock, self.is_up, self.committer.wake)
        self.stopped = self.damage.stopped
        self.stopped.on_level = self.links.on_level = self.levels.look_at
        self.work.on_corruption = self.damage.on_read_corruption
        self.assigned = AssignedReplicas(self.log, self.replicas, self.work, self.committer, self, self._early)
        self.moves = Moves(self.loop, self.node_id, self.links, self.replicas, lambda: self.cluster)
        self.moves.level_commands = self.levels.commands
        self.assigned.on_change = self._cluster_changed
        self._balance = LeaderBalance(self.node_id, self._preferred_leader, self.moves.may_lead)
        self._tasks: list[asyncio.Task[None]] = []
        self.going_back = GoingBack(self.log, self.replicas, self.links.age, self.committer.wake)
        self.links.on_older = self.going_back.told
        self.maintenance = DiskMaintenance(
            self, Scrub(self.log, self.work, self.clock, self.damage), config.node_disk_reserve_bytes
        )
        self.other_partitions = InterPartitionClient(
            self.loop, self.cluster_id, config.nodes, config.process_name, credentials
        )
        self._table = RequestTable(self)
        self.request: Callable[[Token, bytes], None] = self._table.dispatch

    async def start(self) -> None:
        self.committer.start()
        self.damage.opened()
        self._open_replicas()
        host, port = split_listen(self.config.node_listen)
        accept = self._connections.accept
        self._server = await self.loop.create_server(accept, host, port, reuse_address=True, backlog=1024)
        self.links.start()
        self.moves.start()
        self._tasks.append(self.loop.create_task(self._balance_forever()))
        if self.config.node_join and not self._is_registered():
            self._tasks.append(self.loop.create_task(ask_to_join(self.config, self._is_registered, self._credentials)))
        self.maintenance.start()
        PARTITIONS.set_function(lambda: len(self.replicas))
        PARTITIONS_LED.set_function(lambda: sum(replica.serving for replica in self.replicas.values()))
        _log.info("storage node is up", node=self.node_id, listen=self.config.node_listen, replicas=len(self.replicas))

    async def close(self) -> None:
        """Hand leadership over, stop serving, write what is staged, close the log."""
        self.replicas.closing = True
        for task in self._tasks:
            task.cancel()
        self.moves.close()
        self.maintenance.stop()
        await self._retire()
        if self._server is not None:
            self._server.close()
        for replica in list(self.replicas.values()):
            replica.close()
        await self.other_partitions.close()
        self._connections.close()
        await self.links.close()
        await self.committer.close()
        while self._is_busy():
            await asyncio.sleep(0.01)
        self.timers.close()
        self.failover.close()
        self.work.stop()
        self.log.close()

    def _is_busy(self) -> bool:
        """Is a thread, or what follows it, at work on the log?"""
        under_way = self._flushing.under_way or self.snapshots.installing
        return bool(under_way or self.maintenance.busy or self.damage.resetting or self.assigned.forgetting)

    async def _retire(self) -> None:
        """Let others lead what this node leads, so that its stop costs nobody an election timeout. Bounded: whoever
        cannot take over in time will elect itself."""
        self.links.retire()
        deadline_ms = self.clock.mono_ms() + RETIRE_MS_MAX
        while self.clock.mono_ms() < deadline_ms:
            # A leader that is full, slow or about to be emptied is better than none for an election timeout.
            if not hand_over_some(self.replicas.values(), self.moves.may_lead, self.links.may_lead, self.links.stays):
                return
            await asyncio.sleep(HAND_OVER_POLL_S)

    async def _balance_forever(self) -> None:
        while True:
            await asyncio.sleep(BALANCE_INTERVAL_MS / 1000)
            for replica in self._balance.due(self.replicas, self.clock.mono_ms()):
                replica.hand_over(self._preferred_leader(replica.partition))

    def may_lead(self, node_id: int) -> bool:
        return self.moves.may_lead(node_id)

    def _preferred_leader(self, partition: int) -> int:
        """0 = nobody: any leader will do."""
        if partition == CLUSTER_PARTITION:
            return self.cluster.voters[0]
        plan = self.cluster.machine.partitions.get(partition)
        return 0 if plan is None else plan.replicas[0]

    # --- the other nodes --------------------------------------------------------------------------------------

    def admit(self, address: NodeAddress) -> None:
        """The cluster log names this node, or a new address of it."""
        self.links.admit(address)

    def expel(self, node_id: int) -> None:
        """The cluster log says that this node is gone for good: nothing goes to it or comes from it any more."""
        self.links.expel(node_id)
        self._connections.close_peer_connections(node_id)

    def _cluster_changed(self) -> None:
        machine = self.cluster.machine
        if machine.level != self.links.cluster_level:
            self.feature_level = self.levels.follow(machine)
            self.links.cluster_level = machine.level
        self.moves.wake()

    def _refuse_clients(self, why: str) -> None:
        """Others lead, and clients hear why; it goes on as a voter."""
        self._connections.refuse_clients(why)
        self._tasks.append(self.loop.create_task(self._retire()))

    # --- Host: for replicas -----------------------------------------------------------------------------------

    def send(self, peer: int, message: RaftMessage) -> None:
        self.links.send(peer, message)

    def is_up(self, peer: int) -> bool:
        return self.links.is_up(peer)

    def peers_up(self) -> list[int]:
        return self.links.peers_up()

    def was_heard(self, peer: int) -> bool:
        return self.links.was_heard(peer)

    def configuration_committed(self, partition: int, configuration: Configuration) -> None:
        self.moves.wake()

    def retired(self, partition: int) -> None:
        become_retired(self.replicas[partition])

    # --- Requests: for connections ----------------------------------------------------------------------------

    def _stood_still(self, gap_ms: int) -> None:
        """The peers have given this node up meanwhile."""
        _log.warning("this node stood still for longer than its peers wait: it leads nothing", ms=gap_ms)
        self.timers.look()
        self.replicas.on_stall()

    def nodes_without_room(self, voters: Sequence[int]) -> list[int]:
        """Those whose disks are nearly full, where no more messages may be taken for that: this node, or a majority."""
        full = [voter for voter in voters if self.links.is_read_only(voter)]
        return full if self.node_id in full or len(full) > (len(voters) - 1) // 2 else []

    def gate_sends(self) -> None:
        self._table.gate_sends(self.links.any_read_only)

    def cancelled(self, token: Token, partition: int) -> None:
        replica = self.replicas.get(partition)
        if isinstance(replica, QueueReplica | StreamReplica):
            replica.cancel(token)

    def peer_greeted(self, hello: PeerHello) -> str:
        objection = self.links.greeted(hello)
        if not objection:
            self.moves.wake()  # it may listen elsewhere now
        return objection

    def manage(self, commands: list[bytes]) -> None:
        self.cluster.manage(commands)

    def peer_heard(self, beat: Heartbeat) -> str:
        return self.links.heard(beat)

    def refusal(self, objection: str) -> PeerRefusal:
        return PeerRefusal(
            ErrorCode.INVALID_REQUEST, objection, self.links.now_ms(), self.links.incarnation, self.links.cluster_level
        )

    def raft_frame(self, sender: int, frame: RaftFrame) -> None:
        if not self.links.is_newest(sender, frame.incarnation):
            return
        messages = frame.messages
        if self.maintenance.closed:
            messages = [message for message in messages if not _brings_messages(message)]
        for message in messages:
            if type(message) is not AppendReply:
                # Something that takes memory may be among them.
                if not self.room.takes_appends():
                    messages = self.room.without_appends(messages)
                break
        self._inbox.take(sender, frame.incarnation, messages)

    def _peer_changed(self, peer: int, up: bool) -> None:
        if not up:
            self.snapshots.peer_down(peer)
        self.peer_states.changed(peer, up)

    def _raft_message(self, sender: int, message: RaftMessage) -> None:
        if self.peer_states.pending_down:
            self.peer_states.notify_before_message(message.partition)
        replica = self.replicas.get(message.partition)
        if replica is not None:
            replica.receive(sender, message)
        elif message.partition not in self.stopped:
            self._early.keep(sender, message, self.clock.mono_ms())

    # --- what the node knows ----------------------------------------------------------------------------------

    @property
    def cluster(self) -> ClusterReplica:
        return self.replicas.cluster

    def describe(self, partitions: list[int] | None, first: int = 0, moving: bool = False) -> ClusterInfo:
        """Nodes and partitions as folded here; leaders as far as this node knows them. All partitions: one page. Nodes
        that are gone are left out."""
        if partitions is not None and len(partitions) > DESCRIBE_PARTITIONS_MAX:
            text = f"{len(partitions)} partitions are asked for, {DESCRIBE_PARTITIONS_MAX} are told at a time"
            raise StorageError(ErrorCode.INVALID_REQUEST, text)
        machine = self.cluster.machine
        plans = machine.partitions
        following = 0
        if partitions is None:
            wanted = sorted(partition for partition in plans if partition >= first)
            if len(wanted) > DESCRIBE_PARTITIONS_MAX:
                following = wanted[DESCRIBE_PARTITIONS_MAX]
                del wanted[DESCRIBE_PARTITIONS_MAX:]
        else:
            named = dict.fromkeys([*partitions, *(machine.moving if moving else ())])
            wanted = [partition for partition in named if partition in plans]
        infos = [self._info(partition_info(plans[partition])) for partition in wanted]
        if (partitions is None and not first) or (partitions is not None and CLUSTER_PARTITION in partitions):
            own = PartitionInfo(CLUSTER_PARTITION, PartitionKind.CLUSTER, list(self.cluster.voters), "cluster")
            infos.insert(0, self._info(own))
        gone = NodeState.GONE
        nodes = [self._node_info(node) for node in machine.nodes.values() if machine.state_of(node.node_id) is not gone]
        return ClusterInfo(self.cluster_id, self.cluster.raft.leader, nodes, infos, following, machine.level)

    def _node_info(self, address: NodeAddress) -> NodeInfo:
        machine, node_id = self.cluster.machine, address.node_id
        held = machine.state_of(node_id), len(machine.held.get(node_id, ()))
        offset_ms = self.clocks.agreement.offset_ms(node_id)
        if node_id == self.node_id:
            since_ms = self.failover.started_wall_ms
            free_bytes = free_bytes_of(self.config.node_dir)
            own = NodeInfo(*address, True, since_ms, "", free_bytes, *held, offset_ms, self.clocks.is_off)
            return msgspec.structs.replace(
                own,
                levels=self.speaks,
                read_only=self.links.read_only,
                slow=self.links.slow,
                unrepaired=self.damage.unrepaired,
                quarantined=self.damage.quarantined()[:QUARANTINED_TOLD_MAX],
                stopped=self.stopped.told(QUARANTINED_TOLD_MAX),
            )
        since_ms, why = self.failover.peer_words(node_id)
        is_off = self.links.is_clock_off(node_id)
        told = NodeInfo(*address, self.links.is_up(node_id), since_ms, why, 0, *held, offset_ms, is_off)
        return msgspec.structs.replace(told, levels=machine.levels_of(node_id))

    def _info(self, info: PartitionInfo) -> PartitionInfo:
        """With what the replica here knows, if there is one."""
        replica = self.replicas.get(info.partition)
        if replica is None:
            return info
        raft = replica.raft
        move, lag = info.move, 0
        if replica.serving:
            status = raft.status()
            lag = max((peer.behind for peer in status.peers if not peer.learner), default=0)
            if move is not None:
                match = next((peer.match for peer in status.peers if peer.node_id == move.target), 0)
                move = msgspec.structs.replace(move, match=match, log_end=status.log_end)
        return msgspec.structs.replace(
            info,
            leader=raft.leader,
            epoch=raft.epoch,
            leader_since_ms=self.failover.since_wall_ms(raft),
            leader_reason=self.failover.reason(raft, info.replicas[0]),
            move=move,
            lag=lag,
        )

    def _is_registered(self) -> bool:
        return self.node_id in self.cluster.machine.nodes

    # --- replicas ---------------------------------------------------------------------------------------------

    def _open_replicas(self) -> None:
        if CLUSTER_PARTITION not in self.log.partitions:
            self._begin_cluster_log()
        # Groups that learn of no leader stand for election one after the other, not all at once.
        for number, log in enumerate(list(self.log.partitions.values())):
            replica = self.damage.open_replica(log)
            if replica is not None:
                replica.start(campaign=False, after_ms=number // STARTS_PER_MS_MAX)
        if not self.cluster.closed:
            # Its state may have become durable, by a flush or a snapshot, before what it made here was.
            self.assigned.catch_up()
            self._cluster_changed()

    def _begin_cluster_log(self) -> None:
        """Empty, as one of the cluster's founders, or as a node that joins it and has no say until it is given one."""
        founders = sorted(node.node_id for node in self.config.nodes)
        joins = self.config.node_join or self.node_id not in founders[:CLUSTER_VOTERS_MAX]
        voters = [founder for founder in founders if not joins or founder != self.node_id][:CLUSTER_VOTERS_MAX]
        meta = PartitionMeta("cluster", tuple(voters), learner=joins)
        self.log.create(CLUSTER_PARTITION, PartitionKind.CLUSTER, meta_text(meta))
        # The directory is new, or another one was lost: the other voters decide which (R12, R12b). One that joins may
        # have been a member before, too: what it is told that it holds, until it knows all, it may have held.
        self.log.set_suspect(CLUSTER_PARTITION, True)
        self.committer.wake()

    def _open_cluster(self, log: PartitionLog, meta: PartitionMeta) -> ClusterReplica:
        assigned = self.assigned
        return ClusterReplica(
            self, log, meta, self.config.nodes, assigned.changed, assigned.replaced, self.replicas.is_led
        )

    def _on_timer(self, partition: int) -> None:
        replica = self.replicas.get(partition)
        if replica is not None:
            replica.tick()

    # --- connections and background ---------------------------------------------------------------------------

    def _look(self, now_ms: int) -> None:
        if self.room.look():
            self._connections.look_at_reading()
        self._connections.look(now_ms)

    def _tell_crowded(self) -> None:
        self.links.crowded = self.room.crowded
        self.links.beat_all()

    def _after_group(self) -> None:
        if self.room.crowded:
            self.room.takes_appends()
        self.catch_up_reads.rate.look(self.clock.mono_ms())
        self.going_back.after_group()
        self._flushing.look()

    def _flush_facts(self, partition: int) -> FlushFacts | None:
        replica = self.replicas.get(partition)
        if replica is not None and not replica.closed:
            try:
                return replica.flush_facts()
            except Exception as error:
                self.stopped.stop(replica, StopKind.CHECKPOINT, replica.applied, error)
        return self.stopped.flush_facts(partition)


def _brings_messages(message: RaftMessage) -> bool:
    """Commands (deletes, the start of an epoch) are small, and without them nothing could ever be freed."""
    if type(message) is AppendEntries:
        try:
            return not all(verify_batch(entry).is_control for entry in message.entries)
        except BatchError:
            return False  # the replica drops what was damaged on its way, and says so
    return type(message) is SnapshotChunk
