"""Folds what is committed into the machine of a replica, every entry once and in order; reads old ones from disk.

Much may become committed together: a node that waited for its turn hears of megabytes in one. So all replicas of a node
fold FOLD_TURN_BYTES in one turn of its event loop, and go on in the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from storage_nodes.limits import FOLD_TURN_BYTES
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import ATTRIBUTES_UNKNOWN, BatchHeader, read_header
from storage_nodes.machines.raft.effects import Committed
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.machines.unknown_entries import LevelTooHighError, UnknownEntryError
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.replicas.host import Host
from storage_nodes.node.replicas.partition_machine import FoldedMachine
from storage_nodes.node.replicas.stopped_replicas import ReplicaError, StoppableReplica


class FoldingReplica(StoppableReplica, Protocol):
    """What this needs of a replica."""

    host: Host
    log: PartitionLog
    raft: RaftMachine
    machine: FoldedMachine
    closed: bool
    serving: bool
    # All below is folded.
    applied: int
    # Entries to be folded are being read from disk, or wait for the next turn.
    applying_later: bool

    def fold(self, header: BatchHeader, batch: bytes) -> None: ...
    def maybe_trust(self) -> None: ...
    def maybe_lead(self) -> None: ...
    def progressed(self) -> None: ...
    def schedule(self) -> None: ...


def check_level(replica: FoldingReplica) -> None:
    """What was folded may have raised the partition beyond what this process speaks. Raises LevelTooHighError."""
    level, highest = replica.machine.level, replica.host.speaks.highest
    if level > highest:
        what = "the cluster" if replica.partition == CLUSTER_PARTITION else "the partition"
        raise LevelTooHighError(what, level, highest)


def fold_committed(replica: FoldingReplica, _effect: Committed | None = None) -> None:
    """Fold every entry that is committed and not yet folded, in order. Raises ReplicaError."""
    if replica.applying_later:
        return
    turn = replica.host.fold_turn
    while replica.applied < replica.raft.commit:
        if turn.is_over:
            replica.applying_later = True
            turn.when_next(_go_on, replica)
            return
        batches = replica.log.read_hot(replica.applied, FOLD_TURN_BYTES)
        if batches is None:
            replica.applying_later = True
            read = partial(replica.log.read_cold, replica.applied, FOLD_TURN_BYTES)
            replica.host.run_cold(read, partial(_go_on, replica, replica.applied, replica.raft.commit))
            return
        turn.folded(sum(map(len, batches)))
        _fold_all(replica, batches, replica.raft.commit)
    replica.maybe_trust()
    replica.maybe_lead()


def _go_on(replica: FoldingReplica, read_from: int = -1, committed: int = -1, batches: Sequence[bytes] = ()) -> None:
    """With what was read, if anything was; `committed` is the commit position when the read began."""
    replica.applying_later = False
    if not replica.closed:
        try:
            # If a snapshot was installed in between, what was read says nothing about what follows it.
            if replica.applied == read_from:
                replica.host.fold_turn.folded(sum(map(len, batches)))
                _fold_all(replica, batches, _final_end(replica, committed, batches))
            fold_committed(replica)
        except ReplicaError as error:
            replica.host.stopped.failed(replica, error)
            return
        if replica.serving:
            replica.progressed()
        replica.schedule()


def _final_end(replica: FoldingReplica, committed: int, batches: Sequence[bytes]) -> int:
    """Up to here what was read is what the log holds: all that was committed when the read began, and what became
    committed since, unless other entries took its place in between. Entries of one epoch at one offset are the same."""
    end, commit = committed, replica.raft.commit
    if commit == committed:
        return end
    for header in map(read_header, batches):
        if header.end_offset > commit:
            break
        if header.end_offset > end:
            if replica.log.epoch_at(header.end_offset) != header.epoch:
                break
            end = header.end_offset
    return end


def _fold_all(replica: FoldingReplica, batches: Sequence[bytes], commit: int) -> None:
    """Raises ReplicaError."""
    if not batches and replica.applied < commit:
        replica.applied = commit
    for batch in batches:
        header = read_header(batch)
        end_offset = header.last_offset + 1
        if end_offset > commit:
            if header.base_offset >= commit:
                replica.applied = commit
            break
        # Moved first: what the fold lets out (a woken reader, a fetch) may read this very batch.
        replica.applied = end_offset
        try:
            if header.attributes & ATTRIBUTES_UNKNOWN:
                raise UnknownEntryError(f"batch attributes {header.attributes & ATTRIBUTES_UNKNOWN:#x}")
            replica.fold(header, batch)
            if header.is_control:
                check_level(replica)
        except Exception as error:
            # It may be the same at each replica of the partition: it stops, and nothing else does.
            replica.applied = header.base_offset
            raise ReplicaError.of_fold(error, header.base_offset) from error
