"""Messages of stream partitions, of their consumer groups, and of the usage stream that queues fill."""

from __future__ import annotations

from storage_nodes.protocol.messages.core import Message


class StreamReadRequest(Message, frozen=True):
    """Read whole batches from `offset` on, below the high watermark; wait up to wait_ms for the first."""

    partition: int
    offset: int
    bytes_max: int
    wait_ms: int = 0


class StreamReadReply(Message, frozen=True):
    """Read on at `next_offset`, which may lie beyond the last batch: control batches are left out."""

    high_watermark: int
    log_start: int
    batches: list[bytes]
    next_offset: int


class CloseUsageRequest(Message, frozen=True):
    """Close and export what the queue partitions led by this node metered up to now. `begin`: of all of them, from now
    on; without it the call asks how far the node is."""

    begin: bool


class CloseUsageReply(Message, frozen=True):
    """So many of the partitions are not exported yet."""

    partitions: int


# --- consumer groups ---
#
# `group` names a group of one stream. Its coordinator is the stream's first partition. `epoch` names one session of one
# member; a grant of a partition is (generation, epoch).


class GroupJoinRequest(Message, frozen=True):
    """Become a member, or begin a new session under the same `name`: an older one is over. To the coordinator.

    `partitions` are those of the stream, the coordinator first; a list of a higher `version` takes the place of the one
    that the group has. The session ends when nothing is heard for session_ms.
    """

    partition: int
    group: bytes
    name: bytes
    session_ms: int
    partitions: list[int]
    version: int = 0


class GroupMembership(Message, frozen=True):
    """What a member owns: (partition, generation of the grant). It is to let go of those in `revoke`, which it owns
    until it says so; `awaited` is how many more it gets once others let go of them."""

    epoch: int
    generation: int
    owned: list[tuple[int, int]]
    revoke: list[tuple[int, int]]
    awaited: int


class GroupHeartbeatRequest(Message, frozen=True):
    """To the coordinator. `generation` is the one last heard, `held` the grants that are still in use: a partition that
    this generation asked for, and that is not held any more, passes to its next owner. The answer is a
    GroupMembership."""

    partition: int
    group: bytes
    epoch: int
    generation: int
    held: list[tuple[int, int]]


class GroupLeaveRequest(Message, frozen=True):
    """End a session; whoever is no member (any more) hears the same. To the coordinator."""

    partition: int
    group: bytes
    epoch: int


class GroupFenceRequest(Message, frozen=True):
    """From the coordinator to a partition: from now on only this grant may read and commit here."""

    partition: int
    group: bytes
    generation: int
    epoch: int


class GroupReadRequest(Message, frozen=True):
    """STREAM_READ with a grant: refused where it is not the one that holds. The answer is a StreamReadReply."""

    partition: int
    offset: int
    bytes_max: int
    wait_ms: int
    group: bytes
    generation: int
    epoch: int


class GroupCommitRequest(Message, frozen=True):
    """Everything below `offset` is processed."""

    partition: int
    group: bytes
    generation: int
    epoch: int
    offset: int


class GroupCommitReply(Message, frozen=True):
    """What is committed now: `offset` of the request or, if that came late, a higher one."""

    offset: int


class GroupCommittedRequest(Message, frozen=True):
    """Where to go on. With a grant (generation > 0) refused where it is not the one that holds."""

    partition: int
    group: bytes
    generation: int = 0
    epoch: int = 0


class GroupCommittedReply(Message, frozen=True):
    """`offset` is -1 where nothing was ever committed; generation and epoch are 0 where nobody ever owned it."""

    offset: int
    generation: int
    epoch: int
    log_start: int
    high_watermark: int


class GroupDeleteRequest(Message, frozen=True):
    """Forget a group. To the coordinator with generation 0, which refuses while there are members; then to the others
    with the generation that it answered: what the group committed in a later one stays."""

    partition: int
    group: bytes
    generation: int = 0


class GroupDeleteReply(Message, frozen=True):
    generation: int
