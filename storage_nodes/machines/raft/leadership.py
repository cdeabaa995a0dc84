"""What a replica does while it leads: feed the followers, and move the commit position.

**Commit** (R5, R6). A position counts for a voter of the latest configuration in the log, and only once that voter has
fsynced it: the own one through `durable`, a follower's through its AppendReply. The largest position that a majority
has is committed if it lies beyond `own_from`, the end of the log at the election: everything from there on is of the
own epoch. The first commit is therefore that of the epoch-start entry, and only with it BecameLeader goes out (R13).

**Feeding.** Every follower whose node is up is asked, by SendEntries, what `Progress` allows. One deadline serves
the group:

    commit notice   a follower that has not been told the commit position COMMIT_NOTICE_MS after the last append
                    gets an empty one
    retransmit      an append that no answer covers after RETRANSMIT_MS is sent again, as a probe
    check quorum    without a majority of nodes up for QUORUM_LOST_MS the leader steps down (R8)
    hand-over       a transfer that brought no election within ELECTION_TIMEOUT_MS is given up

It is evaluated lazily: inputs only ever move it closer, `tick` works out the next one, and an idle group whose
followers hold and know everything has none.

**Handing over** (Raft thesis, 3.10). The driver stops proposing; once the target has everything, and everything is
committed, so that nobody is left waiting for an answer, it is told to stand for election at once. It asks for votes
in a higher epoch, which deposes this leader like any other. Its word may come late: a leader that gave it leads on
only in another epoch.

**Lease** (R8). Followers vote for nobody else for a while after they heard of the leader's node. `lease_until_ms` says
until when a majority does so: nobody else can have been elected before. A follower counts from its first answer in this
epoch on, and for as long as its promise is the one under which it gave that answer (`node/transport/leases.py` has
both). A leader that hands over has no lease.

**Changing the configuration** (`membership.py`). Whoever is a member from the entry on is fed from then on; whoever is
not any more is fed until it knows that the entry is committed, so that it stops campaigning, or does not answer. A
leader that removed itself hands over when the entry is committed, and steps down where that fails.
"""

from __future__ import annotations

from collections.abc import Callable

from storage_nodes.ids import node_name
from storage_nodes.limits import COMMIT_NOTICE_MS, PROMOTION_LAG_RECORDS_MAX, QUORUM_LOST_MS
from storage_nodes.machines.raft.effects import (
    BecameLeader,
    Committed,
    ConfigurationCommitted,
    Effect,
    SafetyViolation,
    Send,
    SendEntries,
    SendSnapshot,
    TransferEnded,
    Trusted,
)
from storage_nodes.machines.raft.membership import Change, ConfigChangeError, Promote
from storage_nodes.machines.raft.progress import PROBE, REPLICATE, SNAPSHOT, Progress
from storage_nodes.machines.raft.replica_state import ReplicaState
from storage_nodes.machines.raft.timing import ELECTION_TIMEOUT_MS, RETRANSMIT_MS
from storage_nodes.protocol.peer_messages import AppendReply, TimeoutNow

# Of a lease.
NO_END = 2**62


class Leadership:
    """Made at the election, thrown away at the step-down."""

    __slots__ = (
        "_counting", "_log", "_machine", "_quorum", "_transfer_told", "_transfer_until_ms", "match",
        "own_from", "peers", "quorum_until_ms", "serving", "transferee",
    )  # fmt: skip

    def __init__(self, machine: ReplicaState, now_ms: int) -> None:
        log = machine.log
        self._machine = machine
        self._log = log
        self.own_from = log.log_end
        self.match = log.durable_end
        self.serving = False
        # When to step down for want of a majority; 0 while there is one.
        self.quorum_until_ms = 0
        # Who is to lead next; 0 = nobody is being handed over to.
        self.transferee = 0
        self._transfer_until_ms = 0
        self._transfer_told = False
        # All that are fed, and those of them whose matches count.
        self.peers: tuple[Progress, ...] = ()
        self._counting: tuple[Progress, ...] = ()
        self._quorum = 0
        self._take_members()
        machine.timer_ms = now_ms + RETRANSMIT_MS if self.peers else 0
        self.quorum_changed(now_ms)

    # --- the own log ----------------------------------------------------------------------------------------

    def proposed(self, now_ms: int) -> list[Effect]:
        """Entries were staged at the log's end."""
        effects: list[Effect] = [self._send(peer, now_ms) for peer in self.peers if peer.up and peer.may_send()]
        if effects:
            self._wake_by(now_ms + RETRANSMIT_MS)
        return effects

    def durable(self, end_offset: int, now_ms: int) -> list[Effect]:
        if end_offset <= self.match:
            return []
        self.match = end_offset
        effects = self._advance(end_offset, now_ms)
        return effects + self._hand_over() if self.transferee else effects

    # --- followers ------------------------------------------------------------------------------------------

    def sent(self, peer_id: int, end_offset: int, size_bytes: int) -> list[Effect]:
        """The driver did what a SendEntries asked; it sent nothing where end_offset is the offset asked for."""
        peer = self._peer(peer_id)
        if peer is None or not peer.reading:
            return []
        peer.reading = False
        if peer.asked != peer.next:  # an answer moved `next` while the driver was reading
            return [self._send(peer, peer.last_sent_ms)] if self._may_reach(peer) else []
        if peer.state is REPLICATE and end_offset > peer.next:
            peer.track(end_offset, size_bytes)
            if end_offset < self._log.log_end and self._may_reach(peer):
                return [self._send(peer, peer.last_sent_ms)]
        return []

    def replied(self, sender: int, reply: AppendReply, now_ms: int) -> list[Effect]:
        """A follower answered in this epoch. Raises SafetyViolation."""
        peer = self._peer(sender)
        if peer is None:
            return []  # no member any more
        peer.suspect = reply.suspect
        if reply.round > peer.round:
            peer.round = reply.round
        if reply.suspect and peer.commit_sent:
            # An append must follow: by it the follower is trusted, or says that it is, where this answer is late.
            peer.commit_sent = 0
            self._wake_by(now_ms + COMMIT_NOTICE_MS)
        if not reply.ok:
            return self._rejected(peer, reply, now_ms)
        offset = reply.offset
        log_end = self._log.log_end
        # A suspect follower needs an append more: by that it is trusted.
        if reply.commit > peer.commit_sent and not reply.suspect:
            peer.commit_sent = reply.commit
        if offset > log_end:
            text = f"node {node_name(sender)} matches up to {offset}, the log of its leader ends at {log_end}"
            raise SafetyViolation(text)
        if peer.state is SNAPSHOT and offset >= self._log.whole_from:
            peer.become_probe(offset)
            peer.commit_sent = 0  # a snapshot says nothing of the commit position: an append must
            self._wake_by(now_ms + COMMIT_NOTICE_MS)
        if peer.state is PROBE and offset >= peer.next:
            peer.become_replicate()
        risen = offset > peer.match
        if risen:
            peer.acknowledge(offset)
        if peer.next < peer.match:
            peer.next = peer.match
        if peer.match >= peer.next:
            peer.waiting = False
        effects = self._advance(offset, now_ms) if risen else []
        if peer.next < log_end and self._may_reach(peer):
            effects.append(self._send(peer, now_ms))
            self._wake_by(now_ms + RETRANSMIT_MS)
        return effects + self._hand_over() if self.transferee else effects

    def _rejected(self, peer: Progress, reply: AppendReply, now_ms: int) -> list[Effect]:
        """The logs differ where the append began, or an earlier one was lost: go back, an epoch at a time (R16)."""
        if reply.suspect or not peer.votes:
            # What it acknowledged is gone; a learner's, which counts for nothing, may be of an earlier replica there.
            peer.match = 0
        _epoch, end = self._log.end_of_epoch(reply.conflict_epoch)
        next_offset = min(reply.offset, end)
        if peer.state is SNAPSHOT or next_offset < peer.match:
            return []
        if next_offset >= peer.next and peer.state is PROBE:
            return []  # late: it is about an append that a later answer has overtaken
        peer.become_probe(min(next_offset, peer.next))
        if not self._may_reach(peer):
            return []
        self._wake_by(now_ms + RETRANSMIT_MS)
        return [self._send(peer, now_ms)]

    def snapshot_ended(self, peer_id: int, now_ms: int) -> list[Effect]:
        """The driver is done with a SendSnapshot: find out where the peer's log ends now."""
        peer = self._peer(peer_id)
        if peer is None or peer.state is not SNAPSHOT:
            return []
        peer.restart()
        if not self._may_reach(peer):
            return []
        self._wake_by(now_ms + RETRANSMIT_MS)
        return [self._probe(peer, now_ms)]

    def level(self) -> int:
        """What every member whose node is up has fsynced; learners that never answered left out."""
        up = [peer for peer in self.peers if peer.up and not peer.leaving_at]
        return min([self.match, *(peer.match for peer in up if peer.votes or peer.match or peer.state is SNAPSHOT)])

    def held_by_learners(self) -> int:
        """What every learner has fsynced."""
        learners = [peer.match for peer in self.peers if peer.is_learner()]
        return min(learners, default=self._log.log_end)

    def peer_up(self, peer_id: int, now_ms: int) -> list[Effect]:
        peer = self._peer(peer_id)
        if peer is None:
            return []
        peer.up = True
        return self.announce(peer_id, now_ms)

    def peer_down(self, peer_id: int) -> None:
        """The peer's node went down: when it is up again, it may be with another disk."""
        peer = self._peer(peer_id)
        if peer is None:
            return
        peer.up = False
        peer.restart()
        peer.match = 0
        if peer.leaving_at:
            self._let_go([peer])

    def announce(self, peer_id: int, now_ms: int) -> list[Effect]:
        """The peer's node came up, or the peer asks for votes: it does not know, or forgot, who leads."""
        peer = self._peer(peer_id)
        if peer is None:
            return []
        peer.restart()
        if peer.reading:
            return []
        self._wake_by(now_ms + RETRANSMIT_MS)
        return [self._probe(peer, now_ms)]

    # --- the configuration ----------------------------------------------------------------------------------

    def has_own_commit(self) -> bool:
        """Is an entry of the own epoch committed? Before that no change may begin (R15, the bug of 2015)."""
        return self.serving

    def promotion_error(self, change: Change) -> ConfigChangeError | None:
        """Why the learner that `change` promotes is not fit to be counted; None for the other changes."""
        if not isinstance(change, Promote):
            return None
        peer = self._fed(change.node_id)
        if peer.suspect:
            return ConfigChangeError.SUSPECT
        # Beyond the entry that made it a learner: see "blank replicas" in `membership.py`.
        added_at = self._machine.members.end_offset
        if not peer.up or peer.match < max(added_at, self._log.log_end - PROMOTION_LAG_RECORDS_MAX):
            return ConfigChangeError.NOT_CAUGHT_UP
        return None

    def reconfigured(self, now_ms: int) -> None:
        """An own entry with another configuration was staged: it is in force. The driver says `proposed` next."""
        self._take_members()
        self.quorum_changed(now_ms)

    def _take_members(self) -> None:
        machine = self._machine
        members = machine.members
        configuration = members.configuration
        fed = {peer.node_id: peer for peer in self.peers}
        for node_id in configuration.members:
            if node_id == machine.node_id:
                continue
            peer = fed.get(node_id)
            if peer is None or peer.leaving_at:
                # Also one that comes back: it starts from scratch.
                peer = fed[node_id] = Progress(node_id, node_id in machine.alive, True, self._log.log_end)
            peer.votes = node_id in configuration.voters
        for peer in fed.values():
            if peer.node_id not in configuration.members and not peer.leaving_at:
                peer.votes = False
                peer.leaving_at = members.end_offset
        self._quorum = members.quorum
        self.peers = tuple(fed.values())
        self._let_go([peer for peer in self.peers if peer.leaving_at and not peer.up])

    def _let_go(self, gone: list[Progress]) -> None:
        self.peers = tuple(peer for peer in self.peers if peer not in gone)
        counted = self._counted()
        self._counting = self.peers if counted == self.peers else counted

    def _counted(self) -> tuple[Progress, ...]:
        """Those whose matches count for a commit (R6): voters of the latest configuration in the log."""
        return tuple(peer for peer in self.peers if peer.votes)

    def _settle(self, now_ms: int) -> list[Effect]:
        """The configuration in force is committed. Hand over, if this leader is not in it."""
        machine = self._machine
        machine.members = members = machine.members.when_settled()
        effects: list[Effect] = [ConfigurationCommitted(members.configuration)]
        if members.is_voter:
            return effects
        successors = [peer for peer in self._counting if peer.up]
        if successors:
            return effects + self.transfer(max(successors, key=lambda peer: peer.match).node_id, now_ms)
        self._wake_by(now_ms)
        return effects

    def is_abandoned(self, now_ms: int) -> bool:
        """Is this leader no member any more, and nobody took over?"""
        members = self._machine.members
        if members.is_voter or not members.settled:
            return False
        return not self.transferee or self._transfer_until_ms <= now_ms

    # --- handing over ---------------------------------------------------------------------------------------

    def transfer(self, target: int, now_ms: int) -> list[Effect]:
        """Hand leadership to `target`; without effect where that cannot be begun now."""
        peer = self._peer(target)
        if peer is None or not peer.votes or self.transferee or not self.serving or not peer.up:
            return []
        self.transferee = target
        self._transfer_told = False
        self._transfer_until_ms = now_ms + ELECTION_TIMEOUT_MS
        self._wake_by(self._transfer_until_ms)
        return self._hand_over()

    def _hand_over(self) -> list[Effect]:
        """Tell the target, once, as soon as it holds everything and nobody waits for a commit any more."""
        machine = self._machine
        log_end = self._log.log_end
        peer = self._fed(self.transferee)
        if self._transfer_told or machine.commit < log_end or peer.match < log_end:
            return []
        self._transfer_told = True
        return [Send(self.transferee, TimeoutNow(machine.partition, machine.epoch), False)]

    def hand_over_failed(self, now_ms: int) -> bool:
        """Was the successor told to stand, and did not take over in time?"""
        return self._transfer_told and self._transfer_until_ms <= now_ms

    # --- the lease ------------------------------------------------------------------------------------------

    def lease_until_ms(self, until_ms: Callable[[int, int], int]) -> int:
        """See the module. NO_END where nobody else has a vote."""
        if self.transferee:
            return 0
        needed = self._quorum - self._machine.members.is_voter
        if not needed:
            return NO_END
        untils = sorted(until_ms(peer.node_id, peer.round) for peer in self._counting)
        return untils[-needed] if needed <= len(untils) else 0

    def confirm(self, now_ms: int) -> list[Effect]:
        """Ask those who count and owe no answer; what is on its way to the others brings one, too."""
        asked = [peer for peer in self._counting if not peer.waiting and self._may_reach(peer)]
        if asked:
            self._wake_by(now_ms + RETRANSMIT_MS)
        return [self._send(peer, now_ms) for peer in asked]

    # --- time -----------------------------------------------------------------------------------------------

    def quorum_changed(self, now_ms: int) -> None:
        """Nodes came up or went down."""
        if self._machine.quorum_up():
            self.quorum_until_ms = 0
        elif not self.quorum_until_ms:
            self.quorum_until_ms = now_ms + QUORUM_LOST_MS
            self._wake_by(self.quorum_until_ms)

    def quorum_lost(self, now_ms: int) -> bool:
        return 0 < self.quorum_until_ms <= now_ms

    def tick(self, now_ms: int) -> list[Effect]:
        """Send what is due, and work out the next deadline."""
        machine = self._machine
        effects: list[Effect] = []
        leaving = [peer for peer in self.peers if peer.leaving_at and self._has_left(peer, now_ms)]
        if leaving:
            self._let_go(leaving)
        deadlines = [self.quorum_until_ms] if self.quorum_until_ms else []
        if self.transferee:
            if self._transfer_until_ms <= now_ms:
                effects.append(TransferEnded(self.transferee))
                self.transferee = 0
            else:
                deadlines.append(self._transfer_until_ms)
        for peer in self.peers:
            if not peer.up:
                continue
            due_ms = self._due_ms(peer, now_ms)
            if due_ms and due_ms <= now_ms:
                if peer.waiting and peer.last_sent_ms + RETRANSMIT_MS <= now_ms:
                    peer.restart()
                    effects.append(self._probe(peer, now_ms))
                else:
                    effects.append(self._send(peer, now_ms))
                due_ms = now_ms + RETRANSMIT_MS
            if due_ms:
                deadlines.append(due_ms)
        machine.timer_ms = min(deadlines, default=0)
        return effects

    def _has_left(self, peer: Progress, now_ms: int) -> bool:
        """Removed, committed, and told so, or silent: it may be gone for good."""
        if not self._machine.members.settled:
            return False
        silent = peer.waiting and peer.last_sent_ms + RETRANSMIT_MS <= now_ms
        return silent or peer.state is SNAPSHOT or peer.commit_sent >= peer.leaving_at

    def _due_ms(self, peer: Progress, now_ms: int) -> int:
        """When to send this follower something, if nothing else happens; 0 = it holds and knows everything."""
        if peer.state is SNAPSHOT:
            return 0
        if peer.reading:
            return now_ms + RETRANSMIT_MS
        if peer.waiting:
            return peer.last_sent_ms + RETRANSMIT_MS
        if peer.commit_sent < self._machine.commit:
            return peer.last_sent_ms + COMMIT_NOTICE_MS
        return now_ms if peer.next < self._log.log_end else 0

    def _wake_by(self, deadline_ms: int) -> None:
        machine = self._machine
        if not machine.timer_ms or machine.timer_ms > deadline_ms:
            machine.timer_ms = deadline_ms

    # --- plain work -----------------------------------------------------------------------------------------

    def _peer(self, node_id: int) -> Progress | None:
        for peer in self.peers:
            if peer.node_id == node_id:
                return peer
        return None

    def _fed(self, node_id: int) -> Progress:
        peer = self._peer(node_id)
        assert peer is not None, "a member that is not fed"
        return peer

    def _may_reach(self, peer: Progress) -> bool:
        return peer.up and peer.may_send()

    def _probe(self, peer: Progress, now_ms: int) -> SendEntries | SendSnapshot:
        """Ask where the logs meet before anything large is sent: the follower may have what `next` does not know of."""
        if peer.next < self._log.whole_from:
            peer.next = self._log.log_end
        return self._send(peer, now_ms)

    def _send(self, peer: Progress, now_ms: int) -> SendEntries | SendSnapshot:
        machine = self._machine
        next_offset = peer.next
        if next_offset < self._log.whole_from:
            peer.become_snapshot()
            return SendSnapshot(peer.node_id, machine.epoch, peer.is_learner())
        peer.reading = True
        peer.asked = next_offset
        peer.waiting = True
        peer.last_sent_ms = now_ms
        prev_epoch = machine.epoch if next_offset > self.own_from else self._log.epoch_at(next_offset)
        return SendEntries(
            peer.node_id, next_offset, prev_epoch, machine.commit, machine.epoch, machine.replicated,
            not peer.votes and peer.is_learner(),
        )  # fmt: skip

    def _advance(self, offset: int, now_ms: int) -> list[Effect]:
        """A voter's durable position rose to `offset`: what is committed by that, and held by all?"""
        machine = self._machine
        matches = self._durable_positions()
        if matches[0] > machine.replicated:
            machine.replicated = matches[0]
        if offset <= machine.commit:
            return []
        committed = matches[len(matches) - self._quorum]
        if committed <= machine.commit or not self._is_own(committed):
            return []
        machine.commit = committed
        effects: list[Effect] = [Committed(committed)]
        if not self.serving:
            self.serving = True
            effects.append(BecameLeader())
            if machine.suspect:
                machine.suspect = False
                effects.append(Trusted())
        if self.peers:
            self._wake_by(now_ms + COMMIT_NOTICE_MS)
        members = machine.members
        return effects if members.settled or committed < members.end_offset else effects + self._settle(now_ms)

    def _durable_positions(self) -> list[int]:
        """What each voter has fsynced, lowest first (R5)."""
        matches = [peer.match for peer in self._counting]
        if self._machine.members.is_voter:
            matches.append(self.match)
        matches.sort()
        return matches

    def _is_own(self, offset: int) -> bool:
        """Is the entry that ends at `offset` of the own epoch (R6, figure 8 of the Raft paper)?"""
        return offset > self.own_from
