"""Leases of leaders in the Raft machine (R8): when a vote is free, and until when a leader may count on votes."""

from __future__ import annotations

import pytest

from storage_nodes.limits import ELECTION_JITTER_MS, VOTE_HOLD_MS
from storage_nodes.machines.raft.effects import AppendConfiguration, Role, Send, SendEntries, WithdrawPromise
from storage_nodes.machines.raft.leadership import NO_END
from storage_nodes.machines.raft.membership import AddLearner, Remove
from storage_nodes.protocol.peer_messages import AppendEntries, AppendReply, VoteReply, VoteRequest
from tests.storage_nodes.machines.raft.raft_bench import PARTITION, Bench, appends_to, log_of, reply_in


def granted(bench: Bench, sender: int, pre_vote: bool, transfer: bool = False) -> bool:
    epoch = bench.machine.epoch + 1
    effects = bench.step(sender, VoteRequest(PARTITION, epoch, 99, 99, pre_vote, transfer))
    (reply,) = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, VoteReply)]
    return reply.granted


def lost(until_ms: int = 500) -> Bench:
    """Its leader's node, 2, went down, and may count on its vote for so long."""
    bench = Bench(log_of(1)).follow(2)
    assert bench.perform(bench.machine.peer_down(2, bench.now_ms)) == [WithdrawPromise(2)]
    bench.machine.promised(2, bench.now_ms + until_ms, bench.now_ms)
    return bench


@pytest.mark.parametrize("pre_vote", [True, False])
def test_vote_that_a_lost_leader_counts_on_is_nobody_elses_until_then(pre_vote: bool) -> None:
    bench = lost(500)
    bench.now_ms += 499
    assert not granted(bench, 3, pre_vote)
    assert bench.machine.epoch == 1, "nor does the asker's epoch depose anybody"
    bench.now_ms += 1
    assert granted(bench, 3, pre_vote)


def test_leader_that_counted_on_a_vote_may_have_it_itself() -> None:
    bench = lost()
    assert granted(bench, 2, pre_vote=False)


def test_vote_is_free_for_whom_the_leader_told_to_stand() -> None:
    bench = lost()
    assert granted(bench, 3, pre_vote=False, transfer=True)


def test_replica_stands_itself_only_when_its_own_vote_is_free() -> None:
    bench = lost(500)
    free_ms = bench.now_ms + 500
    assert free_ms <= bench.machine.next_tick_ms() <= free_ms + ELECTION_JITTER_MS
    assert bench.perform(bench.machine.campaign(bench.now_ms)) == []
    assert bench.tick_at(free_ms - 1) == []
    bench.tick()
    assert bench.machine.role is Role.PRE_CANDIDATE and bench.now_ms >= free_ms


def test_replica_that_may_have_promised_before_its_start_votes_for_nobody_for_a_while() -> None:
    bench = Bench(log_of(1))
    bench.machine.promised(0, bench.now_ms + VOTE_HOLD_MS, bench.now_ms)
    assert not granted(bench, 2, pre_vote=False)
    bench.now_ms += VOTE_HOLD_MS
    assert granted(bench, 2, pre_vote=False)


def test_shorter_promise_does_not_end_a_longer_one() -> None:
    bench = lost(500)
    bench.machine.promised(0, bench.now_ms + 100, bench.now_ms)
    bench.now_ms += 200
    assert not granted(bench, 3, pre_vote=False)


def test_leader_followed_before_its_node_is_up_is_let_go_before_anybody_else_gets_the_vote() -> None:
    """It may count on it: its heartbeats may have come, and ours to it as well."""
    bench = Bench(log_of(1))
    bench.machine.peer_down(2, bench.now_ms)
    bench.follow(2)
    effects = bench.ask(3, 2)
    assert WithdrawPromise(2) in effects and not reply_in(effects).message.granted  # type: ignore[union-attr]
    assert granted(bench, 3, pre_vote=False), "the driver said that it binds no more"


def test_follower_that_learns_of_a_later_epoch_withdraws_its_promise_unless_somebody_leads_it() -> None:
    bench = Bench(log_of(1)).follow(2)
    assert WithdrawPromise(2) in bench.step(3, VoteReply(PARTITION, 5, False))
    other = Bench(log_of(1)).follow(2)
    assert WithdrawPromise(2) not in other.append(3, 5, (1, 1))
    third = Bench(log_of(1)).follow(2)
    assert WithdrawPromise(2) not in third.ask(2, 5, pre_vote=True), "it gave up itself"


def test_answer_says_back_the_round_of_its_append() -> None:
    bench = Bench(log_of(1))
    for prev, ok in (((1, 1), True), ((9, 9), False)):
        effects = bench.step(2, AppendEntries(PARTITION, 1, *prev, 0, [], 0, False, 7))
        reply = reply_in(effects).message
        assert isinstance(reply, AppendReply) and (reply.ok, reply.round) == (ok, 7)


# --- the leader ----------------------------------------------------------------------------------------------


def until_of(bench: Bench, **untils: int) -> int:
    """`n2=5`: node 2 votes for nobody else until 5, if it answered round 3 or a later one."""
    return bench.machine.lease_until_ms(lambda peer, answered: untils.get(f"n{peer}", 0) if answered >= 3 else 0)


def test_lease_lasts_as_long_as_a_majority_votes_for_nobody_else() -> None:
    bench = Bench(log_of(1), size=5).lead()
    for peer in (2, 3, 4, 5):
        bench.step(peer, AppendReply(PARTITION, bench.machine.epoch, True, bench.log.log_end, 0, 2, False, 3))
    assert until_of(bench, n2=50, n3=40, n4=30, n5=20) == 40
    assert until_of(bench, n2=50) == 0


def test_follower_counts_once_it_answered_in_this_epoch_by_its_present_promise() -> None:
    bench = Bench(log_of(1)).lead()
    assert until_of(bench, n2=50, n3=50) == 0
    bench.step(2, AppendReply(PARTITION, bench.machine.epoch - 1, True, 1, 0, 1, False, 3))
    assert until_of(bench, n2=50) == 0, "an answer to somebody else's append"
    bench.step(2, AppendReply(PARTITION, bench.machine.epoch, True, bench.log.log_end, 0, 2, False, 3))
    assert until_of(bench, n2=50) == 50
    bench.step(2, AppendReply(PARTITION, bench.machine.epoch, True, bench.log.log_end, 0, 2, False, 2))
    assert until_of(bench, n2=50) == 50, "a late answer takes nothing away"


def test_leader_that_hands_over_has_no_lease() -> None:
    bench = Bench(log_of(1)).lead()
    bench.step(2, AppendReply(PARTITION, bench.machine.epoch, True, bench.log.log_end, 0, 2, False, 3))
    bench.perform(bench.machine.transfer(3, bench.now_ms))
    assert until_of(bench, n2=50) == 0


def test_single_voter_has_a_lease_without_an_end_and_a_follower_has_none() -> None:
    assert until_of(Bench(size=1)) == NO_END
    assert until_of(Bench(log_of(1)).follow(2), n2=50, n3=50) == 0


def test_learner_and_removed_voter_do_not_count() -> None:
    bench = Bench(log_of(1)).lead()
    bench.machine.peer_up(4, bench.now_ms)
    for change in (AddLearner(4), Remove(3)):
        effects = bench.perform(bench.machine.change_configuration(change, bench.now_ms))
        assert any(isinstance(effect, AppendConfiguration) for effect in effects)
        bench.sync()
        for peer in (2, 3, 4):
            bench.step(peer, AppendReply(PARTITION, bench.machine.epoch, True, bench.log.log_end, 0, 2, False, 3))
    assert bench.machine.voters == (1, 2)
    assert until_of(bench, n3=50, n4=50) == 0
    assert until_of(bench, n2=50) == 50


def test_leader_without_a_lease_asks_followers_that_owe_no_answer() -> None:
    bench = Bench(log_of(1)).lead()
    effects = bench.perform(bench.machine.confirm(bench.now_ms))
    assert len(appends_to(effects, 2)) == len(appends_to(effects, 3)) == 1
    assert bench.perform(bench.machine.confirm(bench.now_ms)) == [], "their answers are on their way"
    assert not any(isinstance(e, SendEntries) for e in Bench(log_of(1)).follow(2).machine.confirm(bench.now_ms))


def test_of_two_that_ask_each_other_at_the_same_moment_one_lets_the_other_go_first() -> None:
    """Else both vote for themselves, and the group waits for another try."""
    bench = Bench(log_of(1)).become(Role.PRE_CANDIDATE)
    assert reply_in(bench.ask(2, 2, (1, 1), pre_vote=True)).message.granted  # type: ignore[union-attr]
    assert bench.machine.role is Role.FOLLOWER and bench.machine.next_tick_ms() > bench.now_ms
    assert bench.grant(2, pre_vote=True) == [], "the other one's vote comes too late"
    ahead = Bench(log_of(1, 1)).become(Role.PRE_CANDIDATE)
    ahead.ask(2, 2, (1, 1), pre_vote=True)
    assert ahead.machine.role is Role.PRE_CANDIDATE
