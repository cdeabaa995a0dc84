"""Messages to the manager of the cluster, and of the files of one node."""

from __future__ import annotations

import msgspec

from storage_nodes.protocol.levels import LEVEL_FIRST
from storage_nodes.protocol.messages.core import Message
from storage_nodes.protocol.messages.queues import QueueConfig


class StoppedReplica(Message, frozen=True):
    """A replica that is closed while its node goes on: at which offset, since when (ms since the epoch) and why. `kind`
    is a `StopKind` of node/replicas/stopped_replicas.py; `account_id`: who owns the queue, "" = not known here."""

    partition: int
    tag: str
    kind: str
    offset: int
    reason: str
    since_ms: int
    account_id: str = ""


class NodeInfo(Message, frozen=True):
    node_id: int
    host: str
    port: int
    zone: str
    alive: bool = True
    # Up or down since then (ms since the epoch), as the answering node saw it, and in what way it went down.
    since_ms: int = 0
    why: str = ""
    # Of the answering node only: what is left of the file system that holds its directory.
    disk_free_bytes: int = 0
    # A `NodeState` of the cluster machine, and how many replicas the node holds or is about to take.
    state: int = 0
    replicas: int = 0
    # How far its clock is ahead of what most nodes' clocks say, as the answering node knows it; and whether the node
    # itself finds that its clock is off.
    clock_offset_ms: int | None = None
    clock_off: bool = False
    # Of the answering node only: is its disk nearly full (`read_only`), or so slow that others lead (`slow`); how much
    # damage is not repaired; the partitions whose replicas are closed, or may lack something that they acknowledged
    # (`QUARANTINED_TOLD_MAX` of them), and of those that are closed, why.
    read_only: bool = False
    slow: bool = False
    unrepaired: int = 0
    quarantined: list[int] = msgspec.field(default_factory=list)
    stopped: list[StoppedReplica] = msgspec.field(default_factory=list)
    # Feature levels (protocol/levels.py), as the cluster log has them: what it speaks, and how far it lets the cluster
    # rise.
    levels: tuple[int, int, int] = (LEVEL_FIRST, LEVEL_FIRST, LEVEL_FIRST)


class MoveInfo(Message, frozen=True):
    """A replica on its way from node `source` (0 = the partition grows) to node `target`.

    `match` and `log_end`: up to which offset the target holds the leader's log; known to the leader alone (else 0).
    """

    number: int
    source: int
    target: int
    undo: bool = False
    match: int = 0
    log_end: int = 0


class PartitionInfo(Message, frozen=True):
    """`leader` and `epoch` are what the answering node knows; 0 = no leader known.

    `leader_since_ms` (ms since the epoch): since when it leads, or since when none is known; 0 = the answering node
    has no replica. `leader_reason`: how the leader before was lost and this one came, whose voters only itself knows.
    `lag`: how many offsets the voter that is furthest behind lacks; known to the leader alone (else 0).
    """

    partition: int
    kind: int
    replicas: list[int]
    tag: str
    leader: int = 0
    epoch: int = 0
    leader_since_ms: int = 0
    leader_reason: str = ""
    move: MoveInfo | None = None
    lag: int = 0


class CreatePartitionRequest(Message, frozen=True):
    """Create a partition; the same (kind, tag) again answers with the one that exists (safe to retry).

    `tag` names the owner, for example `queue:<uuid>:0`; config is used for queues, retention_ms for streams.
    """

    kind: int
    tag: str
    config: QueueConfig = QueueConfig()
    replication_factor: int = 3


class DeletePartitionRequest(Message, frozen=True):
    """Delete by id and tag; the tag must match, so that a mistaken id deletes nothing."""

    partition: int
    tag: str


class DescribeClusterRequest(Message, frozen=True):
    """Only the named partitions; None = all from `first` on, a page of them. `moving`: also those with a move under
    way."""

    partitions: list[int] | None = None
    first: int = 0
    moving: bool = False


class ClusterInfo(Message, frozen=True):
    cluster_id: str
    manager: int
    nodes: list[NodeInfo]
    partitions: list[PartitionInfo]
    # Ask again from this partition on; 0 = that was all.
    next: int = 0
    # The cluster's feature level, as folded by the answering node.
    level: int = LEVEL_FIRST


class MoveReplicaRequest(Message, frozen=True):
    """Begin to put `target` in the place of `source`; the answer, a PartitionInfo, names the move."""

    partition: int
    source: int
    target: int


class CancelMoveRequest(Message, frozen=True):
    """Undo move `number` of a partition, if its group can still do without the target."""

    partition: int
    number: int


class RegisterNodeRequest(Message, frozen=True):
    """Make a node known to the cluster: from then on the others let it in."""

    node_id: int
    host: str
    port: int
    zone: str


class SetNodeStateRequest(Message, frozen=True):
    """`state` is a `NodeState`. `dead`: a node that is to leave died for good; refused while it is up, and without it
    where it is not."""

    node_id: int
    state: int
    dead: bool = False


class ScrubRequest(Message, frozen=True):
    """How does the scrub of this node go? With `start`, begin a pass unless one is under way."""

    start: bool = False


class ScrubReply(Message, frozen=True):
    """Times are ms since the epoch: when the pass under way began (0 = none is), when the last one ended. Counts are of
    the pass under way or, without one, of the last; `unrepaired` counts findings that are not made good yet, and
    `waiting` names those that the group cannot help with now."""

    running: bool
    started_ms: int
    ended_ms: int
    files_done: int
    files_total: int
    bytes_done: int
    found: int
    unrepaired: int
    waiting: list[str] = msgspec.field(default_factory=list)
