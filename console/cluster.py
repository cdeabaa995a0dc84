"""What the storage nodes say of themselves, for operators. The control plane asks each of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from api.settings.environment import environment
from storage_nodes.client.storage_client import StorageClient

NODE_ANSWER_S_MAX = 2.0
PARTITIONS_SHOWN_MAX = 100


class NodeRow(NamedTuple):
    node_id: int
    zone: str
    alive: bool
    why: str
    since_ms: int
    disk_free_bytes: int | None
    clock_offset_ms: int | None
    clock_off: bool
    leads: int
    replicas: int


class PartitionSummary(NamedTuple):
    partition: int
    tag: str
    leader: int
    epoch: int
    replicas: list[int]
    leader_since_ms: int
    leader_reason: str


class ClusterView(NamedTuple):
    """`silent` are the nodes that did not answer."""

    manager: int
    nodes: list[NodeRow]
    partition_count: int
    leaderless: list[PartitionSummary]
    recent: list[PartitionSummary]
    silent: list[int]


async def look_at_cluster() -> ClusterView | None:
    """None: no node answers, or none is configured."""
    env = environment()
    addresses = env.nodes()
    if not addresses:
        return None
    client = StorageClient(env.cluster_id, addresses, "console")
    await client.start()
    try:
        calls = (asyncio.wait_for(client.describe_node(one.node_id), NODE_ANSWER_S_MAX) for one in addresses)
        answers = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        await client.close()
    views: dict[int, Any] = {
        address.node_id: answer
        for address, answer in zip(addresses, answers, strict=True)
        if not isinstance(answer, BaseException)
    }
    if not views:
        return None
    silent = [one.node_id for one in addresses if one.node_id not in views]
    return view_of(views, silent)


def view_of(views: dict[int, Any], silent: list[int]) -> ClusterView:
    """`views` holds the ClusterInfo of each node that answers. Of a partition the row counts that knows most: that of
    its leader, else that of the newest epoch."""
    best: dict[int, tuple[tuple[bool, int], Any]] = {}
    for node_id, view in views.items():
        for row in view.partitions:
            rank = (row.leader == node_id, row.epoch)
            if row.partition not in best or rank > best[row.partition][0]:
                best[row.partition] = (rank, row)
    rows = [
        PartitionSummary(
            row.partition, row.tag, row.leader, row.epoch, list(row.replicas), row.leader_since_ms, row.leader_reason
        )
        for _, (_, row) in sorted(best.items())
    ]
    leads = Counter(row.leader for row in rows)
    replicas = Counter(node for row in rows for node in row.replicas)
    known: dict[int, Any] = {}
    for node_id, view in views.items():
        for node in view.nodes:
            if node.node_id not in known or node.node_id == node_id:
                known[node.node_id] = node
    nodes = [
        NodeRow(
            one.node_id, one.zone, one.alive, "" if one.alive else one.why, one.since_ms, one.disk_free_bytes or None,
            one.clock_offset_ms, bool(one.clock_off and one.alive), leads[one.node_id], replicas[one.node_id],
        )
        for _, one in sorted(known.items())
    ]  # fmt: skip
    manager = max(views.values(), key=lambda view: len(view.nodes)).manager
    recent = sorted((row for row in rows if row.leader), key=lambda row: -row.leader_since_ms)
    leaderless = [row for row in rows if not row.leader]
    return ClusterView(
        manager, nodes, len(rows), leaderless[:PARTITIONS_SHOWN_MAX], recent[:PARTITIONS_SHOWN_MAX], silent
    )
