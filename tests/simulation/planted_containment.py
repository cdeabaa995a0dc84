"""Planted bugs of what stops a replica, and of damage; what they are for says `planted.py`."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from storage_nodes.log.errors import UnreadableError
from storage_nodes.log.node_log import FlushFacts, NodeLog
from storage_nodes.log.record_batch import read_header
from storage_nodes.log.recovery import WalScanner
from storage_nodes.node.replicas.stopped_replicas import ReplicaError, StopKind, StoppedReplicas
from tests.simulation.sim_disk import SimFile


@contextmanager
def fold_ends_the_process() -> Iterator[None]:
    """B50: a fold that raises ends the process, and so it does at each start."""

    def failed(self: StoppedReplicas, replica: Any, error: ReplicaError) -> None:
        assert error.__cause__ is not None
        raise error.__cause__

    with mock.patch.object(StoppedReplicas, "failed", failed):
        yield


@contextmanager
def passes_over_entries() -> Iterator[None]:
    """B51: an entry that cannot be folded is passed over, and the replica goes on."""
    real = StoppedReplicas.failed

    def failed(self: StoppedReplicas, replica: Any, error: ReplicaError) -> None:
        batches = replica.log.read_hot(error.offset, 1)
        if error.kind is StopKind.ENTRY and batches:
            replica.applied = read_header(batches[0]).end_offset
        else:
            real(self, replica, error)

    with mock.patch.object(StoppedReplicas, "failed", failed):
        yield


def never_tries_again() -> AbstractContextManager[Any]:
    """B52: a replica that stopped stays closed until its node is started again."""
    return mock.patch.object(StoppedReplicas, "look", lambda self: None)


@contextmanager
def flushes_away_what_is_stopped() -> Iterator[None]:
    """B53: a flush keeps nothing of a stopped replica below its checkpoint, as if it were dead."""
    real = StoppedReplicas.flush_facts

    def flush_facts(self: StoppedReplicas, partition: int) -> FlushFacts | None:
        facts = real(self, partition)
        return None if facts is None else facts._replace(replicated=facts.commit, live=lambda _base, _last: False)

    with mock.patch.object(StoppedReplicas, "flush_facts", flush_facts):
        yield


@contextmanager
def trusts_who_met_a_violation() -> Iterator[None]:
    """B54: a replica to which its group seems broken is not suspect."""
    real = StoppedReplicas._note

    def note(self: StoppedReplicas, log: Any, kind: StopKind, *more: Any) -> None:
        real(self, log, StopKind.LEADING if kind is StopKind.RAFT else kind, *more)

    with mock.patch.object(StoppedReplicas, "_note", note):
        yield


@contextmanager
def unreadable_ends_the_process() -> Iterator[None]:
    """B55: a read that the medium fails is no damage, but ends the process, at each start."""
    real = SimFile.read

    def read(self: SimFile, position: int, length: int) -> bytes:
        try:
            return real(self, position, length)
        except UnreadableError as error:
            raise OSError(errno.EIO, "Input/output error", self.path) from error

    with mock.patch.object(SimFile, "read", read):
        yield


@contextmanager
def carries_less_than_it_cuts() -> Iterator[None]:
    """B57: of the end of a stopped replica's log that is staged again the last entry is left out."""

    def restage(self: NodeLog, partition: int, batches: Sequence[bytes]) -> None:
        self._cut(partition, read_header(batches[0]).base_offset)
        for batch in batches[:-1]:
            self.append(partition, batch)

    with mock.patch.object(NodeLog, "restage", restage):
        yield


def unreadable_tails_are_torn() -> AbstractContextManager[Any]:
    """B56: a last group that cannot be read is taken for one that was never written whole."""
    return mock.patch.object(WalScanner, "is_unreadable", lambda self, position: False)
