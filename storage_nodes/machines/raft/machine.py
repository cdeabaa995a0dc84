"""Raft for one partition: elections, replication and commit, as a pure machine (rules R1, R5-R17 of the protocol).

It holds no entries (the log does), reads no clock and draws no random number by itself. A driver feeds it inputs
and performs the effects they return, in order, before the next input (`effects.py`). `transitions.py` has the table
of roles and inputs, `leadership.py` what a leader does, `following.py` how a follower matches logs.

**Elections.** A replica without a leader asks for *pre-votes*, which change nothing anywhere; with a majority of
them it raises the epoch, votes for itself (durably, before anyone hears of it, R1) and asks for votes. Both are
refused to a less complete log, and while a live leader is known (R10), unless that leader itself hands over. The
winner appends an epoch-start entry and serves once that is committed (R13).

**Liveness of a leader is the liveness of its node**: heartbeats are per pair of nodes and say nothing about groups,
so an idle group costs nothing: a follower whose leader's node is up has no timer at all. That a replica never waits
for ever for a leader that is none rests on three rules.

  1. *Whoever has no leader campaigns.* A replica that is neither leader nor follows one keeps a timer, and asks for
     pre-votes again and again (rarely while a majority of nodes is down: it could not win). A leader that steps
     down, for whatever reason, becomes such a replica; so does one that starts, and one whose leader's node goes
     down.
  2. *Who asks does not lead.* A request for an epoch above the receiver's, from the node the receiver takes for its
     leader, proves that this node does not lead the receiver's epoch: the receiver forgets its leader, and rule 1
     holds for it too. A node restart is announced by the driver as peer_down followed by peer_up, with the same
     effect.
  3. *Who leads insists.* A leader sends to every peer whose node is up until that peer has answered, again after
     every peer_up, and at once to a peer that asks it for votes.

Suppose F follows L, and L's node is up for F. If L leads F's epoch, then all is well: by rule 3, F gets whatever
there is to get, however many messages are lost. If L does not, it either has no leader, and then by rules 1 and 2 F
hears of it; or follows N in a higher epoch. Then either N leads, and by rule 3 N's append reaches F (or N's node is
down for F alone, and does so when it is up again), or the same argument holds for L and N, with a higher epoch. If
N's node goes down, L has no leader: the first case. Epochs are finitely many, so the chain ends. A replica that is
ahead in epoch of a working leader (it was a candidate while cut off) cannot be led by it; it asks for pre-votes,
the leader answers by rule 3, is refused with the higher epoch, steps down, and campaigns. A hand-over changes none
of this: its target becomes a candidate, which keeps a timer, and whoever voted for it has no leader, and keeps one.

**Suspect replicas** (R12): one whose disk may have lost what it acknowledged, or votes it gave: its directory was empty
when it should not have been, or a checksum failed. Its votes are marked, and a candidate, suspect or not, wins with a
majority of unmarked votes, or with the votes of *all* voters (R12b: then the most complete log of all there are wins;
a new cluster, where everybody's directory is empty, starts this way). Its acknowledgements count, being of its present
disk. It is trusted again once it holds, in an epoch that a leader serves, everything committed: what it lost that had
counted is among that. Left open: a vote that was given before the loss, in an epoch above the one it is trusted again
in, to a candidate that a majority without it knows nothing of (five voters or more).

**What the driver owes**: peer_up for every voter whose node is up right after construction, and on each change; for
a new incarnation of a node peer_down, peer_up, and no message of the old incarnation after that; `sent` after each
SendEntries; `tick` no earlier than next_tick_ms() says, and soon after. Any message may be lost, repeated, late or
out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage_nodes.limits import ELECTION_JITTER_MS
from storage_nodes.machines.raft.effects import (
    Append,
    Committed,
    Effect,
    EntryHeader,
    EpochStart,
    LogPositions,
    Loss,
    PeerStatus,
    RaftStatus,
    Role,
    SafetyViolation,
    SaveVote,
    Send,
    SendEntries,
    SteppedDown,
    TakeSnapshot,
    Truncate,
    Trusted,
)
from storage_nodes.machines.raft.following import agrees, judge
from storage_nodes.machines.raft.leadership import Leadership
from storage_nodes.machines.raft.reasons import named, reason_lost, reason_of
from storage_nodes.machines.raft.timing import BACKOFF_DOUBLINGS_MAX, ELECTION_TIMEOUT_MS
from storage_nodes.protocol.messages import (
    AppendEntries,
    AppendReply,
    RaftMessage,
    SnapshotChunk,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

# The value of the timer before the machine has been told the time: the first tick sets it.
UNARMED = 1


class RaftMachine:
    """See the module. Attributes are for reading; only inputs change them."""

    __slots__ = (
        "_attempts", "_doubtful", "_installing", "_lead", "_own_bit", "_random_ms", "_votes", "commit", "elected_by",
        "epoch", "leader", "leader_since_ms", "log", "loss", "lost_leader", "lost_ms", "node_id", "partition", "quorum",
        "replicated", "role", "suspect", "timer_ms", "up", "voted_for", "voters",
    )  # fmt: skip

    def __init__(
        self,
        partition: int,
        node_id: int,
        voters: tuple[int, ...],
        log: LogPositions,
        epoch: int,
        voted_for: int,
        commit: int,
        random_ms: Callable[[int], int],
        suspect: bool = False,
    ) -> None:
        assert node_id in voters and len(set(voters)) == len(voters), "a replica is one of the voters, each named once"
        assert commit <= log.log_end and log.last_epoch <= epoch, "hard state older than the log it governs"
        self.partition = partition
        self.node_id = node_id
        self.voters = voters
        self.quorum = len(voters) // 2 + 1
        self.log = log
        self.role = Role.FOLLOWER
        self.epoch = epoch
        # Who has this replica's vote in `epoch`; 0 = nobody.
        self.voted_for = voted_for
        # Who leads `epoch`, 0 = not known. Unless that node is down, there is no timer.
        self.leader = 0
        self.leader_since_ms = 0
        # Why there was no leader before this one (or is none now), whom that cost, and since when; and, where this
        # replica leads, who voted for it. `reasons.py` puts it into words.
        self.loss = Loss.STARTED
        self.lost_leader = 0
        self.lost_ms = 0
        self.elected_by: tuple[int, ...] = ()
        # Never falls, and never beyond what a majority has fsynced.
        self.commit = commit
        # Every voter has fsynced its log up to here; known to be true, not known to be all.
        self.replicated = 0
        # Bit i: the node of voters[i] is up. The own one always is.
        self._own_bit = 1 << voters.index(node_id)
        self.up = self._own_bit
        self.timer_ms = UNARMED
        self._random_ms = random_ms
        # Campaigns since a leader was last known, and who voted for this replica in the present one (as in `up`).
        self._attempts = 0
        self._votes = 0
        # Those of them that are suspect, and whether this replica is.
        self._doubtful = 0
        self.suspect = suspect
        self._lead: Leadership | None = None
        # A snapshot is taking the place of the log: nothing is appended, and nobody stands for election, until it has.
        self._installing = False

    # --- inputs: the own node -------------------------------------------------------------------------------

    def proposed(self, end_offset: int, now_ms: int) -> list[Effect]:
        """Leader: own entries up to end_offset were staged to the log."""
        lead = self._lead
        assert lead is not None, "only a leader proposes"
        assert not lead.transferee, "a leader that hands over does not propose"
        assert end_offset == self.log.log_end, "what is proposed ends where the log ends"
        return lead.proposed(now_ms)

    def durable(self, end_offset: int, now_ms: int) -> list[Effect]:
        """The own fsync reached end_offset. Followers answer for theirs with Send(after_sync)."""
        lead = self._lead
        return [] if lead is None else lead.durable(min(end_offset, self.log.log_end), now_ms)

    def sent(self, peer: int, end_offset: int, size_bytes: int) -> list[Effect]:
        """A SendEntries was performed: batches up to end_offset left (prev_offset: none did)."""
        lead = self._lead
        return [] if lead is None else lead.sent(peer, end_offset, size_bytes)

    def is_current(self, effect: SendEntries) -> bool:
        """May a SendEntries that waited for a disk read still be performed?"""
        return self._lead is not None and effect.epoch == self.epoch

    def campaign(self, now_ms: int) -> list[Effect]:
        """Stand for election now, not when the timer ends; without effect where there is a leader already."""
        may_stand = self.role is Role.FOLLOWER and not self._installing and not self._has_live_leader()
        return self._ask_pre_votes(now_ms) if may_stand else []

    def transfer(self, target: int, now_ms: int) -> list[Effect]:
        """Leader: hand over to voter `target`. From here on, nothing is proposed until TransferEnded: `transferee`
        says whether it was begun. Without effect where it cannot be: not serving, not up, under way already."""
        lead = self._lead
        return [] if lead is None else lead.transfer(target, now_ms)

    @property
    def transferee(self) -> int:
        """To whom this leader is handing over; 0 = to nobody."""
        return 0 if self._lead is None else self._lead.transferee

    def snapshot_ended(self, peer: int, now_ms: int) -> list[Effect]:
        """Leader: a SendSnapshot is over: installed, given up, or refused."""
        lead = self._lead
        return [] if lead is None else lead.snapshot_ended(peer, now_ms)

    def installing(self) -> None:
        """Follower: all of a snapshot is here; from now until `installed` the log is being replaced."""
        assert self._lead is None, "a leader's log is never replaced"
        self._installing = True

    def installed(self, end_offset: int, now_ms: int) -> list[Effect]:
        """The snapshot is the log now, durably, and folded: both end at end_offset, or the log goes on from there."""
        assert self._installing and end_offset == self.log.log_end
        self._installing = False
        assert end_offset > self.commit, "a snapshot never replaces newer committed state (R18)"
        self.commit = end_offset
        if not self.leader:
            return []
        return [Send(self.leader, AppendReply(self.partition, self.epoch, True, end_offset, 0, self.commit), True)]

    def level(self) -> int:
        """Up to where dead entries may go when they are no longer kept for voters that are away."""
        return self.commit if self._lead is None else self._lead.level()

    def next_tick_ms(self) -> int:
        """When to call `tick`; 0 = no need."""
        return self.timer_ms

    def tick(self, now_ms: int) -> list[Effect]:
        if not self.timer_ms or now_ms < self.timer_ms:
            return []
        lead = self._lead
        if lead is not None:
            if lead.quorum_lost(now_ms):
                return self._step_down(now_ms, Loss.NO_QUORUM)
            return lead.tick(now_ms)
        if self.timer_ms == UNARMED and self.quorum > 1:
            self.timer_ms = now_ms + ELECTION_TIMEOUT_MS + self._random_ms(ELECTION_JITTER_MS)
            return []
        if self._installing:
            self.timer_ms = now_ms + self._retry_ms()
            return []
        return self._ask_pre_votes(now_ms)

    # --- inputs: other nodes --------------------------------------------------------------------------------

    def peer_up(self, peer: int, now_ms: int) -> list[Effect]:
        """The peer's node is up, or up again as another incarnation (after peer_down)."""
        if peer not in self.voters:
            return []
        bit = self.bit(peer)
        if self.up & bit:
            return []
        had_quorum = self.quorum_up()
        self.up |= bit
        lead = self._lead
        if lead is not None:
            lead.quorum_changed(now_ms)
            return lead.announce(peer, now_ms)
        if self.leader == peer:
            self.timer_ms = 0
        elif not had_quorum and self.quorum_up() and self._attempts:
            # Campaigns had become rare because none could be won.
            self._attempts = 0
            self.timer_ms = now_ms + self._random_ms(ELECTION_JITTER_MS)
        return []

    def peer_down(self, peer: int, now_ms: int) -> list[Effect]:
        """The peer's node went silent, or was replaced by another incarnation."""
        if peer not in self.voters or peer == self.node_id:
            return []
        self.up &= ~self.bit(peer)
        lead = self._lead
        if lead is not None:
            lead.quorum_changed(now_ms)
            lead.forget_match(peer)
        elif self.leader == peer:
            self._forget_leader(now_ms, Loss.NODE_DOWN)
        return []

    def step(self, sender: int, message: RaftMessage, now_ms: int, headers: Sequence[EntryHeader] = ()) -> list[Effect]:
        """A message of this partition arrived. `headers` are those of message.entries, one each.

        Raises SafetyViolation.
        """
        assert message.partition == self.partition, "message of another partition"
        if sender not in self.voters or sender == self.node_id:
            return []  # R14: nobody else has a say in this group
        if type(message) is AppendEntries:
            return self._on_append(sender, message, now_ms, headers)
        if type(message) is AppendReply:
            return self._on_append_reply(sender, message, now_ms)
        if type(message) is VoteRequest:
            return self._on_vote_request(sender, message, now_ms)
        if type(message) is VoteReply:
            return self._on_vote_reply(sender, message, now_ms)
        if type(message) is SnapshotChunk:
            return self._on_snapshot(sender, message, now_ms)
        assert type(message) is TimeoutNow
        return self._on_timeout_now(sender, message, now_ms)

    def status(self) -> RaftStatus:
        lead = self._lead
        log_end = self.log.log_end
        peers = [
            PeerStatus(peer.node_id, bool(self.up & peer.bit), peer.match, log_end - peer.match)
            for peer in (lead.peers if lead is not None else ())
        ]
        return RaftStatus(
            self.role, self.epoch, self.leader, self.leader_since_ms, reason_of(self), self.commit,
            self.replicated, log_end, peers,
        )  # fmt: skip

    def quorum_up(self) -> bool:
        return self.up.bit_count() >= self.quorum

    # --- following ------------------------------------------------------------------------------------------

    def _on_append(
        self, sender: int, message: AppendEntries, now_ms: int, headers: Sequence[EntryHeader]
    ) -> list[Effect]:
        assert len(headers) == len(message.entries), "one header for each entry"
        effects: list[Effect] = []
        if message.epoch != self.epoch or self.leader != sender:
            if message.epoch < self.epoch:
                # The answer deposes a leader that does not know of this epoch yet.
                return [Send(sender, AppendReply(self.partition, self.epoch, False, 0), True)]
            effects = self._follow(sender, message.epoch, now_ms)
        if self._installing:
            return effects  # the leader asks again
        verdict = judge(self.log, self.commit, message, headers)
        if not verdict.ok:
            reply = AppendReply(self.partition, self.epoch, False, verdict.end, verdict.conflict_epoch, 0, self.suspect)
            effects.append(Send(sender, reply, True))
            return effects
        if verdict.cut >= 0:
            effects.append(Truncate(verdict.cut))
        if verdict.last > verdict.first:
            entries = message.entries
            whole = verdict.last - verdict.first == len(entries)
            effects.append(Append(entries if whole else entries[verdict.first : verdict.last]))
        end = verdict.end
        committed = message.commit if message.commit < end else end
        is_news = committed > self.commit
        if is_news:
            self.commit = committed
        # In this order: whoever stages the answer has staged what it promises.
        effects.append(Send(sender, AppendReply(self.partition, self.epoch, True, end, 0, self.commit), True))
        if message.replicated > self.replicated:
            self.replicated = min(message.replicated, end)
        if is_news:
            effects.append(Committed(committed))
        if self.suspect and message.commit <= end and self._serves(message, headers):
            self.suspect = False
            effects.append(Trusted())
        return effects

    def _serves(self, message: AppendEntries, headers: Sequence[EntryHeader]) -> bool:
        """Has the leader committed an entry of its own epoch? Of what this append brings, or of what was here."""
        for header in headers:
            if header.base_offset < message.commit <= header.end_offset:
                return header.epoch == message.epoch
        return 0 < message.commit <= message.prev_offset and self.log.epoch_at(message.commit) == message.epoch

    def _on_snapshot(self, sender: int, chunk: SnapshotChunk, now_ms: int) -> list[Effect]:
        """Fenced like an append (R14), and refused where the log holds what it brings (R18). Raises SafetyViolation."""
        effects: list[Effect] = []
        if chunk.epoch != self.epoch or self.leader != sender:
            if chunk.epoch < self.epoch:
                return [Send(sender, AppendReply(self.partition, self.epoch, False, 0), True)]
            effects = self._follow(sender, chunk.epoch, now_ms)
        end = chunk.end_offset
        if self._installing:
            return effects
        if end <= self.log.log_end and agrees(self.log, self.commit, end, chunk.last_epoch):
            effects.append(Send(sender, AppendReply(self.partition, self.epoch, True, end, 0, self.commit), True))
            return effects
        if end <= self.commit:
            raise SafetyViolation(f"a snapshot up to {end} does not match what is committed up to {self.commit}")
        effects.append(TakeSnapshot(sender, chunk))
        return effects

    def _follow(self, leader: int, epoch: int, now_ms: int) -> list[Effect]:
        """`leader` leads `epoch`, which is at least the own one. Raises SafetyViolation."""
        effects: list[Effect] = []
        if epoch > self.epoch:
            effects = self._adopt(epoch, now_ms, leader, Loss.OUTVOTED)
        elif self.role is Role.LEADER or self.leader:
            raise SafetyViolation(f"nodes {self.leader} and {leader} both lead epoch {epoch}")
        self.role = Role.FOLLOWER
        self.leader = leader
        self.leader_since_ms = now_ms
        self.elected_by = ()
        self._attempts = 0
        if self.up & self.bit(leader):
            self.timer_ms = 0
        elif self.timer_ms <= UNARMED:
            self.timer_ms = now_ms + ELECTION_TIMEOUT_MS + self._random_ms(ELECTION_JITTER_MS)
        return effects

    # --- leading --------------------------------------------------------------------------------------------

    def _on_append_reply(self, sender: int, message: AppendReply, now_ms: int) -> list[Effect]:
        if message.epoch == self.epoch:
            lead = self._lead
            return [] if lead is None else lead.replied(sender, message, now_ms)
        if message.epoch > self.epoch:
            return self._adopt(message.epoch, now_ms, 0, Loss.OUTVOTED)
        return []

    def _win(self, now_ms: int) -> list[Effect]:
        self.role = Role.LEADER
        self.leader = self.node_id
        self.leader_since_ms = now_ms
        self.elected_by = named(self.voters, self._votes)
        self._attempts = 0
        self._lead = Leadership(self, now_ms)
        return [EpochStart(self.epoch)]

    def _step_down(self, now_ms: int, loss: Loss, leader: int = 0) -> list[Effect]:
        """Stop leading. Followers hear of it through the campaign that follows (rules 1 and 2 of the module)."""
        self._lead = None
        self.role = Role.FOLLOWER
        self._forget_leader(now_ms, loss)
        return [SteppedDown(leader, reason_lost(loss, self.node_id))]

    # --- elections ------------------------------------------------------------------------------------------

    def _on_vote_request(self, sender: int, message: VoteRequest, now_ms: int) -> list[Effect]:
        if sender == self.leader and message.epoch > self.epoch:
            self._forget_leader(now_ms, Loss.GAVE_UP)
        by_leader = message.transfer and message.epoch > self.epoch
        if self._has_live_leader() and not by_leader:
            refusal = VoteReply(self.partition, self.epoch, False, message.pre_vote)
            effects: list[Effect] = [Send(sender, refusal, not message.pre_vote)]
            if self._lead is not None and self.up & self.bit(sender):
                effects += self._lead.announce(sender, now_ms)
            return effects
        if message.pre_vote:
            granted = message.epoch > self.epoch and self._is_complete(message)
            reply = VoteReply(
                self.partition, message.epoch if granted else self.epoch, granted, True, self.suspect
            )
            return [Send(sender, reply, False)]
        effects = []
        if message.epoch > self.epoch:
            loss = Loss.HANDED_OVER if message.transfer else Loss.OUTVOTED
            effects = self._adopt(message.epoch, now_ms, 0, loss)
        granted = message.epoch == self.epoch and self.voted_for in (0, sender) and self._is_complete(message)
        if granted and not self.voted_for:
            self.voted_for = sender
            effects.append(SaveVote(self.epoch, sender))
            self.timer_ms = now_ms + self._retry_ms()
        effects.append(Send(sender, VoteReply(self.partition, self.epoch, granted, False, self.suspect), True))
        return effects

    def _on_timeout_now(self, sender: int, message: TimeoutNow, now_ms: int) -> list[Effect]:
        """The leader hands over to this replica. Fenced: a late one, of an older epoch, changes nothing (R14)."""
        if message.epoch != self.epoch or sender != self.leader or self._installing:
            return []
        self._lost(now_ms, Loss.HANDED_OVER)
        return self._ask_votes(now_ms, transfer=True)

    def _on_vote_reply(self, sender: int, message: VoteReply, now_ms: int) -> list[Effect]:
        if not message.granted:
            if message.epoch > self.epoch:
                return self._adopt(message.epoch, now_ms, 0, Loss.OUTVOTED)
            return []
        if message.pre_vote:
            if self.role is not Role.PRE_CANDIDATE or message.epoch != self.epoch + 1:
                return []
        elif self.role is not Role.CANDIDATE or message.epoch != self.epoch:
            return []
        self._votes |= self.bit(sender)
        if message.suspect:
            self._doubtful |= self.bit(sender)
        if (self._votes & ~self._doubtful).bit_count() < self.quorum and self._votes.bit_count() < len(self.voters):
            return []
        return self._ask_votes(now_ms) if message.pre_vote else self._win(now_ms)

    def _ask_pre_votes(self, now_ms: int) -> list[Effect]:
        """No leader is known: ask whether an election could be won, and again later if there is no answer."""
        if self.leader:
            self._lost(now_ms, Loss.NODE_DOWN)
        self.timer_ms = now_ms + self._retry_ms()
        self._attempts += 1
        self._votes = self._own_bit
        self._doubtful = self._own_bit if self.suspect else 0
        if self.quorum == 1:
            return self._ask_votes(now_ms)
        self.role = Role.PRE_CANDIDATE
        return self._request_all(self.epoch + 1, True)

    def _ask_votes(self, now_ms: int, transfer: bool = False) -> list[Effect]:
        self.role = Role.CANDIDATE
        self.epoch += 1
        self.voted_for = self.node_id
        self._votes = self._own_bit
        self._doubtful = self._own_bit if self.suspect else 0
        self.timer_ms = now_ms + self._retry_ms()
        effects: list[Effect] = [SaveVote(self.epoch, self.node_id)]
        return effects + (
            self._win(now_ms) if self.quorum == 1 else self._request_all(self.epoch, False, transfer)
        )

    def _request_all(self, epoch: int, pre_vote: bool, transfer: bool = False) -> list[Effect]:
        """A request for votes leaves after the own vote was fsynced: else a replica could vote twice (R1)."""
        log = self.log
        request = VoteRequest(self.partition, epoch, log.last_epoch, log.log_end, pre_vote, transfer)
        return [Send(voter, request, not pre_vote) for voter in self.voters if voter != self.node_id]

    def _is_complete(self, request: VoteRequest) -> bool:
        """Does the asker's log hold at least what the own one does (R10)?"""
        log = self.log
        return (request.last_epoch, request.log_end) >= (log.last_epoch, log.log_end)

    # --- plain work -----------------------------------------------------------------------------------------

    def _adopt(self, epoch: int, now_ms: int, leader: int, loss: Loss) -> list[Effect]:
        """Enter a higher epoch as a follower that has not voted in it."""
        self.epoch = epoch
        self.voted_for = 0
        effects: list[Effect] = [SaveVote(epoch, 0)]
        if self._lead is not None:
            return effects + self._step_down(now_ms, loss, leader)
        self.role = Role.FOLLOWER
        if self.leader:
            self._forget_leader(now_ms, loss)
        return effects

    def _lost(self, now_ms: int, loss: Loss) -> None:
        self.lost_leader = self.leader
        self.lost_ms = now_ms
        self.loss = loss
        self.leader = 0
        self.leader_since_ms = now_ms
        self.elected_by = ()

    def _forget_leader(self, now_ms: int, loss: Loss) -> None:
        """There is no leader any more: campaign soon, at a random time so that not all do at once."""
        self._lost(now_ms, loss)
        self._attempts = 0
        if self.quorum_up():
            self.timer_ms = now_ms + self._random_ms(ELECTION_JITTER_MS)
        else:
            self.timer_ms = now_ms + self._retry_ms()
            self._attempts = 1

    def _has_live_leader(self) -> bool:
        return bool(self.leader) and bool(self.up & self.bit(self.leader))

    def _retry_ms(self) -> int:
        doublings = min(self._attempts, BACKOFF_DOUBLINGS_MAX) if self.quorum_up() else BACKOFF_DOUBLINGS_MAX
        span_ms = ELECTION_JITTER_MS << doublings
        return span_ms + self._random_ms(span_ms)

    def bit(self, voter: int) -> int:
        return 1 << self.voters.index(voter)
