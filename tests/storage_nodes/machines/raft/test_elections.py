"""Elections, liveness of leaders by their nodes, and what leaves before or after an fsync (R1, R8, R10, R13, R14)."""

from __future__ import annotations

import sys

import pytest

from storage_nodes.limits import ELECTION_JITTER_MS, QUORUM_LOST_MS
from storage_nodes.machines.raft.effects import (
    BecameLeader,
    Committed,
    EpochStart,
    Role,
    SaveVote,
    Send,
    SteppedDown,
    WithdrawPromise,
)
from storage_nodes.machines.raft.elections import Elections
from storage_nodes.machines.raft.replica_state import ReplicaState
from storage_nodes.machines.raft.timing import ELECTION_TIMEOUT_MS, RETRY_MS_MAX
from storage_nodes.protocol.peer_messages import (
    EPOCH_MAX,
    AppendEntries,
    AppendReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tests.storage_nodes.machines.raft.raft_bench import PARTITION, Bench, appends_to, log_of, reply_in, sends


def test_single_voter_first_tick_leads_and_serves_after_its_own_fsync() -> None:
    bench = Bench(size=1)
    assert bench.machine.role is Role.LEADER
    assert bench.sync() == [Committed(1), BecameLeader()]
    assert bench.machine.next_tick_ms() == 0


def test_fresh_replica_waits_for_a_leader_before_it_campaigns() -> None:
    bench = Bench()
    assert bench.machine.next_tick_ms() == bench.now_ms + ELECTION_TIMEOUT_MS + ELECTION_JITTER_MS // 2
    assert bench.tick_at(bench.machine.next_tick_ms() - 1) == []
    assert len(sends(bench.tick(), VoteRequest)) == 2


def test_pre_vote_asked_changes_nothing_and_waits_for_no_fsync() -> None:
    bench = Bench(log_of(1, 2))
    effects = bench.machine.campaign(bench.now_ms)
    assert {send.peer for send in sends(effects, VoteRequest)} == {2, 3}
    asked = VoteRequest(PARTITION, 3, 2, 2, True)
    assert all(send.message == asked and not send.after_sync for send in sends(effects, VoteRequest))
    assert len(effects) == 2 and bench.machine.epoch == 2


def test_candidate_asks_for_votes_only_after_its_own_vote_is_durable() -> None:
    """R1, B3."""
    bench = Bench(log_of(1)).become(Role.PRE_CANDIDATE)
    effects = bench.grant(2, pre_vote=True)
    assert effects[0] == SaveVote(2, 1)
    assert [(send.peer, send.after_sync) for send in sends(effects, VoteRequest)] == [(2, True), (3, True)]


def test_winner_starts_its_epoch_and_serves_only_when_that_is_committed() -> None:
    """R9, R13."""
    bench = Bench(log_of(1)).become(Role.CANDIDATE)
    effects = bench.grant(3)
    assert effects[0] == EpochStart(2)
    assert BecameLeader() not in effects + bench.sync()
    assert bench.answer(2, 2) == [Committed(2), BecameLeader()]


def test_vote_granted_is_saved_and_leaves_after_the_fsync() -> None:
    """R1."""
    bench = Bench(log_of(1))
    effects = bench.ask(2, 2, last=(1, 1))
    assert effects[0] == SaveVote(2, 0) and effects[1] == SaveVote(2, 2)
    assert reply_in(effects) == (2, VoteReply(PARTITION, 2, True), True)


def test_vote_asked_twice_is_answered_again_and_asked_by_another_is_refused() -> None:
    """One vote an epoch."""
    bench = Bench(log_of(1))
    bench.ask(2, 2)
    assert bench.ask(2, 2) == [(2, VoteReply(PARTITION, 2, True), True)]
    assert reply_in(bench.ask(3, 2)).message == VoteReply(PARTITION, 2, False)


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(
    ("last", "granted"), [((1, 9), False), ((2, 1), False), ((2, 2), True), ((2, 3), True), ((3, 1), True)]
)
def test_vote_depends_on_last_epoch_then_log_end(last: tuple[int, int], granted: bool, pre_vote: bool) -> None:
    """R10, B4."""
    bench = Bench(log_of(1, 2))
    assert reply_in(bench.ask(2, 4, last, pre_vote)).message.granted is granted  # type: ignore[union-attr]


@pytest.mark.parametrize("pre_vote", [True, False])
def test_vote_while_the_leader_is_live_is_refused_without_adopting_the_epoch(pre_vote: bool) -> None:
    """R10: a node that returns does not disturb."""
    bench = Bench(log_of(1)).follow(3)
    (refusal,) = sends(bench.ask(2, 9, pre_vote=pre_vote), VoteReply)
    assert refusal.message == VoteReply(PARTITION, 1, False, pre_vote)
    assert (bench.machine.epoch, bench.machine.leader) == (1, 3)


def test_follower_asked_for_a_vote_asks_its_leader_to_go_on_and_forgets_one_that_does_not() -> None:
    """Its node is up, but the replica there may have left the group, and be gone."""
    bench = Bench(log_of(1)).follow(3)
    (question,) = sends(bench.ask(2, 9, pre_vote=True), AppendReply)
    assert question == (3, AppendReply(PARTITION, 1, False, 1, 1), True)
    assert sends(bench.ask(2, 9, pre_vote=True), AppendReply) == [], "asked once"
    bench.append(3, 1, (1, 1))
    assert bench.machine.next_tick_ms() == 0 and bench.machine.leader == 3, "it answered"
    bench.ask(2, 9, pre_vote=True)
    assert bench.tick() == [WithdrawPromise(3)]
    assert bench.machine.status().leader_reason == "node 3 was not heard of"
    bench.tick()
    assert bench.machine.role is Role.PRE_CANDIDATE


def test_follower_does_not_doubt_its_leader_for_a_candidate_that_cannot_win() -> None:
    bench = Bench(log_of(1)).follow(3)
    assert sends(bench.ask(2, 9, (0, 0), pre_vote=True), AppendReply) == []
    assert sends(bench.ask(2, 1, pre_vote=True), AppendReply) == [] and bench.machine.next_tick_ms() == 0


def test_leader_asked_for_a_vote_refuses_and_announces_itself() -> None:
    """Rule 3 of the liveness argument."""
    bench = Bench(log_of(1)).lead()
    effects = bench.ask(3, 9, pre_vote=True)
    assert not reply_in(effects).message.granted  # type: ignore[union-attr]
    assert len(appends_to(effects, 3)) == 1 and appends_to(effects, 2) == []


def test_pre_vote_asked_by_the_leader_itself_clears_it() -> None:
    """Rule 2: who asks does not lead; then the asker may have the pre-vote, and this replica has a timer."""
    bench = Bench(log_of(1)).follow(2)
    assert bench.machine.next_tick_ms() == 0
    assert reply_in(bench.ask(2, 2, pre_vote=True)).message == VoteReply(PARTITION, 2, True, True)
    assert bench.machine.leader == 0 and bench.machine.next_tick_ms() > 0
    assert bench.machine.status().leader_reason == "node 2 gave up leading"


def test_late_pre_vote_request_from_before_the_election_leaves_the_leader_alone() -> None:
    bench = Bench(log_of(1)).follow(2)
    assert not reply_in(bench.ask(2, 1, pre_vote=True)).message.granted  # type: ignore[union-attr]
    assert bench.machine.leader == 2


def test_leader_node_down_lets_the_follower_campaign_within_the_jitter() -> None:
    bench = Bench(log_of(1)).follow(2)
    assert bench.machine.peer_down(2, bench.now_ms) == [WithdrawPromise(2)]
    assert bench.now_ms <= bench.machine.next_tick_ms() <= bench.now_ms + ELECTION_JITTER_MS
    assert bench.machine.leader == 0 and bench.machine.status().leader_reason == "node 2 went down"
    bench.tick()
    assert bench.machine.role is Role.PRE_CANDIDATE


def test_other_node_down_leaves_the_follower_idle() -> None:
    bench = Bench(log_of(1)).follow(2)
    bench.machine.peer_down(3, bench.now_ms)
    assert bench.machine.next_tick_ms() == 0 and bench.machine.leader == 2


def test_leader_followed_before_its_node_is_known_up_keeps_the_timer_until_it_is() -> None:
    bench = Bench(log_of(1))
    bench.machine.peer_down(2, bench.now_ms)
    bench.follow(2)
    assert bench.machine.next_tick_ms() > 0
    bench.machine.peer_up(2, bench.now_ms)
    assert bench.machine.next_tick_ms() == 0


def test_leader_without_majority_steps_down_a_heartbeat_later() -> None:
    """R8, B8."""
    bench = Bench(log_of(1)).lead()
    bench.machine.peer_down(2, bench.now_ms)
    assert bench.machine.next_tick_ms() == 0
    bench.machine.peer_down(3, bench.now_ms)
    due_ms = bench.now_ms + QUORUM_LOST_MS
    assert bench.tick_at(due_ms - 1) == []
    assert bench.tick_at(due_ms) == [SteppedDown(0, "node 1 lost contact with a majority of the voters")]
    assert bench.machine.role is Role.FOLLOWER and bench.machine.next_tick_ms() > due_ms


def test_leader_that_regains_its_majority_in_time_goes_on() -> None:
    bench = Bench(log_of(1)).lead()
    bench.machine.peer_down(2, bench.now_ms)
    bench.machine.peer_down(3, bench.now_ms)
    bench.perform(bench.machine.peer_up(3, bench.now_ms + 100))
    bench.tick_at(bench.now_ms + 10 * ELECTION_TIMEOUT_MS)
    assert bench.machine.role is Role.LEADER


def test_campaigns_without_majority_are_rare_and_soon_again_when_it_returns() -> None:
    bench = Bench(log_of(1))
    bench.machine.peer_down(2, bench.now_ms)
    bench.machine.peer_down(3, bench.now_ms)
    bench.tick()
    assert bench.machine.next_tick_ms() - bench.now_ms > RETRY_MS_MAX // 2
    bench.machine.peer_up(2, bench.now_ms)
    assert bench.machine.next_tick_ms() - bench.now_ms <= ELECTION_JITTER_MS


def test_candidate_without_answers_retries_at_growing_intervals() -> None:
    bench = Bench(log_of(1)).become(Role.PRE_CANDIDATE)
    waits = []
    for _ in range(6):
        waits.append(bench.machine.next_tick_ms() - bench.now_ms)
        assert len(sends(bench.tick(), VoteRequest)) == 2
    assert waits == sorted(waits) and waits[0] < waits[3] == waits[5] <= RETRY_MS_MAX


def test_refusal_with_a_newer_epoch_is_adopted_durably() -> None:
    bench = Bench(log_of(1)).become(Role.PRE_CANDIDATE)
    assert bench.step(2, VoteReply(PARTITION, 8, False, True)) == [SaveVote(8, 0)]
    assert bench.machine.role is Role.FOLLOWER and bench.machine.next_tick_ms() > 0


def test_deposed_leader_hears_of_it_from_an_answer_and_campaigns() -> None:
    """R14."""
    bench = Bench(log_of(1)).lead()
    effects = bench.step(3, AppendReply(PARTITION, 9, False, 0))
    assert effects == [SaveVote(9, 0), SteppedDown(0, "node 1 was outvoted in a newer epoch")]
    assert bench.machine.next_tick_ms() > 0


def test_stale_append_is_answered_with_the_newer_epoch() -> None:
    """R14: how a deposed leader that is unaware finds out."""
    bench = Bench(log_of(1, 5))
    assert bench.append(2, 4, (1, 1)) == [(2, AppendReply(PARTITION, 5, False, 0), True)]
    assert bench.machine.leader == 0


def test_vote_and_answer_of_a_node_that_is_no_voter_do_not_count() -> None:
    """R14, B5. What it may ask and send is in `test_membership.py`."""
    bench = Bench(log_of(1)).become(Role.PRE_CANDIDATE)
    bench.grant(9, pre_vote=True)
    assert bench.machine.role is Role.PRE_CANDIDATE
    leader = Bench(log_of(1)).lead()
    leader.propose()
    leader.sync()
    assert leader.answer(9, 3) == [] and leader.machine.commit == 2


def test_liveness_of_nodes_that_are_no_voters_is_ignored() -> None:
    bench = Bench(log_of(1)).lead()
    assert bench.machine.peer_up(9, bench.now_ms) == [] and bench.machine.peer_down(9, bench.now_ms) == []
    assert bench.machine.peer_down(1, bench.now_ms) == [] and bench.machine.alive == (1, 2, 3)
    for peer in (2, 3):
        bench.machine.peer_down(peer, bench.now_ms)
    for stranger in (8, 9):
        bench.machine.peer_up(stranger, bench.now_ms)
    assert not bench.machine.quorum_up()


def test_repeated_vote_of_one_node_counts_once() -> None:
    bench = Bench(log_of(1), size=5).become(Role.PRE_CANDIDATE)
    bench.grant(2, pre_vote=True)
    bench.grant(2, pre_vote=True)
    assert bench.machine.role is Role.PRE_CANDIDATE


def test_votes_for_an_earlier_campaign_do_not_count() -> None:
    bench = Bench(log_of(1)).become(Role.CANDIDATE)
    bench.tick()  # gave up, asks for pre-votes of the next epoch
    assert bench.grant(2) == [] and bench.machine.role is Role.PRE_CANDIDATE


def test_status_tells_who_leads_since_when_and_why() -> None:
    bench = Bench(log_of(1)).lead()
    status = bench.machine.status()
    assert (status.role, status.leader) == (Role.LEADER, 1)
    assert status.leader_reason == "no leader was known at the start; elected by nodes 1, 2 in epoch 2"
    assert status.leader_since_ms == 10_000
    assert [tuple(peer) for peer in status.peers] == [(2, True, 2, 0, False), (3, True, 2, 0, False)]
    bench.append(3, 7, (2, 2))
    assert bench.machine.status()[2:5] == (
        3, bench.now_ms, "node 1 was outvoted in a newer epoch; node 3 leads epoch 7",
    )  # fmt: skip


@pytest.mark.parametrize(("transfer", "words"), [(True, "node 2 handed over"), (False, "node 2 went down")])
def test_leader_lost_to_a_candidate_is_told_apart_from_a_hand_over(transfer: bool, words: str) -> None:
    bench = Bench(log_of(1)).follow(2)
    if not transfer:
        bench.machine.alive = (1, 3)  # its appends came, and no heartbeat yet
    request = VoteRequest(PARTITION, 2, 1, 1, False, transfer)
    bench.machine.step(3, request, bench.now_ms)
    assert bench.machine.status().leader_reason == words
    assert (bench.machine.lost_leader, bench.machine.lost_ms) == (2, bench.now_ms)


def test_idle_machine_weighs_less_than_600_bytes() -> None:
    """20,000 groups a node. They share who is up, who belongs to the group, and who voted."""
    machine, other = (Bench(log_of(1)).follow(2).machine for _ in range(2))
    shared = {"alive", "elected_by", "members", "_votes", "_suspect_votes"}
    assert all(getattr(machine, name) is getattr(other, name) for name in shared)
    own = {
        name for name in (*ReplicaState.__slots__, *Elections.__slots__) if name not in ("log", "_random_ms", *shared)
    }
    parts = [getattr(machine, name) for name in own]
    weight = sys.getsizeof(machine) + sum({id(part): sys.getsizeof(part) for part in parts}.values())
    assert weight < 600 and machine._lead is None


def test_leader_that_gives_up_is_followed_no_more() -> None:
    """Its node stays up: only its own request for votes tells the followers that it leads no more."""
    leader = Bench(log_of(1)).lead()
    leader.machine.on_stall(leader.now_ms)
    requests = [
        effect.message
        for effect in leader.machine.campaign(leader.now_ms)
        if isinstance(effect, Send) and isinstance(effect.message, VoteRequest)
    ]
    assert len(requests) == 2 and all(request.pre_vote for request in requests)
    follower = Bench(log_of(1)).follow(2)
    follower.machine.step(2, requests[0], follower.now_ms)
    assert follower.machine.leader == 0 and follower.machine.next_tick_ms() > 0


# --- the last epoch that a log can hold: only a member that invents epochs brings a group there ---


def at_the_last_epoch() -> Bench:
    bench = Bench(log_of(1))
    bench.step(2, VoteReply(PARTITION, EPOCH_MAX, False))
    assert bench.machine.epoch == EPOCH_MAX
    return bench


def test_nobody_stands_in_an_epoch_that_no_log_can_hold() -> None:
    bench = at_the_last_epoch()
    for _ in range(3):
        assert sends(bench.tick(), VoteRequest) == [] and bench.machine.epoch == EPOCH_MAX
    assert bench.machine.campaign(bench.now_ms) == []


def test_leader_of_the_last_epoch_is_followed_and_cannot_hand_over() -> None:
    bench = at_the_last_epoch()
    bench.step(3, AppendEntries(PARTITION, EPOCH_MAX, 1, 1, 0, []))
    assert bench.machine.leader == 3
    assert bench.step(3, TimeoutNow(PARTITION, EPOCH_MAX)) == [] and bench.machine.leader == 3


def test_suspect_replica_deposes_no_leader_of_the_last_epoch() -> None:
    bench = at_the_last_epoch()
    bench.machine.became_suspect(bench.now_ms)
    assert bench.step(3, AppendEntries(PARTITION, EPOCH_MAX, 1, 1, 0, [])) == []
    assert bench.machine.epoch == EPOCH_MAX
