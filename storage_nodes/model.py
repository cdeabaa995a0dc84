"""Ids and value types of the storage plane."""

from __future__ import annotations

import enum
from typing import NamedTuple

from storage_nodes.ids import cluster_of_node, node_name, parse_node_name

# `ids.py` says what they are made of.
NodeId = int
PartitionId = int

# The Raft group in which the cluster keeps its own metadata: nodes, zones, partitions, replica sets.
CLUSTER_PARTITION: PartitionId = 0

# How far a leader's time is ahead of what most clocks say, where they were not heard: so far that nothing is past.
AHEAD_UNKNOWN = 1 << 60


class PartitionKind(enum.IntEnum):
    """What a partition's log is folded by. Numbers are on disk and on the wire: never reuse one."""

    CLUSTER = 0
    QUEUE = 1
    STREAM = 2


class Acks(enum.IntEnum):
    """When a send is answered. Numbers are on the wire: never reuse one."""

    NONE = 0  # as soon as the leader has staged it
    LEADER = 1  # once the leader's own disk has it
    QUORUM = 2  # once a majority of the voters has fsynced it
    ALL = 3  # once every voter has fsynced it


class NodeState(enum.IntEnum):
    """Numbers are on disk and on the wire: never reuse one."""

    ACTIVE = 0
    DRAINING = 1  # gets no replicas, and gives away those it holds; stays in the cluster
    LEAVING = 2  # the same, and is gone as soon as it holds none
    GONE = 3  # was decommissioned; its id is never used again


class NodeAddress(NamedTuple):
    """Where a storage node listens, and the failure domain it stands in."""

    node_id: NodeId
    host: str
    port: int
    zone: str


class Position(NamedTuple):
    """A place in a partition's log: the epoch (Raft term) that wrote it and its offset (counts records)."""

    epoch: int
    offset: int


def parse_node_list(text: str) -> list[NodeAddress]:
    """Read `1=127.0.0.1:7101@zone-a,2=...` (the `PENSTOCK_STORAGE_NODES` setting).

    It names the nodes of one cluster; those of another than cluster 1 as `2.1=...`. Raises ValueError naming the part
    that is wrong.
    """
    nodes: list[NodeAddress] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, rest = part.partition("=")
        address, _, zone = rest.partition("@")
        host, colon, port = address.rpartition(":")
        if not (equals and colon and port.isdigit() and host):
            raise ValueError(f"node list entry {part!r} is not of the form ID=HOST:PORT@ZONE")
        node_id = parse_node_name(name)
        nodes.append(NodeAddress(node_id, host, int(port), zone or f"zone-{node_name(node_id)}"))
    if len({node.node_id for node in nodes}) != len(nodes):
        raise ValueError("node list names a node id twice")
    if len({cluster_of_node(node.node_id) for node in nodes}) > 1:
        raise ValueError("node list names nodes of two clusters; one list is of one cluster")
    return nodes


def format_node_list(nodes: list[NodeAddress]) -> str:
    """The inverse of `parse_node_list`."""
    return ",".join(f"{node_name(node.node_id)}={node.host}:{node.port}@{node.zone}" for node in nodes)
