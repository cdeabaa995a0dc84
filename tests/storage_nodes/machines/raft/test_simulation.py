"""Seeds of the simulation that run with every change, and its teeth: planted historic bugs that it must catch.

More seeds: `python -m tests.storage_nodes.machines.raft.raft_simulation FIRST COUNT`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from storage_nodes.machines.raft import machine as machine_module
from storage_nodes.machines.raft.effects import (
    BecameLeader,
    Effect,
    EntryHeader,
    LogPositions,
    SaveVote,
    Send,
    TakeSnapshot,
)
from storage_nodes.machines.raft.following import AppendResult, match_append
from storage_nodes.machines.raft.leadership import Leadership
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.machines.raft.membership import Membership
from storage_nodes.machines.raft.progress import Progress
from storage_nodes.protocol.configuration import ConfigurationEntry
from storage_nodes.protocol.peer_messages import (
    AppendEntries,
    AppendReply,
    RaftMessage,
    SnapshotChunk,
    VoteReply,
    VoteRequest,
)
from tests.storage_nodes.machines.raft.raft_oracle import BrokenPromise
from tests.storage_nodes.machines.raft.raft_simulation import run_seed

SEEDS_PER_TEST = 20
# A planted bug that needs more seeds than this would slip through the seeds that run with every change.
SEEDS_TO_CATCH_MAX = 250

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("first", range(0, 120, SEEDS_PER_TEST))
def test_simulation_with_faults_keeps_all_promises_and_heals(first: int) -> None:
    """Crashes, cuts, lost and late messages, transfers, trimmed logs and snapshots, wiped disks.

    Seed 35 has a paused candidate win its old epoch late, without what newer epochs committed: that is not wrong.
    """
    steps = acked = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        cluster = run_seed(seed)
        steps += cluster.steps
        acked += len(cluster.acked)
    assert steps > SEEDS_PER_TEST * 500, "a simulation in which nothing happens proves nothing"
    assert acked > SEEDS_PER_TEST * 5, "nor does one in which nothing is acknowledged"


def test_simulation_same_seed_runs_the_same() -> None:
    first, second = run_seed(4), run_seed(4)
    assert (first.steps, first.acked, first.now_ms) == (second.steps, second.acked, second.now_ms)
    assert first.oracle.committed_entries == second.oracle.committed_entries


# --- planted bugs -------------------------------------------------------------------------------------------


def _without_sync(patch: Patch, kind: type[AppendReply] | type[VoteReply]) -> None:
    real = RaftMachine.step

    def step(
        self: RaftMachine, sender: int, message: RaftMessage, now_ms: int, headers: Sequence[EntryHeader] = ()
    ) -> list[Effect]:
        return [
            effect._replace(after_sync=False) if isinstance(effect, Send) and type(effect.message) is kind else effect
            for effect in real(self, sender, message, now_ms, headers)
        ]

    patch.setattr(RaftMachine, "step", step)


def truncates_on_a_shorter_append(patch: Patch) -> None:
    """B1, R17: what lies beyond a late, shorter append is cut off."""

    def judge_and_cut(
        log: LogPositions, commit: int, message: AppendEntries, headers: Sequence[EntryHeader]
    ) -> AppendResult:
        verdict = match_append(log, commit, message, headers)
        if verdict.ok and verdict.cut < 0 and verdict.first == verdict.last and verdict.end < log.log_end:
            return verdict._replace(cut=verdict.end)
        return verdict

    patch.setattr(machine_module, "match_append", judge_and_cut)


def commits_entries_of_older_epochs(patch: Patch) -> None:
    """B2, R6: figure 8 of the Raft paper."""
    patch.setattr(Leadership, "_is_own", lambda self, offset: True)


def answers_votes_before_they_are_durable(patch: Patch) -> None:
    """B3, R1."""
    _without_sync(patch, VoteReply)


def forgets_its_vote(patch: Patch) -> None:
    """B3, R1: the vote is never written; a restarted voter votes again."""
    real = RaftMachine._on_vote_request

    def on_vote_request(self: RaftMachine, sender: int, message: VoteRequest, now_ms: int) -> list[Effect]:
        effects = real(self, sender, message, now_ms)
        return [effect for effect in effects if not (isinstance(effect, SaveVote) and effect.voted_for)]

    patch.setattr(RaftMachine, "_on_vote_request", on_vote_request)


def votes_for_less_complete_logs(patch: Patch) -> None:
    """B4, R10."""
    patch.setattr(RaftMachine, "_is_complete", lambda self, request: True)


def acknowledges_before_fsync(patch: Patch) -> None:
    """B10, R5: the follower's half."""
    _without_sync(patch, AppendReply)


def counts_what_the_leader_has_not_synced(patch: Patch) -> None:
    """B10, R5: the leader's half."""
    real = Leadership.proposed

    def proposed(self: Leadership, now_ms: int) -> list[Effect]:
        self.match = self._log.log_end
        return real(self, now_ms)

    patch.setattr(Leadership, "proposed", proposed)


def counts_a_follower_as_far_as_it_was_sent(patch: Patch) -> None:
    """B10, R5: sent is taken for durable."""
    real = Progress.track

    def track(self: Progress, end_offset: int, size_bytes: int) -> None:
        real(self, end_offset, size_bytes)
        self.match = end_offset

    patch.setattr(Progress, "track", track)


def serves_before_the_epoch_start_is_committed(patch: Patch) -> None:
    """B16, B17, R13."""
    real = RaftMachine._win

    def win(self: RaftMachine, now_ms: int) -> list[Effect]:
        return [*real(self, now_ms), BecameLeader()]

    patch.setattr(RaftMachine, "_win", win)


def commits_on_half_of_the_voters(patch: Patch) -> None:
    """R6: a majority is more than half, and of an odd number it is not the smaller part."""
    real = Leadership._durable_positions

    def positions(self: Leadership) -> list[int]:
        found = real(self)
        return [found[-1]] * len(found) if len(found) > 1 else found

    patch.setattr(Leadership, "_durable_positions", positions)


def follows_a_leader_of_an_older_epoch(patch: Patch) -> None:
    """B8, B15, R14: the epoch of an append is not looked at."""
    real = RaftMachine._on_append

    def on_append(
        self: RaftMachine, sender: int, message: AppendEntries, now_ms: int, headers: Sequence[EntryHeader]
    ) -> list[Effect]:
        if message.epoch < self.epoch and self._lead is None:
            fields = (getattr(message, name) for name in message.__struct_fields__[2:])
            self.leader = sender
            message = AppendEntries(message.partition, self.epoch, *fields)
        return real(self, sender, message, now_ms, headers)

    patch.setattr(RaftMachine, "_on_append", on_append)


def never_sends_again(patch: Patch) -> None:
    """Liveness, rule 3: what was lost stays lost."""
    patch.setattr(Leadership, "_due_ms", lambda self, peer, now_ms: 0)


def believes_a_leader_that_asks_for_votes(patch: Patch) -> None:
    """Liveness, rule 2: a leader that stepped down is still taken for the leader."""
    real = RaftMachine._on_vote_request

    def on_vote_request(self: RaftMachine, sender: int, message: VoteRequest, now_ms: int) -> list[Effect]:
        if sender == self.leader:
            return [Send(sender, VoteReply(self.partition, self.epoch, False, message.pre_vote), False)]
        return real(self, sender, message, now_ms)

    patch.setattr(RaftMachine, "_on_vote_request", on_vote_request)


def gives_up_after_one_campaign(patch: Patch) -> None:
    """Liveness, rule 1."""
    real = RaftMachine._ask_pre_votes

    def ask(self: RaftMachine, now_ms: int) -> list[Effect]:
        effects = real(self, now_ms)
        self.timer_ms = 0 if self._lead is None else self.timer_ms
        return effects

    patch.setattr(RaftMachine, "_ask_pre_votes", ask)


def counts_the_votes_of_suspects(patch: Patch) -> None:
    """B6, B9, R12: a voter that lost its disk votes as if it had not."""
    real = RaftMachine._on_vote_reply

    def on_vote_reply(self: RaftMachine, sender: int, message: VoteReply, now_ms: int) -> list[Effect]:
        message = VoteReply(message.partition, message.epoch, message.granted, message.pre_vote)
        return real(self, sender, message, now_ms)

    patch.setattr(RaftMachine, "_on_vote_reply", on_vote_reply)


def installs_a_snapshot_over_newer_state(patch: Patch) -> None:
    """B24, R18: a late snapshot replaces what was committed since."""

    def on_snapshot(self: RaftMachine, sender: int, chunk: SnapshotChunk, now_ms: int) -> list[Effect]:
        return [TakeSnapshot(sender, chunk)] if chunk.epoch == self.epoch and not self._installing else []

    patch.setattr(RaftMachine, "_on_snapshot", on_snapshot)


def counts_acknowledgements_of_learners_and_removed_voters(patch: Patch) -> None:
    """B5, R6."""
    patch.setattr(Leadership, "_counted", lambda self: list(self.peers))


def changes_before_a_commit_in_the_own_epoch(patch: Patch) -> None:
    """B7, R15: the bug of 2015."""
    patch.setattr(Leadership, "has_own_commit", lambda self: True)


def makes_two_changes_at_once(patch: Patch) -> None:
    """B25, R15."""
    patch.setattr(RaftMachine, "_change_under_way", lambda self: False)


def keeps_a_configuration_that_was_cut_off(patch: Patch) -> None:
    """R15: in force when appended, and undone when its entry is."""
    real = Membership.read

    def read(self: Membership, history: Sequence[ConfigurationEntry], commit: int) -> Membership:
        return real(self, history, commit) if len(history) >= len(self.history) else self

    patch.setattr(Membership, "read", read)


def waits_for_the_commit_of_a_configuration(patch: Patch) -> None:
    """R6: a configuration counts from its entry on, not from its commit."""

    def read(self: Membership, history: Sequence[ConfigurationEntry], commit: int) -> Membership:
        known = [entry for entry in history if entry.end_offset <= commit]
        members = Membership(self._node_id, self._boot, known, commit, self.lost_log)
        members.history = history
        members.settled = not history or history[-1].end_offset <= commit
        return members

    patch.setattr(Membership, "read", read)


# With the first seed that catches it. Where the machine's draws have changed, another one does.
PLANTED: dict[Callable[[Patch], None], int] = {
    truncates_on_a_shorter_append: 1,
    commits_entries_of_older_epochs: 1,
    answers_votes_before_they_are_durable: 0,
    forgets_its_vote: 0,
    votes_for_less_complete_logs: 3,
    acknowledges_before_fsync: 0,
    counts_what_the_leader_has_not_synced: 2,
    counts_a_follower_as_far_as_it_was_sent: 0,
    serves_before_the_epoch_start_is_committed: 1,
    commits_on_half_of_the_voters: 0,
    follows_a_leader_of_an_older_epoch: 5,
    never_sends_again: 0,
    believes_a_leader_that_asks_for_votes: 71,
    gives_up_after_one_campaign: 0,
    counts_the_votes_of_suspects: 215,
    installs_a_snapshot_over_newer_state: 19,
    counts_acknowledgements_of_learners_and_removed_voters: 1,
    changes_before_a_commit_in_the_own_epoch: 4,
    makes_two_changes_at_once: 1,
    keeps_a_configuration_that_was_cut_off: 28,
    waits_for_the_commit_of_a_configuration: 1,
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_simulation_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(BrokenPromise):
        for seed in (PLANTED[plant], *range(SEEDS_TO_CATCH_MAX)):
            run_seed(seed)
