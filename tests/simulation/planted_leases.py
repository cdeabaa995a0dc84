"""Planted bugs around leases of leaders, and around directories that went back: see `planted.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from storage_nodes.machines.raft.leadership import Leadership
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.node.disk_care.going_back import GoingBack
from storage_nodes.node.replicas.leased import LeaseHolder
from storage_nodes.node.transport.leases import LeaderLeases, PeerLease


@contextmanager
def leads_without_a_majority() -> Iterator[None]:
    """B8: a leader without a majority goes on, and asks for no lease.

    Its deadline is not even set: one that passes without effect keeps the timer ringing, and the run has no time left.
    """
    with (
        mock.patch.object(Leadership, "quorum_changed", lambda *_: None),
        mock.patch.object(LeaseHolder, "holds_lease", lambda self: True),
    ):
        yield


@contextmanager
def votes_in_spite_of_promises() -> Iterator[None]:
    """B60: a follower votes for whoever asks, whether or not it heard of its leader a moment ago."""
    with (
        mock.patch.object(RaftMachine, "_may_vote_for", lambda *_: True),
        mock.patch.object(RaftMachine, "promised", lambda *_: []),
    ):
        yield


@contextmanager
def keeps_the_lease_while_handing_over() -> Iterator[None]:
    """B61: a leader that told its successor to stand goes on answering under its lease."""
    real = Leadership.lease_until_ms

    def lease_until_ms(self: Leadership, until_ms: Any) -> int:
        kept, self.transferee = self.transferee, 0
        try:
            return real(self, until_ms)
        finally:
            self.transferee = kept

    with mock.patch.object(Leadership, "lease_until_ms", lease_until_ms):
        yield


def counts_from_the_echo() -> AbstractContextManager[Any]:
    """B62: a leader counts its lease from when an echo came, not from when it sent what is echoed."""
    real = LeaderLeases.echoed

    def echoed(self: LeaderLeases, lease: PeerLease, promise: int, sent_ms: int) -> None:
        real(self, lease, promise, lease.heard_ms)  # its heartbeat came just now

    return mock.patch.object(LeaderLeases, "echoed", echoed)


@contextmanager
def counts_on_broken_promises() -> Iterator[None]:
    """B63: a leader counts on whoever hears of its node, whether or not that one followed another one meanwhile; nor
    does it step down while it sees nobody."""

    def echoed(self: LeaderLeases, lease: PeerLease, promise: int, sent_ms: int) -> None:
        if not lease.told:
            self.round += 1
            lease.told, lease.round_from = promise, self.round
        lease.echoed_ms = max(lease.echoed_ms, sent_ms)

    with (
        mock.patch.object(LeaderLeases, "echoed", echoed),
        mock.patch.object(Leadership, "quorum_changed", lambda *_: None),
    ):
        yield


def trusts_an_older_directory() -> AbstractContextManager[Any]:
    """B64: a node whose peers know that its directory went back goes on as if it had not."""

    def told(self: GoingBack, peer: int, sequence: int) -> None:
        self._told = sequence

    return mock.patch.object(GoingBack, "told", told)
