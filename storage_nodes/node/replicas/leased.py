"""What a replica may say because it leads, and what it may say by itself: that only while nobody else can have been
elected (docs/decisions/0053-leases-of-leaders.md).

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
    """The side of a replica that leads, as far as it answers."""

    __slots__ = ("_leased_until_ms",)
    _leased_until_ms: int
    host: Host
    partition: int
    raft: RaftMachine
    closed: bool
    serving: bool
    handing_over: bool

    def perform(self, effects: list[raft_effects.Effect]) -> None:
        raise NotImplementedError

    def require_leader(self) -> None:
        """Raises NOT_LEADER, with the leader where it is known; QUARANTINED where the replica is stopped."""
        if not self.serving or self.handing_over:
            refusal = self.host.stopped.refusal(self.partition) if self.closed else None
            if refusal is not None:
                raise refusal
            leader = self.raft.transferee or self.raft.leader
            hint = leader if leader != self.host.node_id else 0
            raise StorageError(ErrorCode.NOT_LEADER, f"partition {self.partition} is led elsewhere", hint)

    def leads_in(self, epoch: int) -> bool:
        """Is the leadership of this epoch still ours, so that what was begun in it may go on?"""
        return self.serving and self.raft.epoch == epoch

    def leadership_lost(self) -> StorageError:
        """What those are answered with who waited for it."""
        return StorageError(ErrorCode.NOT_LEADER, "leadership was lost", self.raft.leader)

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
