"""Leases of leaders, as far as they are the node's: who promised whom not to vote for others, and until when
(docs/decisions/0053-leases-of-leaders.md).

    F hears a heartbeat of L    in groups that it follows L in, F votes for nobody else for VOTE_HOLD_MS from now on
    F's next heartbeat          echoes it, and says by which promise: its number stays while F heard in time
    L hears the echo            may count on F until LEADER_LEASE_MS after it *sent* what was echoed

Heartbeats are per pair of nodes; so are promises, and an idle group costs nothing. Who follows whom is per group, so L
counts on F in a group only after F answered an append there, by a promise that is still the same. A promise gets
another number when F heard nothing for VOTE_HOLD_MS, and when F follows L no more in one of its groups (`withdraw`):
whatever F answered before is worth nothing then. *Rounds* say what was answered since: L counts the promises that it
learned of, every append carries the latest count, and its answer brings it back.

All times are monotonic. F's promise binds its own acts only, at the time it does them; L asks its clock whenever it
answers a caller. So a node that stood still finds its lease over before it says anything, and whatever a network delays
makes leases shorter, never longer.

A process that starts forgot what it promised: it promises everybody anew (`withdraw_all`), and votes for nobody until
that is over. A peer that has no process any more needs no promise (`release`): its port refuses connections, and its
own connection to us is gone.
"""

from __future__ import annotations

from storage_nodes.limits import LEADER_LEASE_MS, VOTE_HOLD_MS


class PeerLease:
    """Between this node and one peer, in both directions."""

    __slots__ = ("echoed_ms", "heard_ms", "promise", "round_from", "told")

    def __init__(self) -> None:
        # Our promise to the peer, and when a heartbeat of it came last; 0 = never, or it needs no promise.
        self.promise = 1
        self.heard_ms = 0
        # The peer's promise to us, the round since which answers are given by it, and when the latest of our heartbeats
        # left that it echoed by it; 0 = none.
        self.told = 0
        self.round_from = 0
        self.echoed_ms = 0

    def heard(self, now_ms: int) -> None:
        """A heartbeat of the peer came."""
        if now_ms >= self.heard_ms + VOTE_HOLD_MS:
            self.promise += 1
        self.heard_ms = now_ms

    def withdraw(self) -> int:
        """Heartbeats say from now on that the promise was broken. Returns until when it binds us all the same."""
        self.promise += 1
        return self.heard_ms + VOTE_HOLD_MS if self.heard_ms else 0

    def release(self) -> None:
        """The peer's process has ended."""
        self.promise += 1
        self.heard_ms = 0

    def restarted(self) -> None:
        """Another process of the peer greeted us: nothing that the one before promised counts. What we promised to
        that one binds us still: it may run on."""
        self.told = self.round_from = self.echoed_ms = 0


class LeaderLeases:
    """One per node."""

    __slots__ = ("_peers", "round")

    def __init__(self) -> None:
        # How many promises of peers this node learned of; appends carry it.
        self.round = 0
        self._peers: dict[int, PeerLease] = {}

    def add(self, peer: int) -> PeerLease:
        lease = self._peers[peer] = PeerLease()
        return lease

    def remove(self, peer: int) -> None:
        self._peers.pop(peer, None)

    def echoed(self, lease: PeerLease, promise: int, sent_ms: int) -> None:
        """The peer echoes what we sent then, and says by which promise it heard of it."""
        if promise != lease.told:
            self.round += 1
            lease.told = promise
            lease.round_from = self.round if promise else 0
            lease.echoed_ms = 0
        if sent_ms > lease.echoed_ms:
            lease.echoed_ms = sent_ms

    def until_ms(self, peer: int, answered: int) -> int:
        """Until when the peer votes for nobody else in a group where its answers brought back the round `answered`."""
        lease = self._peers.get(peer)
        if lease is None or not 0 < lease.round_from <= answered:
            return 0
        return lease.echoed_ms + LEADER_LEASE_MS

    def withdraw(self, peer: int, now_ms: int) -> int:
        """A replica here follows the peer no more. Returns until when its vote is not free."""
        lease = self._peers.get(peer)
        return now_ms + VOTE_HOLD_MS if lease is None else lease.withdraw()

    def withdraw_all(self, now_ms: int) -> int:
        """A replica here does not remember whom it followed. Returns until when its vote is not free."""
        for lease in self._peers.values():
            lease.promise += 1
        return now_ms + VOTE_HOLD_MS
