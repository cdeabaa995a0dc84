"""Message schemas between nodes; the rules are those of `messages/__init__.py`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from storage_nodes.protocol.levels import LEVEL_FIRST
from storage_nodes.protocol.messages import Message


class PeerHello(Message, frozen=True):
    """First frame between nodes. Frames of an older incarnation of a node are dropped.

    `to` is whom the caller takes the receiver for (0 = anybody): an address may have another owner by now. `host`,
    `port`, `zone` are where the caller says that it listens. A node that is not let in gets a PeerRefusal and is hung
    up on. When it greets again it says back what the refusal told (`told_ms`, `told_by`), and for how long its process
    had run then (`age_ms`): so the receiver knows, without any wall clock, that it lives, and when it was started.
    `levels`: the fields of a `Speaks`.
    """

    cluster_id: str
    node_id: int
    incarnation: int
    to: int = 0
    host: str = ""
    port: int = 0
    zone: str = ""
    age_ms: int = 0
    told_ms: int = 0
    told_by: int = 0
    levels: tuple[int, int, int] = (LEVEL_FIRST, LEVEL_FIRST, LEVEL_FIRST)


class PeerRefusal(Message, frozen=True):
    """Why a node is not let in. `told_ms` and `told_by`: the refusing node's monotonic clock, and its incarnation.
    `level`: the cluster's feature level, as far as it knows: a node that does not fit it hears so from nobody else."""

    code: int
    message: str = ""
    told_ms: int = 0
    told_by: int = 0
    level: int = LEVEL_FIRST


class Heartbeat(Message, frozen=True):
    """`seq` is the sender's clock; `echo_seq` is the highest heard of the receiver's `echo_incarnation` (F5)."""

    node_id: int
    incarnation: int
    seq: int
    echo_seq: int
    echo_incarnation: int
    # The sender is about to stop: give it no leadership.
    retiring: bool = False
    # Its disk is nearly full: it takes no messages, and no leadership.
    read_only: bool = False
    # Its disk is slow: give it no leadership.
    slow: bool = False
    # 99th percentile of its group syncs over the last while; 0 = it did not sync enough to tell.
    sync_us: int = 0
    # What its wall clock says; None = it does not tell.
    wall_ms: int | None = None
    # Its clock is off: give it no leadership.
    clock_off: bool = False
    # Its memory budget is short: do not feed it until it says that it is so no more.
    crowded: bool = False
    # What the clocks of other nodes say, as far as it knows: (node, wall time in ms, how many ms ago it was heard).
    clocks: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    # It was just started, and does not know yet whether its clock is off: give it no leadership for now.
    clock_unknown: bool = False
    # The sender's promise to the receiver not to vote for others, by number: another number than before says that it
    # was broken meanwhile (node/transport/leases.py). 0 = it makes none.
    promise: int = 0
    # The last WAL group that the sender synced, and how far it is accounted for; and which group it knows the receiver
    # to have synced, in which incarnation (node/transport/directory_age.py). 0 = it does not tell.
    sequence: int = 0
    accounted: int = 0
    known_incarnation: int = 0
    known_sequence: int = 0


class Manage(Message, frozen=True):
    """Commands of the cluster machine that a node asks the manager to log. Not answered: the sender sees them folded,
    and sends them again until it does."""

    commands: list[bytes]


# What a log can hold of them (log/record_batch.py, log/wal.py): a message beyond that is malformed, nobody reads it.
EPOCH_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1
Epoch = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]

# Raft messages of all partitions for one peer ride in one RAFT frame (`RaftFrame`). Offsets are exclusive ends
# unless said otherwise; `partition` names the group.


class AppendEntries(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=1):
    """Batches that follow `prev_offset` (= base offset of the first), whose predecessor was written in prev_epoch."""

    partition: int
    epoch: Epoch
    prev_epoch: Epoch
    prev_offset: Offset
    commit: Offset
    entries: list[bytes]
    # Every voter is known to hold the log durably up to here: dead entries below it need not be kept.
    replicated: Offset = 0
    # The leader takes the receiver for a learner: a replica without any epoch listens to nothing else.
    learner: bool = False
    # Of the leader's leases: the answer says it back.
    round: int = 0


class AppendReply(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=2):
    """Sent after the follower's fsync. ok: `offset` = its durable log end that matches the leader's.

    Not ok: the logs differ at prev_offset; (conflict_epoch, offset) = the last epoch at or below the asked one and
    where it ends in the follower's log, so that the leader backs off an epoch at a time (R16).
    `commit` is what the follower knows to be committed: only an answer proves that a commit notice arrived.
    """

    partition: int
    epoch: Epoch
    ok: bool
    offset: Offset
    conflict_epoch: Epoch = 0
    commit: Offset = 0
    # The replica is suspect: its log may end below what it once acknowledged.
    suspect: bool = False
    # Of the append that this answers; 0 = it answers none.
    round: int = 0


class VoteRequest(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=3):
    partition: int
    epoch: Epoch
    last_epoch: Epoch
    log_end: Offset
    pre_vote: bool = False
    # The leader itself asked for this election (TimeoutNow): a live leader is no reason to refuse.
    transfer: bool = False


class VoteReply(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=4):
    partition: int
    epoch: Epoch
    granted: bool
    pre_vote: bool = False
    # The voter is suspect: its vote counts only where every voter grants one (R12b).
    suspect: bool = False


class TimeoutNow(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=5):
    """The leader of `epoch` hands over: stand for election at once, without pre-votes."""

    partition: int
    epoch: Epoch


class SnapshotChunk(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=6):
    """A piece of the log up to `end_offset`, for a follower that cannot be fed from the leader's log.

    Chunks are numbered from 0. First come the pieces of the machine's checkpoint as of end_offset, then the entries
    that still matter, in order and with gaps. `last_epoch` is that of the entry before end_offset. Number 0 carries
    the epoch boundaries: epochs[i] starts at starts[i]. `serial` tells the snapshots of one sender apart, the later one
    has the higher one: two up to the same offset are not cut into chunks at the same places.
    """

    partition: int
    epoch: Epoch
    end_offset: Offset
    last_epoch: Epoch
    number: int
    checkpoint: bytes
    entries: list[bytes]
    done: bool
    epochs: list[Epoch] = []
    starts: list[Offset] = []
    # The leader takes the receiver for a learner, as in AppendEntries.
    learner: bool = False
    # Number 0: the group's configuration as of end_offset, and where its entry ends (0 = it has none).
    configuration: bytes = b""
    configuration_end: Offset = 0
    serial: int = 0


class SnapshotReply(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=7):
    """Chunk `number` was taken; the last one: the snapshot is installed, durably."""

    partition: int
    epoch: Epoch
    end_offset: Offset
    number: int
    serial: int = 0


RaftMessage = AppendEntries | AppendReply | VoteRequest | VoteReply | TimeoutNow | SnapshotChunk | SnapshotReply


class RaftFrame(Message, frozen=True):
    incarnation: int
    messages: list[RaftMessage]


def size_of(message: RaftMessage) -> int:
    """About how many bytes it takes in a frame, and in memory."""
    if type(message) is AppendEntries:
        return 64 + sum(map(len, message.entries))
    if type(message) is SnapshotChunk:
        return 64 + len(message.checkpoint) + sum(map(len, message.entries))
    return 64
