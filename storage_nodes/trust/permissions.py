"""Which role may ask for what: the one table. What is not in it may nobody.

A role stands for what a process of it has to do, and for no more: a front end that was broken into can do to messages
what its customers can, and can neither delete a partition nor take a node out of the cluster. Between nodes speak nodes
alone, and each under its own id (`storage_nodes/node/transport/connections.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from storage_nodes.ids import node_name
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import CreatePartitionRequest, Opcode, RegisterNodeRequest, message_reader
from storage_nodes.protocol.usage import USAGE_TAG
from storage_nodes.trust.names import InnerName, InnerRole

_create = message_reader(CreatePartitionRequest)
_register = message_reader(RegisterNodeRequest)

_LOOK = frozenset((Opcode.DESCRIBE_CLUSTER, Opcode.QUEUE_STATS))
_MESSAGES = frozenset(
    (
        Opcode.SEND, Opcode.ACQUIRE, Opcode.DELETE, Opcode.CHANGE_VISIBILITY, Opcode.PURGE, Opcode.QUEUE_BROWSE,
        Opcode.QUEUE_REMOVE, Opcode.PARKED_GROUPS, Opcode.UNPARK, Opcode.SCHEDULED, Opcode.RESCHEDULE,
    )
)  # fmt: skip
_STREAM = frozenset(
    (
        Opcode.STREAM_APPEND, Opcode.STREAM_READ, Opcode.GROUP_JOIN, Opcode.GROUP_HEARTBEAT, Opcode.GROUP_LEAVE,
        Opcode.GROUP_READ, Opcode.GROUP_COMMIT, Opcode.GROUP_COMMITTED,
    )
)  # fmt: skip
_PARTITIONS = frozenset(
    (
        Opcode.CREATE_PARTITION, Opcode.DELETE_PARTITION, Opcode.CONFIGURE, Opcode.RETIRE, Opcode.GROUP_FENCE,
        Opcode.GROUP_DELETE, Opcode.CLOSE_USAGE,
    )
)  # fmt: skip
_REPLICAS = frozenset((Opcode.SET_NODE_STATE, Opcode.MOVE_REPLICA, Opcode.CANCEL_MOVE))
_NODES = frozenset((Opcode.REGISTER_NODE, Opcode.SCRUB))

OPERATIONS: dict[InnerRole, frozenset[Opcode]] = {
    # Its own dead letters, leases that reached nobody, fences of its groups, usage; and to join (see CONDITIONS).
    InnerRole.NODE: _LOOK
    | {
        Opcode.SEND,
        Opcode.CHANGE_VISIBILITY,
        Opcode.GROUP_FENCE,
        Opcode.STREAM_APPEND,
        Opcode.CREATE_PARTITION,
        Opcode.REGISTER_NODE,
    },
    # Of streams it knows the one of usage, and reads none.
    InnerRole.FRONT_END: _LOOK | _MESSAGES | {Opcode.STREAM_APPEND, Opcode.CREATE_PARTITION},
    InnerRole.CONTROL_PLANE: _LOOK | _PARTITIONS | _REPLICAS,
    InnerRole.WORKER: _LOOK | _MESSAGES | _STREAM | _PARTITIONS | _REPLICAS,
    InnerRole.METADATA: frozenset(),
    InnerRole.OPERATOR: _LOOK | _MESSAGES | _STREAM | _PARTITIONS | _REPLICAS | _NODES,
}
# All that some role may ask for. What is not among them is not known here: that is for the request table to say.
KNOWN: frozenset[int] = frozenset().union(*OPERATIONS.values())
# Greetings, and what travels between nodes: nobody who has greeted as a client sends any of it, a node neither.
NEVER_OF_CLIENTS = frozenset((Opcode.HELLO, Opcode.PEER_HELLO, Opcode.RAFT, Opcode.HEARTBEAT, Opcode.MANAGE))


def _is_usage_stream(name: InnerName, payload: bytes) -> bool:
    """The stream of usage is made by the process that has the first record."""
    asked = _create(payload)
    return asked.kind == PartitionKind.STREAM and asked.tag == USAGE_TAG


def _is_itself(name: InnerName, payload: bytes) -> bool:
    return node_name(_register(payload).node_id) == name.number


# What has to be true of a call, where the operation alone says too little. They raise msgspec.DecodeError.
CONDITIONS: dict[tuple[InnerRole, int], Callable[[InnerName, bytes], bool]] = {
    (InnerRole.NODE, Opcode.CREATE_PARTITION): _is_usage_stream,
    (InnerRole.FRONT_END, Opcode.CREATE_PARTITION): _is_usage_stream,
    (InnerRole.NODE, Opcode.REGISTER_NODE): _is_itself,
}
# Who may connect to the services that are not storage nodes.
MAY_CONNECT: dict[InnerRole, frozenset[InnerRole]] = {
    InnerRole.METADATA: frozenset((InnerRole.FRONT_END, InnerRole.OPERATOR)),
    InnerRole.CONTROL_PLANE: frozenset((InnerRole.FRONT_END, InnerRole.OPERATOR)),
}


def freely(role: InnerRole) -> frozenset[int]:
    """What a role may ask for whatever it says: the rest is looked at by `may`."""
    return frozenset(int(opcode) for opcode in OPERATIONS[role] if (role, opcode) not in CONDITIONS)


def may(name: InnerName, opcode: int, payload: bytes) -> bool:
    """Raises msgspec.DecodeError."""
    if opcode not in OPERATIONS[name.role]:
        return False
    condition = CONDITIONS.get((name.role, opcode))
    return condition is None or condition(name, payload)
