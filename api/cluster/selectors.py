"""What the storage nodes say of themselves, for operators. Each of them is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from api.queues.models import Queue
from api.settings.environment import environment
from storage_nodes.client.storage_client import StorageClient
from storage_nodes.model import NodeState
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import ClusterInfo
from storage_nodes.protocol.usage_records import NO_QUEUE, queue_of_tag
from storage_nodes.trust.credentials import own_credentials

NODE_ANSWER_S_MAX = 2.0
PARTITIONS_SHOWN_MAX = 100


class NodeRow(NamedTuple):
    """From `read_only` on: None where the node itself does not answer. `quarantined`: partitions whose replicas on it
    are closed for damage, or may lack what they acknowledged."""

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
    state: NodeState
    read_only: bool | None
    slow: bool | None
    unrepaired: int | None
    quarantined: list[int] | None


class ReplicaMove(NamedTuple):
    """`source` 0: the partition grows. `percent` None: its leader does not say."""

    partition: int
    tag: str
    number: int
    source: int
    target: int
    undo: bool
    percent: int | None


class PartitionSummary(NamedTuple):
    partition: int
    tag: str
    leader: int
    epoch: int
    replicas: list[int]
    leader_since_ms: int
    leader_reason: str
    lag: int


class ClusterView(NamedTuple):
    """`silent` are the nodes that did not answer. `behind`: partitions with a replica that lacks something, the worst
    first; `leaders` and `replicas`: of every partition."""

    manager: int
    nodes: list[NodeRow]
    partition_count: int
    leaderless: list[PartitionSummary]
    recent: list[PartitionSummary]
    silent: list[int]
    behind: list[PartitionSummary]
    moves: list[ReplicaMove]
    leaders: Mapping[int, int]
    replicas: Mapping[int, list[int]]


class NewNode(NamedTuple):
    """An active node that holds less than half of what nodes hold on average (`fair`). `arriving`: replicas that are on
    their way to it."""

    node_id: int
    alive: bool
    replicas: int
    arriving: int
    fair: int

    @property
    def percent(self) -> int:
        return min(self.replicas * 100 // self.fair, 100)


class QueueScope(NamedTuple):
    """What a partition holds: `number` of the queue's partitions."""

    account_id: str
    name: str
    number: str


def queue_scopes(view: ClusterView) -> dict[str, QueueScope]:
    """By tag, of the partitions that the view lists and that belong to queues."""
    tags = {row.tag for rows in (view.leaderless, view.recent, view.behind, view.moves) for row in rows}
    uuids = {tag: UUID(bytes=queue_of_tag(tag)) for tag in tags}
    rows = Queue.objects.filter(uuid__in=set(uuids.values()) - {UUID(bytes=NO_QUEUE)})
    named = {uuid: (account_id, name) for uuid, account_id, name in rows.values_list("uuid", "account_id", "name")}
    return {tag: QueueScope(*named[uuid], tag.rpartition(":")[2]) for tag, uuid in uuids.items() if uuid in named}


def new_nodes(view: ClusterView) -> list[NewNode]:
    """Those that have joined, and did not get their share of replicas yet."""
    active = [node for node in view.nodes if node.state is NodeState.ACTIVE]
    fair = sum(node.replicas for node in view.nodes) // len(active) if active else 0
    arriving = Counter(move.target for move in view.moves if not move.undo)
    return [
        NewNode(node.node_id, node.alive, node.replicas, arriving[node.node_id], fair)
        for node in active
        if node.replicas * 2 < fair
    ]


async def look_at_cluster() -> ClusterView | None:
    """None: no node answers, or none is configured."""
    env = environment()
    addresses = env.nodes()
    if not addresses:
        return None
    client = StorageClient(env.cluster_id, addresses, "console", credentials=own_credentials(env.cluster_id))
    await client.start()
    asked = [one.node_id for one in addresses]
    try:
        views = await _ask(client, asked)
        named = {node.node_id for view in views.values() for node in view.nodes}
        if added := sorted(named.difference(asked)):
            # The settings of this process are older: where these nodes listen the cluster itself says.
            with suppress(StorageError, TimeoutError):
                await asyncio.wait_for(client.describe([]), NODE_ANSWER_S_MAX)
            views |= await _ask(client, added)
    finally:
        await client.close()
    if not views:
        return None
    return view_of(views, [node_id for node_id in (*asked, *added) if node_id not in views])


async def _ask(client: StorageClient, node_ids: Sequence[int]) -> dict[int, ClusterInfo]:
    """What each of these nodes knows; those that do not answer are left out."""
    calls = (asyncio.wait_for(client.describe_node(node_id), NODE_ANSWER_S_MAX) for node_id in node_ids)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    return {
        node_id: answer
        for node_id, answer in zip(node_ids, answers, strict=True)
        if not isinstance(answer, BaseException)
    }


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
            row.partition, row.tag, row.leader, row.epoch, list(row.replicas), row.leader_since_ms, row.leader_reason,
            row.lag,
        )
        for _, (_, row) in sorted(best.items())
    ]  # fmt: skip
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
            NodeState(one.state), *_own_words(one, one.node_id in views),
        )
        for _, one in sorted(known.items())
    ]  # fmt: skip
    manager = max(views.values(), key=lambda view: len(view.nodes)).manager
    recent = sorted((row for row in rows if row.leader), key=lambda row: -row.leader_since_ms)
    leaderless = [row for row in rows if not row.leader]
    behind = sorted((row for row in rows if row.lag), key=lambda row: -row.lag)
    moves = [_move(row) for _, (_, row) in sorted(best.items()) if row.move is not None]
    return ClusterView(
        manager, nodes, len(rows), leaderless[:PARTITIONS_SHOWN_MAX], recent[:PARTITIONS_SHOWN_MAX], silent,
        behind[:PARTITIONS_SHOWN_MAX], moves, {row.partition: row.leader for row in rows},
        {row.partition: row.replicas for row in rows},
    )  # fmt: skip


def _own_words(node: Any, answers: bool) -> tuple[bool | None, bool | None, int | None, list[int] | None]:
    """What a node says of itself alone."""
    return (node.read_only, node.slow, node.unrepaired, list(node.quarantined)) if answers else (None, None, None, None)


def _move(row: Any) -> ReplicaMove:
    move = row.move
    percent = min(move.match * 100 // move.log_end, 100) if move.log_end else None
    return ReplicaMove(row.partition, row.tag, move.number, move.source, move.target, move.undo, percent)
