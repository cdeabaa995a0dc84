"""Handing leadership over (Raft thesis, 3.10): without an election timeout, without losing what clients wait for."""

from __future__ import annotations

import pytest

from storage_nodes.machines.raft.effects import Effect, Role, SaveVote, Send, SteppedDown, TransferEnded
from storage_nodes.machines.raft.timing import ELECTION_TIMEOUT_MS
from storage_nodes.protocol.peer_messages import TimeoutNow, VoteReply, VoteRequest
from tests.storage_nodes.machines.raft.raft_bench import PARTITION, Bench, log_of, reply_in, sends
from tests.storage_nodes.machines.raft.raft_cluster import Cluster


def transfer(bench: Bench, target: int) -> list[Effect]:
    return bench.perform(bench.machine.transfer(target, bench.now_ms))


def test_transfer_to_a_level_follower_tells_it_at_once() -> None:
    bench = Bench(log_of(1)).lead()
    assert transfer(bench, 2) == [Send(2, TimeoutNow(PARTITION, bench.machine.epoch), False)]
    assert bench.machine.transferee == 2


def test_transfer_waits_until_the_target_holds_everything_and_all_is_committed() -> None:
    bench = Bench(log_of(1)).lead()
    bench.propose()
    assert sends(transfer(bench, 2), TimeoutNow) == []
    assert sends(bench.answer(2, 3), TimeoutNow) == [], "not committed: the own fsync is missing"
    assert len(sends(bench.sync(), TimeoutNow)) == 1
    assert sends(bench.answer(3, 3), TimeoutNow) == [], "it is told once"


def test_transfer_of_which_the_target_was_not_told_ends_and_the_leader_proposes_again() -> None:
    bench = Bench(log_of(1)).lead()
    bench.propose()
    assert sends(transfer(bench, 2), TimeoutNow) == [], "it does not hold everything"
    bench.answer(3, 3)
    with pytest.raises(AssertionError, match="hands over"):
        bench.machine.proposed(bench.log.log_end, bench.now_ms)
    assert TransferEnded(2) in bench.tick_at(bench.now_ms + ELECTION_TIMEOUT_MS)
    assert bench.machine.role is Role.LEADER and not bench.machine.transferee
    assert bench.propose()


def test_leader_whose_target_was_told_and_did_not_stand_leads_on_in_another_epoch_only() -> None:
    """The target may stand at any time, by votes that no lease keeps back."""
    bench = Bench(log_of(1)).lead()
    transfer(bench, 2)
    assert bench.machine.next_tick_ms() == bench.now_ms + ELECTION_TIMEOUT_MS
    effects = bench.tick()
    assert effects[0] == SteppedDown(0, "node 1 handed over")
    assert [send.message.pre_vote for send in sends(effects, VoteRequest)] == [True, True]  # type: ignore[union-attr]
    assert bench.machine.role is Role.PRE_CANDIDATE


@pytest.mark.parametrize("target", [1, 9])
def test_transfer_to_itself_or_a_stranger_has_no_effect(target: int) -> None:
    bench = Bench(log_of(1)).lead()
    assert transfer(bench, target) == [] and bench.machine.transferee == 0


def test_transfer_to_a_node_that_is_down_or_before_serving_has_no_effect() -> None:
    bench = Bench(log_of(1)).lead()
    bench.machine.peer_down(2, bench.now_ms)
    assert transfer(bench, 2) == []
    fresh = Bench(log_of(1)).become(Role.LEADER)
    assert transfer(fresh, 2) == [] and fresh.machine.transferee == 0


def test_target_told_by_its_leader_asks_for_votes_without_pre_votes() -> None:
    bench = Bench(log_of(1)).follow(2)
    effects = bench.step(2, TimeoutNow(PARTITION, 1))
    assert effects[0] == SaveVote(2, 1)
    request = VoteRequest(PARTITION, 2, 1, 1, False, True)
    assert effects[1:] == [Send(2, request, True), Send(3, request, True)]
    assert bench.machine.next_tick_ms(), "a candidate keeps a timer"


@pytest.mark.parametrize(("sender", "epoch"), [(3, 1), (2, 0), (2, 2)])
def test_target_told_by_another_node_or_in_another_epoch_stays_follower(sender: int, epoch: int) -> None:
    """R14."""
    bench = Bench(log_of(1)).follow(2)
    assert bench.step(sender, TimeoutNow(PARTITION, epoch)) == []
    assert bench.machine.leader == 2


def test_voter_with_a_live_leader_votes_in_an_election_that_its_leader_asked_for() -> None:
    bench = Bench(log_of(1)).follow(2)
    assert [send.message for send in sends(bench.ask(3, 2), VoteReply)] == [VoteReply(PARTITION, 1, False)], "R10"
    effects = bench.step(3, VoteRequest(PARTITION, 2, 1, 1, False, True))
    assert reply_in(effects).message == VoteReply(PARTITION, 2, True)
    assert bench.machine.next_tick_ms(), "whoever has no leader keeps a timer"


def test_voter_refuses_a_target_whose_log_is_less_complete() -> None:
    bench = Bench(log_of(1, 1)).follow(2)
    effects = bench.step(3, VoteRequest(PARTITION, 2, 1, 1, False, True))
    assert reply_in(effects).message == VoteReply(PARTITION, 2, False)


def test_transfer_in_a_healthy_group_takes_milliseconds_and_loses_no_write() -> None:
    cluster = Cluster(3, 1)
    cluster.run(3_000)
    (leader,) = cluster.leaders()
    target = leader % 3 + 1
    name = cluster.propose(leader)
    cluster.input(cluster.nodes[leader], "transfer", target, cluster.now_ms)
    cluster.run(60)
    assert cluster.leaders() == [target]
    assert cluster.acked == [name], "who waited was answered before the hand-over"
    cluster.run(2_000)
    assert cluster.leaders() == [target]
    assert not any(node.machine.next_tick_ms() for node in cluster.nodes.values())
