"""Raft for one partition: elections, replication and commit, as a pure machine (rules R1, R5-R17 of the protocol).

It holds no entries (the log does), reads no clock and draws no random number by itself. A driver feeds it inputs
and performs the effects they return, in order, before the next input (`effects.py`). `transitions.py` has the table
of roles and inputs, `leadership.py` what a leader does, `following.py` how a follower matches logs, `membership.py`
who belongs to the group and who has a say. The theory of elections, and why a group never stays without a leader, is
in the package's docstring.

**What the driver owes**: peer_up for every other node that is up right after construction, and on each change; for
a new incarnation of a node peer_down, peer_up, and no message of the old incarnation after that; `configured` whenever
the log's configurations changed (`history` says which ones the machine knows); `sent` after each SendEntries; `tick` no
earlier than next_tick_ms() says, and soon after. Any message may be lost, repeated, late or out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage_nodes.limits import ELECTION_JITTER_MS
from storage_nodes.machines.raft.effects import (
    Append,
    AppendConfiguration,
    Committed,
    ConfigurationCommitted,
    Effect,
    EntryFacts,
    LogPositions,
    Loss,
    PeerStatus,
    RaftStatus,
    Role,
    SafetyViolation,
    Send,
    SendEntries,
    TakeSnapshot,
    Truncate,
    Trusted,
)
from storage_nodes.machines.raft.elections import UNARMED, Elections
from storage_nodes.machines.raft.following import agrees, match_append
from storage_nodes.machines.raft.leadership import Leadership
from storage_nodes.machines.raft.membership import (
    Change,
    ConfigChangeError,
    Membership,
    changed,
    config_change_error,
    node_set,
)
from storage_nodes.machines.raft.reasons import reason_of
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.peer_messages import (
    AppendEntries,
    AppendReply,
    RaftMessage,
    SnapshotChunk,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)


class RaftMachine(Elections):
    """See the module. Attributes are for reading; only inputs change them."""

    __slots__ = ()

    def __init__(
        self,
        partition: int,
        node_id: int,
        boot: Configuration,
        log: LogPositions,
        epoch: int,
        voted_for: int,
        commit: int,
        random_ms: Callable[[int], int],
        suspect: bool = False,
    ) -> None:
        assert node_id in boot.members, "a replica is created as a voter or a learner"
        assert len(set(boot.members)) == len(boot.members), "a configuration names each member once"
        assert commit <= log.log_end and log.last_epoch <= epoch, "hard state older than the log it governs"
        self.partition = partition
        self.node_id = node_id
        self.members = Membership.of(node_id, boot, log.configurations, commit)
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
        # The vote is nobody else's before this time (`promised`).
        self.promised_to = 0
        self.promised_until_ms = 0
        # Never falls, and never beyond what a majority has fsynced.
        self.commit = commit
        # Every voter has fsynced its log up to here; known to be true, not known to be all.
        self.replicated = 0
        # Nodes that are up, members or not; the own one always is.
        self.alive = node_set((node_id,))
        self.timer_ms = UNARMED if self.members.can_campaign() else 0
        self._random_ms = random_ms
        # Campaigns since a leader was last known, turns to campaign that this replica passed before them because its
        # node is not fit to lead, and who voted for it in the present campaign.
        self._attempts = 0
        self._turns_passed = 0
        self._votes: tuple[int, ...] = ()
        # Those of them that are suspect, and whether this replica is.
        self._suspect_votes: tuple[int, ...] = ()
        self.suspect = suspect
        # It may have forgotten that it voted in an epoch above that of whoever speaks to it first.
        self._may_have_lost_vote = suspect
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
        can_campaign = self.role is Role.FOLLOWER and not self._installing and not self.leader
        can_campaign = can_campaign and now_ms >= self.promised_until_ms
        return self._ask_pre_votes(now_ms) if can_campaign and self.members.can_campaign() else []

    def promised(self, leader: int, until_ms: int, now_ms: int) -> list[Effect]:
        """`leader` may count on this replica's vote until then; 0: some leader may, whom it does not remember."""
        if until_ms <= max(now_ms, self.promised_until_ms):
            return []
        self.promised_to, self.promised_until_ms = leader, until_ms
        if not self.leader and self.timer_ms > UNARMED:
            self.timer_ms += until_ms - now_ms
        return []

    def became_suspect(self, now_ms: int) -> list[Effect]:
        """What this replica acknowledged and voted before it was started may be gone: the node learned that only now.
        It may have forgotten a vote, so it deposes whoever it follows, as a suspect replica does with the first leader
        that speaks to it; and if it leads, it was elected by a vote that counted for too much."""
        self.suspect = self._may_have_lost_vote = True
        if self._lead is not None:
            return self._step_down(now_ms, Loss.GAVE_UP) + self.campaign(now_ms)
        if self.leader and self.members.is_voter:
            return self._want_new_epoch(self.leader, self.epoch, now_ms)
        if self.role is not Role.FOLLOWER:
            self.role = Role.FOLLOWER  # its votes so far say that it is not suspect
            self._arm(now_ms + self._retry_ms())
        return []

    def lease_until_ms(self, until_ms: Callable[[int, int], int]) -> int:
        """Leader: until when nobody else can have been elected. `until_ms(peer, round)`: until when that peer votes for
        nobody else, where `round` is the last one that its answers brought back."""
        lead = self._lead
        return 0 if lead is None else lead.lease_until_ms(until_ms)

    def confirm(self, now_ms: int) -> list[Effect]:
        """Leader without a lease: ask the followers whether they still follow."""
        lead = self._lead
        return [] if lead is None else lead.confirm(now_ms)

    def transfer(self, target: int, now_ms: int) -> list[Effect]:
        """Leader: hand over to voter `target`. From here on, nothing is proposed until TransferEnded: `transferee`
        says whether it was begun. Without effect where it cannot be: not serving, not up, under way already."""
        lead = self._lead
        return [] if lead is None else lead.transfer(target, now_ms)

    @property
    def transferee(self) -> int:
        """To whom this leader is handing over; 0 = to nobody."""
        return 0 if self._lead is None else self._lead.transferee

    # --- inputs: the configuration --------------------------------------------------------------------------

    def was_made_voter(self) -> None:
        """It is known from elsewhere that the change which brought this replica is done. If it knows nothing of that it
        has lost its log: it is no blank learner, but a voter that may lack what it acknowledged (R12)."""
        if self.suspect:
            self.members = self.members.without_log()

    def refusal_of(self, change: Change) -> ConfigChangeError | None:
        """Why `change` cannot be begun now; None where `change_configuration` begins it, or it is so already."""
        lead = self._lead
        if lead is None:
            return ConfigChangeError.NOT_LEADER
        if lead.transferee:
            return ConfigChangeError.HANDING_OVER
        configuration = self.members.configuration
        refusal = config_change_error(configuration, change)
        if refusal is not None or changed(configuration, change) == configuration:
            return refusal
        if not lead.has_own_commit():
            return ConfigChangeError.NOT_SERVING
        if self._change_under_way():
            return ConfigChangeError.CHANGE_UNDER_WAY
        return lead.promotion_error(change)

    def change_configuration(self, change: Change, now_ms: int) -> list[Effect]:
        """Leader: begin `change`, which `refusal_of` does not refuse. Without effect where it is so already."""
        assert self.refusal_of(change) is None, "a refused change is not begun"
        configuration = changed(self.members.configuration, change)
        return [AppendConfiguration(configuration)] if configuration != self.members.configuration else []

    def configured(self, now_ms: int) -> list[Effect]:
        """The configurations in the log changed: an entry was appended or cut off, or a snapshot installed."""
        if self.log.configurations is self.members.history:
            return []
        before = self.members.end_offset, self.members.configuration
        self.members = members = self.members.read(self.log.configurations, self.commit)
        if (members.end_offset, members.configuration) == before:
            return []
        lead = self._lead
        if lead is not None:
            lead.reconfigured(now_ms)
            return []
        self._may_stand_changed(now_ms)
        return [ConfigurationCommitted(members.configuration)] if members.settled and members.end_offset else []

    def _change_under_way(self) -> bool:
        """One at a time (R15): is the latest configuration in the log not committed yet?"""
        return not self.members.settled

    def _settle(self, now_ms: int) -> list[Effect]:
        """Follower: the commit position reached the entry of the configuration in force."""
        self.members = members = self.members.when_settled()
        self._may_stand_changed(now_ms)
        return [ConfigurationCommitted(members.configuration)]

    def _may_stand_changed(self, now_ms: int) -> None:
        """Not leading: the configuration, or what is known of it, is another one."""
        if not self.members.can_campaign():
            self.role = Role.FOLLOWER
            self.timer_ms = 0
        elif self.leader:
            self._watch(now_ms)
        elif not self.timer_ms:
            self.timer_ms = now_ms + self._retry_ms()

    # --- inputs: snapshots and time -------------------------------------------------------------------------

    def on_stall(self, now_ms: int) -> list[Effect]:
        """The process had no turn for longer than its peers wait for it: whatever it led they may have given to others,
        so it leads nothing until it is elected again (R8). One that needs nobody else goes on."""
        if self._lead is None or self.members.is_majority((self.node_id,)):
            return []
        return self._step_down(now_ms, Loss.NO_QUORUM)

    def snapshot_ended(self, peer: int, now_ms: int) -> list[Effect]:
        """Leader: a SendSnapshot is over: installed, given up, or refused."""
        lead = self._lead
        return [] if lead is None else lead.snapshot_ended(peer, now_ms)

    def may_install(self, end_offset: int) -> bool:
        """Follower: is a snapshot up to `end_offset`, all of which is here, still wanted (R18)?"""
        return self._lead is None and end_offset > self.commit

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
        effects = self.configured(now_ms)
        if not self.leader:
            return effects
        reply = AppendReply(self.partition, self.epoch, True, end_offset, 0, self.commit, self.suspect)
        return [*effects, Send(self.leader, reply, True)]

    def level(self) -> int:
        """Up to where dead entries may go when they are no longer kept for voters that are away."""
        return self.commit if self._lead is None else self._lead.level()

    def needed_from(self) -> int:
        """From here on some member still lacks entries, as far as its leader knows: dead ones are kept for it."""
        return self.replicated if self._lead is None else min(self.replicated, self._lead.held_by_learners())

    def next_tick_ms(self) -> int:
        """When to call `tick`; 0 = no need."""
        return self.timer_ms

    def tick(self, now_ms: int, is_fit: bool = True) -> list[Effect]:
        """Does what is due. `is_fit`: may this node lead?"""
        if not self.timer_ms or now_ms < self.timer_ms:
            return []
        lead = self._lead
        if lead is not None:
            if lead.quorum_lost(now_ms):
                return self._step_down(now_ms, Loss.NO_QUORUM)
            if lead.is_abandoned(now_ms):
                return self._step_down(now_ms, Loss.REMOVED)
            if lead.hand_over_failed(now_ms):
                # Whom it told to stand may do so at any time, with votes that ask for no lease: it never has one again.
                return self._step_down(now_ms, Loss.HANDED_OVER) + self.campaign(now_ms)
            return lead.tick(now_ms)
        return self._take_turn(now_ms, is_fit)

    # --- inputs: other nodes --------------------------------------------------------------------------------

    def peer_up(self, peer: int, now_ms: int) -> list[Effect]:
        """The peer's node is up, or up again as another incarnation (after peer_down)."""
        if peer in self.alive:
            return []
        had_quorum = self.quorum_up()
        self.alive = node_set((*self.alive, peer))
        lead = self._lead
        if lead is not None:
            lead.quorum_changed(now_ms)
            return lead.peer_up(peer, now_ms)
        if self.leader == peer:
            self._watch(now_ms)
        elif not had_quorum and self.quorum_up() and (self._attempts or self._turns_passed):
            # Campaigns had become rare because none could be won, and turns were passed that nobody else could take.
            self._attempts = self._turns_passed = 0
            self._arm(now_ms + self._random_ms(ELECTION_JITTER_MS))
        return []

    def peer_down(self, peer: int, now_ms: int) -> list[Effect]:
        """The peer's node went silent, or was replaced by another incarnation."""
        if peer not in self.alive or peer == self.node_id:
            return []
        self.alive = node_set(tuple(node for node in self.alive if node != peer))
        lead = self._lead
        if lead is not None:
            lead.quorum_changed(now_ms)
            lead.peer_down(peer)
        elif self.leader == peer:
            return self._forget_leader(now_ms, Loss.NODE_DOWN)
        return []

    def step(self, sender: int, message: RaftMessage, now_ms: int, headers: Sequence[EntryFacts] = ()) -> list[Effect]:
        """A message of this partition arrived. `headers` are those of message.entries, one each.

        Raises SafetyViolation.
        """
        assert message.partition == self.partition, "message of another partition"
        if sender == self.node_id or (not self.epoch and self._ignores(message)):
            return []
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

    def _ignores(self, message: RaftMessage) -> bool:
        """A blank replica listens to nobody but a leader that has it as a learner (see `membership.py`)."""
        return self.members.uninitialized(self.epoch) and not getattr(message, "learner", False)

    def status(self) -> RaftStatus:
        lead = self._lead
        log_end = self.log.log_end
        peers = [
            PeerStatus(peer.node_id, peer.up, peer.match, log_end - peer.match, not peer.votes)
            for peer in (lead.peers if lead is not None else ())
            if not peer.leaving_at
        ]
        return RaftStatus(
            self.role, self.epoch, self.leader, self.leader_since_ms, reason_of(self), self.commit,
            self.replicated, log_end, peers,
        )  # fmt: skip

    # --- following ------------------------------------------------------------------------------------------

    def _on_append(
        self, sender: int, message: AppendEntries, now_ms: int, headers: Sequence[EntryFacts]
    ) -> list[Effect]:
        assert len(headers) == len(message.entries), "one header for each entry"
        effects: list[Effect] = []
        if message.epoch != self.epoch or self.leader != sender:
            if message.epoch < self.epoch:
                # The answer deposes a leader that does not know of this epoch yet.
                return [Send(sender, AppendReply(self.partition, self.epoch, False, 0), True)]
            if self._may_have_lost_vote and self.members.is_voter:
                return self._want_new_epoch(sender, message.epoch, now_ms)
            effects = self._follow(sender, message.epoch, now_ms)
        elif self.timer_ms:
            self._heard(now_ms)
        if self._installing:
            return effects  # the leader asks again
        verdict = match_append(self.log, self.commit, message, headers)
        if not verdict.ok:
            # An empty log may have taken the place of one that acknowledged something.
            doubtful = self.suspect or not self.log.log_end
            conflict = verdict.conflict_epoch
            reply = AppendReply(
                self.partition, self.epoch, False, verdict.end, conflict, 0, doubtful, message.round
            )  # fmt: skip
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
            members = self.members
            if not members.settled and members.end_offset <= min(committed, message.prev_offset):
                effects = self._settle(now_ms) + effects
        is_trusted = self.suspect and message.commit <= end and self._serves(message, headers)
        if is_trusted:
            self.suspect = False  # the answer says so: no further append may come that could be answered otherwise
        # In this order: whoever stages the answer has staged what it promises.
        reply = AppendReply(self.partition, self.epoch, True, end, 0, self.commit, self.suspect, message.round)
        effects.append(Send(sender, reply, True))
        if message.replicated > self.replicated:
            self.replicated = min(message.replicated, end)
        if is_news:
            effects.append(Committed(committed))
        if is_trusted:
            effects.append(Trusted())
        return effects

    def _serves(self, message: AppendEntries, headers: Sequence[EntryFacts]) -> bool:
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
            if self._may_have_lost_vote and self.members.is_voter:
                return self._want_new_epoch(sender, chunk.epoch, now_ms)
            effects = self._follow(sender, chunk.epoch, now_ms)
        elif self.timer_ms:
            self._heard(now_ms)
        end = chunk.end_offset
        if self._installing:
            return effects
        if end <= self.log.log_end and agrees(self.log, self.commit, end, chunk.last_epoch):
            reply = AppendReply(self.partition, self.epoch, True, end, 0, self.commit, self.suspect)
            effects.append(Send(sender, reply, True))
            return effects
        if end <= self.commit:
            raise SafetyViolation(f"a snapshot up to {end} does not match what is committed up to {self.commit}")
        effects.append(TakeSnapshot(sender, chunk))
        return effects

    def _on_append_reply(self, sender: int, message: AppendReply, now_ms: int) -> list[Effect]:
        if message.epoch == self.epoch:
            lead = self._lead
            return [] if lead is None else lead.replied(sender, message, now_ms)
        if message.epoch > self.epoch and sender in self.configuration.members:
            return self._adopt(message.epoch, now_ms, 0, Loss.OUTVOTED)
        return []
