"""Which method of which replica answers an opcode. One table; the partition is read from the payload's first field."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from storage_nodes.ids import node_name
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.disk_care.maintenance import DiskMaintenance
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.replicas.retiring import retire
from storage_nodes.node.replicas.stopped_replicas import StoppedReplicas
from storage_nodes.node.replicas.stream_replica import StreamReplica
from storage_nodes.node.replicas.usage_closing import UsageClosing
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import ClusterInfo, DescribeClusterRequest, Opcode, RetireReply, encode_message

_describe_request = msgspec.msgpack.Decoder(DescribeClusterRequest)

QUEUE_CALLS: dict[int, Callable[[QueueReplica, Token, bytes], None]] = {
    Opcode.SEND: QueueReplica.send,
    Opcode.ACQUIRE: QueueReplica.acquire,
    Opcode.DELETE: QueueReplica.delete,
    Opcode.CHANGE_VISIBILITY: QueueReplica.change_visibility,
    Opcode.PURGE: QueueReplica.purge,
    Opcode.QUEUE_STATS: QueueReplica.stats,
    Opcode.QUEUE_BROWSE: QueueReplica.browse,
    Opcode.SCHEDULED: QueueReplica.scheduled,
    Opcode.RESCHEDULE: QueueReplica.reschedule,
    Opcode.QUEUE_REMOVE: QueueReplica.remove,
    Opcode.PARKED_GROUPS: QueueReplica.parked_groups,
    Opcode.UNPARK: QueueReplica.unpark,
}
_STREAM: dict[int, Callable[[StreamReplica, Token, bytes], None]] = {
    Opcode.STREAM_APPEND: StreamReplica.append,
    Opcode.STREAM_READ: StreamReplica.read,
    Opcode.GROUP_JOIN: StreamReplica.group_request,
    Opcode.GROUP_HEARTBEAT: StreamReplica.group_request,
    Opcode.GROUP_LEAVE: StreamReplica.group_request,
    Opcode.GROUP_FENCE: StreamReplica.group_request,
    Opcode.GROUP_READ: StreamReplica.group_read,
    Opcode.GROUP_COMMIT: StreamReplica.group_request,
    Opcode.GROUP_COMMITTED: StreamReplica.group_request,
    Opcode.GROUP_DELETE: StreamReplica.group_request,
}


class ServingNode(Protocol):
    """What this needs of the node; `StorageNode` has it."""

    @property
    def replicas(self) -> LocalReplicas: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def maintenance(self) -> DiskMaintenance: ...
    @property
    def stopped(self) -> StoppedReplicas: ...
    def is_up(self, peer: int) -> bool: ...
    def nodes_without_room(self, voters: Sequence[int]) -> list[int]: ...
    def describe(self, partitions: list[int] | None, first: int, moving: bool) -> ClusterInfo: ...


class RequestTable:
    """Dispatches client requests. Raises StorageError or msgspec.DecodeError; the connection answers with it."""

    def __init__(self, node: ServingNode) -> None:
        self._node = node
        self._replicas = replicas = node.replicas
        self._queue = dict(QUEUE_CALLS)
        self._stream = dict(_STREAM)
        self._cluster: dict[int, Callable[[Token, bytes], None]] = {
            Opcode.CREATE_PARTITION: lambda token, payload: replicas.cluster.create(token, payload),
            Opcode.DELETE_PARTITION: lambda token, payload: replicas.cluster.delete(token, payload),
            Opcode.MOVE_REPLICA: lambda token, payload: replicas.cluster.move(token, payload),
            Opcode.CANCEL_MOVE: lambda token, payload: replicas.cluster.cancel_move(token, payload),
            Opcode.REGISTER_NODE: lambda token, payload: replicas.cluster.register(token, payload),
            Opcode.SET_NODE_STATE: lambda token, payload: replicas.cluster.set_state(token, payload),
            Opcode.DESCRIBE_CLUSTER: self._describe,
            Opcode.SCRUB: node.maintenance.scrub.answer,
            Opcode.RETIRE: self._retire,
            Opcode.CLOSE_USAGE: UsageClosing(replicas, node.loop).answer,
        }

    def gate_sends(self, gated: bool) -> None:
        """While some disk is nearly full, every request that brings messages is looked at; otherwise none is."""
        self._queue[Opcode.SEND] = self._send_if_room if gated else QueueReplica.send
        self._stream[Opcode.STREAM_APPEND] = self._append_if_room if gated else StreamReplica.append

    def _send_if_room(self, replica: QueueReplica, token: Token, payload: bytes) -> None:
        self._require_room(replica)
        replica.send(token, payload)

    def _append_if_room(self, replica: StreamReplica, token: Token, payload: bytes) -> None:
        self._require_room(replica)
        replica.append(token, payload)

    def _require_room(self, replica: Replica) -> None:
        """Raises READ_ONLY where this node, or a majority of the group, has none; NOT_LEADER comes first."""
        replica.require_leader()
        full = self._node.nodes_without_room(replica.voters)
        if full:
            nodes = ", ".join(map(node_name, full))
            text = f"the disk of node {nodes} is nearly full: no messages are taken until there is room"
            raise StorageError(ErrorCode.READ_ONLY, text)

    def dispatch(self, token: Token, payload: bytes) -> None:
        opcode = token.opcode
        queue_call = self._queue.get(opcode)
        if queue_call is not None:
            queue_call(self._replica(payload, QueueReplica), token, payload)
            return
        stream_call = self._stream.get(opcode)
        if stream_call is not None:
            stream_call(self._replica(payload, StreamReplica), token, payload)
            return
        if opcode == Opcode.CONFIGURE:
            self._replica(payload, (QueueReplica, StreamReplica)).configure(token, payload)
            return
        cluster_call = self._cluster.get(opcode)
        if cluster_call is None:
            raise StorageError(ErrorCode.UNKNOWN_OPCODE, f"opcode {opcode} is not known here")
        cluster_call(token, payload)

    def _retire(self, token: Token, payload: bytes) -> None:
        partition, machine = first_integer(payload), self._replicas.cluster.machine
        if machine.was_made(partition) and partition not in machine.partitions:
            # Deleted, which is for good: whoever asks was stopped before it could note that.
            token.connection.answer(token, encode_message(RetireReply(True)))
            return
        retire(self._replica(payload, QueueReplica), token, payload)

    def _replica(self, payload: bytes, kind: type[Any] | tuple[type[Any], ...]) -> Any:
        partition = first_integer(payload)
        replica = self._replicas.get(partition)
        if replica is None:
            refusal = self._node.stopped.refusal(partition)
            if refusal is not None:
                raise refusal
        plan = self._replicas.cluster.machine.partitions.get(partition) if replica is None else None
        if plan is not None:
            # It is known, but not held here (any more): whoever is first in line, and up, knows better.
            others = [replica for replica in plan.replicas if replica != self._replicas.node_id]
            holder = next(filter(self._node.is_up, others), others[0] if others else 0)
            raise StorageError(ErrorCode.NOT_LEADER, f"partition {partition} is held elsewhere", holder)
        if replica is None or partition == CLUSTER_PARTITION:
            raise StorageError(ErrorCode.UNKNOWN_PARTITION, f"partition {partition} has no replica here")
        if not isinstance(replica, kind):
            raise StorageError(ErrorCode.INVALID_REQUEST, f"partition {partition} is of another kind")
        return replica

    def _describe(self, token: Token, payload: bytes) -> None:
        request = _describe_request.decode(payload)
        info = self._node.describe(request.partitions, request.first, request.moving)
        token.connection.answer(token, encode_message(info))


def first_integer(payload: bytes) -> int:
    """The first element of a msgpack array, an unsigned integer; all requests for a partition begin with it.

    Reading just these bytes saves decoding a payload twice. Raises msgspec.DecodeError.
    """
    if len(payload) < 2 or not (0x90 <= payload[0] <= 0x9F):
        raise msgspec.DecodeError("not a request array")
    lead = payload[1]
    if lead < 0x80:
        return lead
    size = _UNSIGNED_BYTES.get(lead)
    if size is None or len(payload) < 2 + size:
        raise msgspec.DecodeError("the partition is not an unsigned integer")
    return int.from_bytes(payload[2 : 2 + size], "big")


_UNSIGNED_BYTES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
