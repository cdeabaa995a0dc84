"""What a leader may say by itself: only while nobody else can have been elected
(docs/decisions/0053-leases-of-leaders.md).

What a majority has to commit first is true whoever leads when it is told: sends, deletes, changes. Everything that is
answered from the leader's own state may be told only under a lease: receives, empty ones too, reads, what a queue
holds, and refusals that rest on it. The clock is asked when a request is taken, and again when an answer leaves that
had to wait.
"""

from __future__ import annotations

from storage_nodes.machines.raft import effects as raft_effects
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.node.replicas.host import Host
from storage_nodes.protocol.errors import ErrorCode, StorageError


class LeaseHolder:
    """Base of all replicas."""

    __slots__ = ("_leased_until_ms",)
    _leased_until_ms: int
    host: Host
    raft: RaftMachine
    closed: bool

    def perform(self, effects: list[raft_effects.Effect]) -> None:
        raise NotImplementedError

    def require_leader(self) -> None:
        raise NotImplementedError

    def require_lease(self) -> None:
        """Raises NOT_LEADER, or NO_QUORUM where this leader cannot know whether it still leads."""
        self.require_leader()
        if not self.holds_lease():
            raise no_lease()

    def holds_lease(self) -> bool:
        """At this moment. What was found once stays true until then: only `drop_lease` ends it earlier."""
        now_ms = self.host.clock.mono_ms()
        if now_ms < self._leased_until_ms:
            return True
        self._leased_until_ms = until_ms = self.raft.lease_until_ms(self.host.leases.until_ms)
        if now_ms < until_ms:
            return True
        # A turn later: this may be asked amid the effects of an input.
        self.host.loop.call_soon(self._confirm)
        return False

    def drop_lease(self) -> None:
        """It leads no more, is about to hand over, or other voters count."""
        self._leased_until_ms = 0

    def _confirm(self) -> None:
        if not self.closed:
            self.perform(self.raft.confirm(self.host.clock.mono_ms()))


def no_lease() -> StorageError:
    """What those are answered with who asked a leader that has not heard a majority for too long."""
    return StorageError(ErrorCode.NO_QUORUM, "the leader has not heard from a majority: another one may lead")
