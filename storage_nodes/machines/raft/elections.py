"""Elections: how a replica campaigns, votes, follows and comes to lead. The theory is in the package's docstring.

Base of the machine, which has the inputs; nothing here is called by the driver.
"""

from __future__ import annotations

from storage_nodes.ids import node_name
from storage_nodes.limits import ELECTION_JITTER_MS, TURNS_PASSED_MAX
from storage_nodes.machines.raft.effects import (
    Effect,
    EpochStart,
    Loss,
    Role,
    SafetyViolation,
    SaveVote,
    Send,
    SteppedDown,
    WithdrawPromise,
)
from storage_nodes.machines.raft.leadership import Leadership
from storage_nodes.machines.raft.membership import node_set
from storage_nodes.machines.raft.reasons import reason_lost
from storage_nodes.machines.raft.replica_state import ReplicaState
from storage_nodes.machines.raft.timing import BACKOFF_DOUBLINGS_MAX, ELECTION_TIMEOUT_MS
from storage_nodes.protocol.peer_messages import EPOCH_MAX, AppendReply, TimeoutNow, VoteReply, VoteRequest

# The value of the timer before the machine has been told the time: the first tick sets it.
UNARMED = 1


class Elections(ReplicaState):
    """The half of the machine that decides who leads."""

    __slots__ = ("_lead",)
    _lead: Leadership | None

    # --- voting ---------------------------------------------------------------------------------------------

    def _on_vote_request(self, sender: int, message: VoteRequest, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        is_newer = message.epoch > self.epoch
        if sender == self.leader and is_newer:
            self._forget_leader(now_ms, Loss.GAVE_UP)
        if not (message.transfer and is_newer) and not self._may_vote_for(sender, now_ms):
            refusal = VoteReply(self.partition, self.epoch, False, message.pre_vote)
            effects.append(Send(sender, refusal, not message.pre_vote))
            if self._lead is not None:
                return effects + self._lead.announce(sender, now_ms) if sender in self.alive else effects
            if self.leader and is_newer and self._is_complete(message):
                is_up = self._has_live_leader()
                effects += self._doubt_leader(now_ms) if is_up else self._forget_leader(now_ms, Loss.NODE_DOWN)
            return effects
        if message.pre_vote:
            granted = is_newer and self._is_complete(message)
            if granted and self.role is Role.PRE_CANDIDATE and self._yields_to(sender, message):
                self.role = Role.FOLLOWER
            reply = VoteReply(self.partition, message.epoch if granted else self.epoch, granted, True, self.suspect)
            return [Send(sender, reply, False)]
        if is_newer:
            loss = Loss.HANDED_OVER if message.transfer else Loss.OUTVOTED
            effects = self._adopt(message.epoch, now_ms, 0, loss)
        granted = message.epoch == self.epoch and self.voted_for in (0, sender) and self._is_complete(message)
        if granted and not self.voted_for:
            self.voted_for = sender
            self._may_have_lost_vote = False
            effects.append(SaveVote(self.epoch, sender))
            self._arm(now_ms + self._retry_ms())
        effects.append(Send(sender, VoteReply(self.partition, self.epoch, granted, False, self.suspect), True))
        return effects

    def _on_timeout_now(self, sender: int, message: TimeoutNow, now_ms: int) -> list[Effect]:
        """The leader hands over to this replica. Fenced: a late one, of an older epoch, changes nothing (R14)."""
        is_late = message.epoch != self.epoch or sender != self.leader
        if is_late or self._installing or not self.members.can_campaign() or self._is_last_epoch:
            return []
        self._lost(now_ms, Loss.HANDED_OVER)
        return self._ask_votes(now_ms, transfer=True)

    def _on_vote_reply(self, sender: int, message: VoteReply, now_ms: int) -> list[Effect]:
        if not self.members.counts(sender) or self._installing:
            return []  # it does not count
        if not message.granted:
            if message.epoch > self.epoch:
                return self._adopt(message.epoch, now_ms, 0, Loss.OUTVOTED)
            return []
        if message.pre_vote:
            if self.role is not Role.PRE_CANDIDATE or message.epoch != self.epoch + 1:
                return []
            if now_ms < self.promised_until_ms:
                return []  # the own vote is not free yet
        elif self.role is not Role.CANDIDATE or message.epoch != self.epoch:
            return []
        self._votes += (sender,)
        if message.suspect:
            self._suspect_votes += (sender,)
        if not self._has_votes():
            return []
        return self._ask_votes(now_ms) if message.pre_vote else self._win(now_ms)

    def _take_turn(self, now_ms: int, is_fit: bool) -> list[Effect]:
        """The timer of a replica that does not lead rang.

        A node that is not fit to lead passes its first turns to campaign, an election timeout apart: a replica that can
        win has won by then. The pauses do not grow, because passed turns burden nobody, and it may be that this replica
        alone holds all entries, so that its group waits for it.
        """
        if self.timer_ms == UNARMED and self.voters != (self.node_id,):
            self.timer_ms = now_ms + ELECTION_TIMEOUT_MS + self._random_ms(ELECTION_JITTER_MS)
            return []
        if self._installing:
            self.timer_ms = now_ms + self._retry_ms()
            return []
        if self.leader:
            return self._forget_leader(now_ms, Loss.NOT_HEARD)
        if not self.members.can_campaign():
            return []
        if now_ms < self.promised_until_ms:
            self.timer_ms = self.promised_until_ms + self._random_ms(ELECTION_JITTER_MS)
            return []
        if not is_fit and self._turns_passed < TURNS_PASSED_MAX and not self.members.is_majority((self.node_id,)):
            self._turns_passed += 1
            self.timer_ms = now_ms + ELECTION_TIMEOUT_MS + self._random_ms(ELECTION_JITTER_MS)
            return []
        return self._ask_pre_votes(now_ms)

    def _ask_pre_votes(self, now_ms: int) -> list[Effect]:
        """No leader is known: ask whether an election could be won, and again later if there is no answer."""
        assert not self.leader and now_ms >= self.promised_until_ms, "a replica stands when its own vote is free"
        self.timer_ms = now_ms + self._retry_ms()
        if self._is_last_epoch:
            return []
        self._attempts += 1
        self._vote_for_itself()
        if self._has_votes():
            return self._ask_votes(now_ms)
        self.role = Role.PRE_CANDIDATE
        return self._request_all(self.epoch + 1, True)

    def _ask_votes(self, now_ms: int, transfer: bool = False) -> list[Effect]:
        self.role = Role.CANDIDATE
        self._may_have_lost_vote = False
        self.epoch += 1
        self.voted_for = self.node_id
        self._vote_for_itself()
        self.timer_ms = now_ms + self._retry_ms()
        effects: list[Effect] = [SaveVote(self.epoch, self.node_id)]
        return effects + (self._win(now_ms) if self._has_votes() else self._request_all(self.epoch, False, transfer))

    @property
    def _is_last_epoch(self) -> bool:
        """A log can hold no later one: nobody stands any more. Elections do not get there in centuries; a member that
        invents epochs does, and must not end the nodes of the others."""
        return self.epoch >= EPOCH_MAX

    def _vote_for_itself(self) -> None:
        self._votes = (self.node_id,)
        self._suspect_votes = (self.node_id,) if self.suspect else ()

    def _has_votes(self) -> bool:
        """A majority of the voters, none of it suspect; or all of them (R12b): nobody else may have committed anything,
        so all are those of the configuration before as well, while the present one may yet be cut off."""
        members = self.members
        votes = set(self._votes)
        return members.is_majority(votes.difference(self._suspect_votes)) or votes.issuperset(members.all_voters())

    def _request_all(self, epoch: int, pre_vote: bool, transfer: bool = False) -> list[Effect]:
        """A request for votes leaves after the own vote was fsynced: else a replica could vote twice (R1)."""
        log = self.log
        request = VoteRequest(self.partition, epoch, log.last_epoch, log.log_end, pre_vote, transfer)
        return [Send(voter, request, not pre_vote) for voter in self.voters if voter != self.node_id]

    def _is_complete(self, request: VoteRequest) -> bool:
        """Does the asker's log hold at least what the own one does (R10)?"""
        log = self.log
        return (request.last_epoch, request.log_end) >= (log.last_epoch, log.log_end)

    def _may_vote_for(self, sender: int, now_ms: int) -> bool:
        """Is the vote free? It is not while a leader is known, nor for as long after that as the leader may count on
        it. What was promised to a node it may have itself: it asks, so it leads no more."""
        return not self.leader and (now_ms >= self.promised_until_ms or sender == self.promised_to)

    def _yields_to(self, sender: int, request: VoteRequest) -> bool:
        """Two that ask each other at the same moment would vote for themselves, and both lose: the one whose log holds
        less, else the one with the lower number, asks again later."""
        log = self.log
        asker, own = (request.last_epoch, request.log_end), (log.last_epoch, log.log_end)
        return (*asker, sender) > (*own, self.node_id)

    def _want_new_epoch(self, leader: int, epoch: int, now_ms: int) -> list[Effect]:
        """Depose the first leader that speaks to a suspect voter, unless it voted for it since its loss. What it forgot
        may be a vote of a later epoch, whose leader committed with it: this one would commit with it once more. Whoever
        leads next has the votes of a majority that lost nothing, given after our loss (seed 7000868)."""
        self._may_have_lost_vote = False
        if epoch >= EPOCH_MAX:  # it is no earlier one than the own
            return []
        effects = self._adopt(epoch + 1, now_ms, 0, Loss.OUTVOTED)
        return [*effects, Send(leader, AppendReply(self.partition, self.epoch, False, 0), True)]

    # --- leading and following ------------------------------------------------------------------------------

    def _follow(self, leader: int, epoch: int, now_ms: int) -> list[Effect]:
        """`leader` leads `epoch`, which is at least the own one. Raises SafetyViolation."""
        effects: list[Effect] = []
        if epoch > self.epoch:
            effects = self._adopt(epoch, now_ms, leader, Loss.OUTVOTED)
        elif self.role is Role.LEADER or self.leader:
            raise SafetyViolation(f"nodes {node_name(self.leader)} and {node_name(leader)} both lead epoch {epoch}")
        self.role = Role.FOLLOWER
        self._elected(leader, now_ms, ())
        self._watch(now_ms)
        return effects

    def _watch(self, now_ms: int) -> None:
        """Following: that the leader's node is up says that it leads, if it is a voter. Another one, which may be about
        to leave the group, must be heard of again and again; so must one whose node is not up."""
        if self.leader in self.alive and (self.leader in self.voters or not self.members.can_campaign()):
            self.timer_ms = 0
        elif self.timer_ms <= UNARMED:
            self._arm(now_ms + ELECTION_TIMEOUT_MS + self._random_ms(ELECTION_JITTER_MS))

    def _heard(self, now_ms: int) -> None:
        """An append of the leader came while there was a timer: what it waited for."""
        if self.leader in self.alive:
            self.timer_ms = 0
            self._watch(now_ms)

    def _doubt_leader(self, now_ms: int) -> list[Effect]:
        """Somebody who could win does not hear of the leader. Its node is up, but does it lead? It may have left the
        group, and its replica be gone. Ask it to go on sending; if it does not, there is no leader."""
        if self.timer_ms > UNARMED:
            return []
        self.timer_ms = now_ms + ELECTION_TIMEOUT_MS + self._random_ms(ELECTION_JITTER_MS)
        log = self.log
        reply = AppendReply(self.partition, self.epoch, False, log.log_end, log.last_epoch, 0, self.suspect)
        return [Send(self.leader, reply, True)]

    def _win(self, now_ms: int) -> list[Effect]:
        self.role = Role.LEADER
        self._elected(self.node_id, now_ms, node_set(self._votes))
        self._lead = Leadership(self, now_ms)
        return [EpochStart(self.epoch)]

    def _elected(self, leader: int, now_ms: int, elected_by: tuple[int, ...]) -> None:
        self.leader = leader
        self.leader_since_ms = now_ms
        self.elected_by = elected_by
        self._attempts = self._turns_passed = 0
        self._votes = self._suspect_votes = ()

    def _step_down(self, now_ms: int, loss: Loss, leader: int = 0) -> list[Effect]:
        """Stop leading. Followers hear of it through the campaign that follows (rules 1 and 2 of the module)."""
        self._lead = None
        self.role = Role.FOLLOWER
        self._forget_leader(now_ms, loss)
        return [SteppedDown(leader, reason_lost(loss, self.node_id))]

    # --- plain work -----------------------------------------------------------------------------------------

    def _adopt(self, epoch: int, now_ms: int, leader: int, loss: Loss) -> list[Effect]:
        """Enter a higher epoch as a follower that has not voted in it; a blank replica gives its vote to the leader."""
        self.voted_for = leader if self.members.uninitialized(self.epoch) else 0
        self.epoch = epoch
        effects: list[Effect] = [SaveVote(epoch, self.voted_for)]
        if self._lead is not None:
            return effects + self._step_down(now_ms, loss, leader)
        self.role = Role.FOLLOWER
        if self.leader:
            withdrawn = self._forget_leader(now_ms, loss)
            # Whoever leads a higher epoch has the votes of a majority that had none left for the leader before.
            effects += withdrawn if not leader else []
        return effects

    def _lost(self, now_ms: int, loss: Loss) -> None:
        self.lost_leader = self.leader
        self.lost_ms = now_ms
        self.loss = loss
        self.leader = 0
        self.leader_since_ms = now_ms
        self.elected_by = ()

    def _forget_leader(self, now_ms: int, loss: Loss) -> list[Effect]:
        """There is no leader any more: campaign soon, at a random time so that not all do at once.

        Unless it was the leader itself who gave up, it may lead on and count on this replica's vote: it must learn that
        it cannot, and the vote is not free until then (`promised`)."""
        leader = self.leader
        self._lost(now_ms, loss)
        self._attempts = self._turns_passed = 0
        if self.quorum_up():
            self._arm(now_ms + self._random_ms(ELECTION_JITTER_MS))
        else:
            self._arm(now_ms + self._retry_ms())
            self._attempts = 1
        gave_up = leader == self.node_id or loss in (Loss.GAVE_UP, Loss.HANDED_OVER)
        return [] if gave_up else [WithdrawPromise(leader)]

    def _arm(self, deadline_ms: int) -> None:
        """When to campaign; whoever may not has no timer."""
        self.timer_ms = deadline_ms if self.members.can_campaign() else 0

    def _has_live_leader(self) -> bool:
        return self.leader in self.alive

    def _retry_ms(self) -> int:
        doublings = min(self._attempts, BACKOFF_DOUBLINGS_MAX) if self.quorum_up() else BACKOFF_DOUBLINGS_MAX
        span_ms = ELECTION_JITTER_MS << doublings
        return span_ms + self._random_ms(span_ms)
