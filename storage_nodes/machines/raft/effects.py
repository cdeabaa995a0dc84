"""What goes into and comes out of the Raft machine, apart from the wire messages.

Effects are performed by the driver, in order, before the next input; it decides nothing:

    SaveVote       log.save_vote(partition, epoch, voted_for): staged into the gathering WAL group
    Truncate       log.truncate(partition, offset)
    Append         log.append(partition, batch) for each, in order
    Send           send now; with after_sync, send once everything staged so far was fsynced (R1, R5)
    SendEntries    read whole batches from prev_offset, at most APPEND_BYTES_MAX of them, and send
                   AppendEntries(partition, epoch, prev_epoch, prev_offset, commit, entries, replicated); then call
                   machine.sent(peer, end of the last batch or prev_offset, bytes). Where the read had to wait for
                   the disk, first ask machine.is_current(effect): if no, drop it and do not call sent(). Where the
                   log is no longer whole from prev_offset on, send no entries: the answer leads to a snapshot
    EpochStart     won: stage the epoch-start control batch, then call machine.proposed()
    Committed      every entry that ends at or below offset is committed: fold it, answer those who wait
    BecameLeader   the epoch-start entry is committed: serve (R9, R13)
    SteppedDown    stop serving; writes that wait for their commit have an unknown outcome (R7)
    SendSnapshot   the log no longer has what this peer needs next: send it a snapshot (checkpoint and live entries up
                   to what is folded), then call machine.snapshot_ended(peer), whatever became of it
    TakeSnapshot   a chunk came from the leader of the epoch: gather it; once all are there call machine.installing(),
                   put the new log in place of the old one, durably, and call machine.installed(end)
    Trusted        no longer suspect: log.set_suspect(partition, False), once everything committed is folded
    TransferEnded  the hand-over did not come about: propose again
    AppendConfiguration     stage a control batch with this configuration, then call machine.configured(), then
                            machine.proposed()
    ConfigurationCommitted  the configuration in force is committed; said at every replica, and perhaps again after a
                            restart
    WithdrawPromise         this replica follows `leader` no more: the node's heartbeats must say from now on that its
                            promise to that node was broken; then call machine.promised(leader, until when it binds)

After Append and Truncate the driver looks whether log.configurations is still machine.history; if it is not, it calls
machine.configured() before it goes on.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from storage_nodes.protocol.configuration import Configuration, ConfigurationEntry
from storage_nodes.protocol.peer_messages import RaftMessage, SnapshotChunk


class Role(enum.IntEnum):
    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


class Loss(enum.IntEnum):
    """Why a group lost its leader, as one of its replicas saw it."""

    STARTED = 0  # this replica has known none since its node started, or since it was made
    NODE_DOWN = 1  # the leader's node went down
    HANDED_OVER = 2  # the leader chose its successor
    GAVE_UP = 3  # the leader asks for votes: it leads no more
    OUTVOTED = 4  # others elected a leader in a higher epoch
    NO_QUORUM = 5  # the leader lost contact with a majority of the voters
    NOT_HEARD = 6  # the leader's node is up, and nothing comes of the leader
    REMOVED = 7  # the leader was taken out of the group


class SafetyViolation(Exception):
    """The group broke a promise that Raft rests on: this replica stops and is suspect, and never throws anything away:
    it may be the one that is right."""


class LogPositions(Protocol):
    """What the machine may ask the partition's log; staged changes are already in it."""

    @property
    def log_end(self) -> int: ...

    @property
    def durable_end(self) -> int: ...

    @property
    def last_epoch(self) -> int: ...

    @property
    def whole_from(self) -> int:
        """From here on no entry is missing: a follower that matches up to there can be fed from this log."""

    @property
    def configurations(self) -> Sequence[ConfigurationEntry]:
        """Oldest first, from the one in force at the commit position at least; another object when they change."""

    def epoch_at(self, offset: int) -> int:
        """Epoch of the entry that ends at `offset` or covers offset - 1; 0 at offset 0."""

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest own epoch <= epoch, exclusive end of it); (0, 0) where there is none."""


class EntryFacts(Protocol):
    """Where an entry of an AppendEntries stands: offsets [base_offset, end_offset), written in `epoch`.

    The driver reads it from the batch; `BatchHeader` of the log has it.
    """

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...


class EntryHeader(NamedTuple):
    """The same as a plain value."""

    base_offset: int
    end_offset: int
    epoch: int


class SaveVote(NamedTuple):
    epoch: int
    voted_for: int


class Truncate(NamedTuple):
    offset: int


class Append(NamedTuple):
    entries: list[bytes]


class Send(NamedTuple):
    peer: int
    message: RaftMessage
    after_sync: bool


class SendEntries(NamedTuple):
    """Carries epoch and replicated too, so that a send delayed by a disk read says what was true when it was asked."""

    peer: int
    prev_offset: int
    prev_epoch: int
    commit: int
    epoch: int
    replicated: int
    learner: bool = False


class EpochStart(NamedTuple):
    epoch: int


class Committed(NamedTuple):
    offset: int


class BecameLeader(NamedTuple):
    pass


class SteppedDown(NamedTuple):
    """`leader` is the node that leads now, 0 where that is not known."""

    leader: int
    reason: str


class SendSnapshot(NamedTuple):
    peer: int
    epoch: int
    learner: bool = False


class TakeSnapshot(NamedTuple):
    sender: int
    chunk: SnapshotChunk


class Trusted(NamedTuple):
    pass


class TransferEnded(NamedTuple):
    target: int


class AppendConfiguration(NamedTuple):
    configuration: Configuration


class ConfigurationCommitted(NamedTuple):
    configuration: Configuration


class WithdrawPromise(NamedTuple):
    leader: int


Effect = (
    SaveVote
    | Truncate
    | Append
    | Send
    | SendEntries
    | EpochStart
    | Committed
    | BecameLeader
    | SteppedDown
    | SendSnapshot
    | TakeSnapshot
    | Trusted
    | TransferEnded
    | AppendConfiguration
    | ConfigurationCommitted
    | WithdrawPromise
)


class PeerStatus(NamedTuple):
    """How far a member is, as its leader knows it."""

    node_id: int
    up: bool
    match: int
    behind: int
    learner: bool = False


class RaftStatus(NamedTuple):
    """For operators: who leads, since when (monotonic ms), and why that changed last. `peers` only on the leader."""

    role: Role
    epoch: int
    leader: int
    leader_since_ms: int
    leader_reason: str
    commit: int
    replicated: int
    log_end: int
    peers: list[PeerStatus]
