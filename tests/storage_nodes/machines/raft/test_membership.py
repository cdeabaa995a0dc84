"""Membership changes, one server at a time: what is refused, what counts, who has a say (R6, R14, R15, R34)."""

from __future__ import annotations

import pytest

from storage_nodes.limits import PARTITION_MEMBERS_MAX, PROMOTION_LAG_RECORDS_MAX
from storage_nodes.machines.raft.effects import (
    AppendConfiguration,
    Committed,
    ConfigurationCommitted,
    Effect,
    Role,
    SaveVote,
    SendEntries,
    SendSnapshot,
    SteppedDown,
)
from storage_nodes.machines.raft.membership import AddLearner, Change, ConfigChangeError, Promote, Remove, changed
from storage_nodes.machines.raft.timing import ELECTION_TIMEOUT_MS, RETRANSMIT_MS
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.peer_messages import (
    AppendEntries,
    AppendReply,
    SnapshotChunk,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tests.storage_nodes.machines.raft.raft_bench import PARTITION, Bench, appends_to, log_of, reply_in, sends
from tests.storage_nodes.machines.raft.raft_disk import Image, SimLog, make_entry, name_of

THREE = Configuration((1, 2, 3))


def change(bench: Bench, wanted: Change) -> list[Effect]:
    assert bench.machine.refusal_of(wanted) is None
    return bench.perform(bench.machine.change_configuration(wanted, bench.now_ms))


def commit_all(bench: Bench) -> list[Effect]:
    """The own disk and all members have everything."""
    effects = bench.sync()
    for node in bench.machine.configuration.members:
        if node != 1 and bench.machine.role is Role.LEADER:
            effects += bench.answer(node, bench.log.log_end)
    return effects


def led(size: int = 3) -> Bench:
    """Serving leader; node 4 (size + 1) is up, and no member."""
    bench = Bench(log_of(1), size).lead()
    bench.machine.peer_up(size + 1, bench.now_ms)
    return bench


def with_learner() -> Bench:
    bench = led()
    change(bench, AddLearner(4))
    commit_all(bench)
    assert bench.machine.configuration == Configuration((1, 2, 3), (4,))
    return bench


# --- what a change is ---------------------------------------------------------------------------------------


def test_change_of_a_configuration_moves_one_node() -> None:
    four = changed(THREE, AddLearner(4))
    assert four == Configuration((1, 2, 3), (4,))
    assert changed(four, Promote(4)) == Configuration((1, 2, 3, 4))
    assert changed(four, Remove(4)) == THREE
    assert changed(THREE, Remove(1)) == Configuration((2, 3))


@pytest.mark.parametrize("wanted", [Promote(2), Remove(9)])
def test_change_that_is_so_already_succeeds_without_an_entry(wanted: Change) -> None:
    bench = led()
    assert change(bench, wanted) == []
    assert not bench.machine.configuration_pending


def test_learner_added_again_is_a_success_without_an_entry() -> None:
    assert change(with_learner(), AddLearner(4)) == []


def test_change_is_appended_in_force_at_once_and_committed_later() -> None:
    bench = led()
    effects = change(bench, AddLearner(4))
    assert effects[0] == AppendConfiguration(Configuration((1, 2, 3), (4,)))
    assert bench.machine.learners == (4,) and bench.machine.configuration_pending
    assert appends_to(effects, 4) == [SendEntries(4, 3, 2, 2, 2, 2, True)], "asked at once where the logs meet"
    bench.sync()
    committed = bench.answer(2, 3)
    assert committed == [Committed(3), ConfigurationCommitted(Configuration((1, 2, 3), (4,)))]
    assert not bench.machine.configuration_pending


# --- what is refused ----------------------------------------------------------------------------------------


def test_change_by_a_follower_is_refused() -> None:
    bench = Bench(log_of(1)).follow(2)
    assert bench.machine.refusal_of(AddLearner(4)) is ConfigChangeError.NOT_LEADER
    with pytest.raises(AssertionError, match="refused"):
        bench.machine.change_configuration(AddLearner(4), bench.now_ms)


def test_change_before_an_entry_of_the_own_epoch_is_committed_is_refused() -> None:
    """R15, B7: the bug of 2015."""
    bench = Bench(log_of(1)).become(Role.LEADER)
    assert bench.machine.refusal_of(Remove(3)) is ConfigChangeError.NOT_SERVING
    commit_all(bench)
    assert bench.machine.refusal_of(Remove(3)) is None


def test_change_while_another_is_not_committed_is_refused() -> None:
    """R15, R34, B25."""
    bench = led()
    change(bench, AddLearner(4))
    assert bench.machine.refusal_of(Remove(3)) is ConfigChangeError.CHANGE_UNDER_WAY
    commit_all(bench)
    assert bench.machine.refusal_of(Remove(3)) is None


def test_change_during_a_hand_over_is_refused() -> None:
    bench = led()
    bench.machine.transfer(2, bench.now_ms)
    assert bench.machine.refusal_of(AddLearner(4)) is ConfigChangeError.HANDING_OVER


def test_change_that_the_configuration_does_not_allow_is_refused() -> None:
    bench = led()
    assert bench.machine.refusal_of(AddLearner(2)) is ConfigChangeError.ALREADY_VOTER
    assert bench.machine.refusal_of(Promote(4)) is ConfigChangeError.NOT_A_LEARNER
    alone = Bench(log_of(1), 1)
    alone.sync()
    assert alone.machine.refusal_of(Remove(1)) is ConfigChangeError.LAST_VOTER
    full = Bench(log_of(1), boot=Configuration((1,), tuple(range(2, PARTITION_MEMBERS_MAX + 1))))
    full.sync()
    assert full.machine.refusal_of(AddLearner(99)) is ConfigChangeError.TOO_MANY_MEMBERS


def test_learner_is_promoted_only_when_caught_up() -> None:
    bench = led()
    change(bench, AddLearner(4))
    bench.sync()
    bench.answer(2, 3)
    assert bench.machine.refusal_of(Promote(4)) is ConfigChangeError.NOT_CAUGHT_UP, "it has not answered yet"
    bench.answer(4, 2)
    assert bench.machine.refusal_of(Promote(4)) is ConfigChangeError.NOT_CAUGHT_UP, "not beyond the entry that added it"
    bench.answer(4, 3)
    assert bench.machine.refusal_of(Promote(4)) is None
    bench.propose(records=PROMOTION_LAG_RECORDS_MAX)
    assert bench.machine.refusal_of(Promote(4)) is None
    bench.propose()
    assert bench.machine.refusal_of(Promote(4)) is ConfigChangeError.NOT_CAUGHT_UP


def test_learner_that_is_down_or_suspect_is_not_promoted() -> None:
    bench = with_learner()
    epoch, end = bench.machine.epoch, bench.log.log_end
    bench.step(4, AppendReply(PARTITION, epoch, True, end, 0, end, True))
    assert bench.machine.refusal_of(Promote(4)) is ConfigChangeError.SUSPECT
    bench.answer(4, end)
    assert bench.machine.refusal_of(Promote(4)) is None
    bench.machine.peer_down(4, bench.now_ms)
    assert bench.machine.refusal_of(Promote(4)) is ConfigChangeError.NOT_CAUGHT_UP
    bench.machine.peer_up(4, bench.now_ms)
    assert bench.machine.refusal_of(Promote(4)) is ConfigChangeError.NOT_CAUGHT_UP, "it must prove anew what it holds"


# --- what counts --------------------------------------------------------------------------------------------


def test_learner_is_fed_and_never_counted() -> None:
    """R6, B5."""
    bench = with_learner()
    assert appends_to(bench.propose(), 4)
    bench.sync()
    assert bench.answer(4, 4) == [] and bench.machine.commit == 3
    assert bench.machine.replicated == 3
    assert bench.answer(2, 4) == [Committed(4)]


def test_acknowledgement_of_a_removed_voter_does_not_count() -> None:
    """R6, B5."""
    bench = led(4)
    change(bench, Remove(4))
    bench.sync()
    assert bench.answer(4, 3) == [], "one and the leader are no majority of 1, 2, 3 without it"
    assert bench.machine.commit == 2
    assert Committed(3) in bench.answer(3, 3)


def test_promoted_learner_counts_from_the_entry_on() -> None:
    bench = with_learner()
    change(bench, Promote(4))
    assert bench.machine.quorum == 3
    bench.sync()
    assert bench.answer(2, 4) == [] and bench.machine.commit == 3, "two of four are no majority"
    assert bench.answer(4, 4) == [Committed(4), ConfigurationCommitted(Configuration((1, 2, 3, 4)))]


def test_entries_of_a_cut_off_configuration_count_by_the_one_before() -> None:
    """In force when appended, undone when cut."""
    bench = Bench(log_of(1, 1), 3).follow(2)
    bench.append(2, 1, (1, 2), [make_entry(2, 3, 1, "voters=2,3/")])
    assert bench.machine.voters == (2, 3) and bench.machine.configuration_pending
    bench.append(3, 5, (1, 2), [make_entry(2, 3, 5, "start")])
    assert bench.machine.configuration == THREE and not bench.machine.configuration_pending


def test_configuration_in_the_log_is_in_force_after_a_restart() -> None:
    entries = (make_entry(0, 1, 1, "voters=1,2,3/4"), make_entry(1, 2, 1, "w"), make_entry(2, 3, 1, "voters=1,2,3,4/"))
    machine = Bench(SimLog(Image(entries, 1)), commit=1).machine
    assert machine.voters == (1, 2, 3, 4) and machine.configuration_pending
    assert not Bench(SimLog(Image(entries, 1)), commit=3).machine.configuration_pending


def test_learner_holds_up_trimming_but_not_what_is_called_replicated() -> None:
    bench = with_learner()
    bench.propose()
    bench.sync()
    bench.answer(2, 4)
    bench.answer(3, 4)
    assert (bench.machine.replicated, bench.machine.needed_from()) == (4, 3)


# --- a learner, a removed replica ---------------------------------------------------------------------------


def learner_bench() -> Bench:
    """Node 1, created as a learner beside voters 2, 3, 4."""
    return Bench(boot=Configuration((2, 3, 4), (1,)), size=4)


def test_learner_never_campaigns() -> None:
    bench = learner_bench()
    assert bench.machine.next_tick_ms() == 0
    assert bench.machine.campaign(bench.now_ms) == []
    bench.append(2, 5, (0, 0), [make_entry(0, 1, 5, "start")], learner=True)
    bench.machine.peer_down(2, bench.now_ms)
    assert bench.machine.leader == 0 and bench.machine.next_tick_ms() == 0
    assert bench.step(2, TimeoutNow(PARTITION, 5)) == []


def test_blank_replica_hears_only_a_leader_that_has_it_as_a_learner() -> None:
    """An earlier replica of this node may have voted, and acknowledged, in the epochs that these messages are of."""
    bench = learner_bench()
    entry = make_entry(0, 1, 5, "start")
    assert bench.ask(2, 5) == [] and bench.ask(2, 5, pre_vote=True) == []
    assert bench.append(2, 5, (0, 0), [entry]) == []
    assert bench.step(2, SnapshotChunk(PARTITION, 5, 9, 5, 0, b"", [entry], True)) == []
    assert bench.step(2, AppendReply(PARTITION, 5, False, 0)) == [] and bench.machine.epoch == 0
    effects = bench.append(2, 5, (0, 0), [entry], learner=True)
    assert effects[0] == SaveVote(5, 2), "its vote in the epoch it enters is the leader's"
    assert reply_in(effects).message.ok  # type: ignore[union-attr]


def test_blank_replica_gives_no_second_vote_in_the_epoch_it_enters() -> None:
    bench = learner_bench()
    bench.append(2, 5, (0, 0), [make_entry(0, 1, 5, "start")], learner=True)
    bench.machine.peer_down(2, bench.now_ms)
    assert not reply_in(bench.ask(3, 5)).message.granted  # type: ignore[union-attr]
    assert reply_in(bench.ask(3, 6)).message.granted  # type: ignore[union-attr]


def test_voter_that_came_as_a_learner_and_lost_its_log_hears_its_leader_and_votes_as_a_suspect() -> None:
    """Its leader knows it as a voter: nothing that it is sent is for a learner."""
    bench = learner_bench()
    bench.machine.suspect = True
    bench.machine.was_made_voter()
    vote = reply_in(bench.ask(3, 5)).message
    assert vote == VoteReply(PARTITION, 5, True, suspect=True)
    entry = make_entry(0, 1, 6, "start")
    effects = bench.append(2, 6, (0, 0), [entry])
    assert effects[0] == SaveVote(6, 0), "it may have voted for another one in that epoch"
    assert reply_in(effects).message.ok and bench.log.log_end == 1  # type: ignore[union-attr]


def test_learner_that_lost_nothing_stays_deaf_whatever_becomes_of_its_move() -> None:
    bench = learner_bench()
    bench.machine.was_made_voter()
    assert bench.ask(2, 5) == [] and bench.append(2, 5, (0, 0), [make_entry(0, 1, 5, "start")]) == []


def test_vote_is_given_to_a_candidate_that_the_own_configuration_does_not_name() -> None:
    """It may know a later one, in which this replica counts."""
    bench = Bench(log_of(1), boot=THREE)
    assert reply_in(bench.ask(9, 7)).message == VoteReply(PARTITION, 7, True)


def test_append_of_a_leader_that_the_own_configuration_does_not_name_is_taken() -> None:
    bench = Bench(log_of(1), boot=THREE)
    bench.append(9, 7, (1, 1), [make_entry(1, 2, 7, "voters=1,2,9/")])
    assert bench.machine.leader == 9 and bench.machine.voters == (1, 2, 9)
    assert bench.machine.next_tick_ms(), "whether that node is up is not known"
    bench.machine.peer_up(9, bench.now_ms)
    assert bench.machine.next_tick_ms() == 0


def test_removed_replica_stops_campaigning_when_it_knows_that_its_removal_is_committed() -> None:
    bench = Bench(log_of(1)).follow(2)
    bench.append(2, 1, (1, 1), [make_entry(1, 2, 1, "voters=2,3/")])
    bench.machine.peer_down(2, bench.now_ms)
    assert bench.machine.next_tick_ms(), "the entry may yet be cut off"
    effects = bench.append(2, 1, (1, 2), commit=2)
    assert ConfigurationCommitted(Configuration((2, 3))) in effects
    assert bench.machine.next_tick_ms() == 0 and bench.machine.campaign(bench.now_ms) == []


def test_candidate_that_its_log_removes_does_not_count_its_own_vote() -> None:
    """It may be the only one whose log is complete enough to win (Raft thesis, figure 4.6)."""
    bench = Bench(log_of(1)).follow(2)
    bench.append(2, 1, (1, 1), [make_entry(1, 2, 1, "voters=2,3/")])
    bench.machine.peer_down(2, bench.now_ms)
    bench.tick()
    assert bench.machine.role is Role.PRE_CANDIDATE
    bench.grant(3, pre_vote=True)
    assert bench.machine.role is Role.PRE_CANDIDATE
    bench.grant(2, pre_vote=True)
    assert bench.machine.role is Role.CANDIDATE


def test_removed_voter_is_told_so_and_then_left_alone() -> None:
    bench = led(4)
    change(bench, Remove(4))
    bench.sync()
    bench.answer(2, 3)
    assert [peer.node_id for peer in bench.machine.status().peers] == [2, 3]
    bench.answer(4, 3, known=2)
    bench.answer(3, 3)
    assert appends_to(bench.tick(), 4) == [SendEntries(4, 3, 2, 3, 2, 3)], "it learns of the commit"
    bench.answer(4, 3)
    while bench.machine.next_tick_ms():
        assert appends_to(bench.tick(), 4) == []
        for node in (2, 3):
            bench.answer(node, 3)
    assert appends_to(bench.propose(), 4) == []


def test_removed_voter_that_does_not_answer_is_given_up() -> None:
    bench = led(4)
    change(bench, Remove(4))
    commit_all(bench)
    for _ in range(10):
        if not bench.machine.next_tick_ms():
            break
        bench.tick()
        for node in (2, 3):
            bench.answer(node, 3)
    assert bench.machine.next_tick_ms() == 0 and bench.now_ms < 10_000 + 3 * RETRANSMIT_MS


# --- the leader itself --------------------------------------------------------------------------------------


def test_leader_that_removes_itself_leads_until_the_entry_is_committed_then_hands_over() -> None:
    bench = led()
    change(bench, Remove(1))
    bench.sync()
    bench.answer(2, 3)
    assert bench.machine.commit == 2, "its own disk does not count"
    effects = bench.answer(3, 3)
    assert effects[:2] == [Committed(3), ConfigurationCommitted(Configuration((2, 3)))]
    assert len(sends(effects, TimeoutNow)) == 1 and bench.machine.role is Role.LEADER
    effects = bench.step(2, VoteRequest(PARTITION, bench.machine.epoch + 1, 2, 3, False, True))
    assert bench.machine.role is Role.FOLLOWER and bench.machine.next_tick_ms() == 0
    assert reply_in(effects).message.granted  # type: ignore[union-attr]


def test_removed_leader_to_whom_nobody_listens_steps_down_and_stays_down() -> None:
    bench = led()
    change(bench, Remove(1))
    commit_all(bench)
    assert bench.machine.transferee in (2, 3)
    effects = bench.tick_at(bench.now_ms + ELECTION_TIMEOUT_MS)
    assert effects == [SteppedDown(0, "node 1 was removed from the group")]
    assert bench.machine.next_tick_ms() == 0


def test_learner_is_no_target_of_a_hand_over() -> None:
    bench = with_learner()
    assert bench.machine.transfer(4, bench.now_ms) == [] and not bench.machine.transferee


# --- feeding ------------------------------------------------------------------------------------------------


def test_learner_below_what_is_whole_gets_a_snapshot_that_says_it_is_for_a_learner() -> None:
    bench = led()
    bench.log.trim(2)
    change(bench, AddLearner(4))
    effects = bench.step(4, AppendReply(PARTITION, bench.machine.epoch, False, 0, 0, 0, True))
    assert effects == [SendSnapshot(4, 2, True)]


def test_acknowledgement_of_an_earlier_replica_of_a_node_does_not_stand_for_its_new_one() -> None:
    """The old one's answer comes late; the new one, whose log is empty, is fed all the same."""
    bench = with_learner()
    change(bench, Remove(4))
    commit_all(bench)
    change(bench, AddLearner(4))
    bench.answer(4, 3)
    assert bench.machine.refusal_of(Promote(4)) is ConfigChangeError.CHANGE_UNDER_WAY
    commit_end = bench.log.log_end
    bench.sync()
    bench.answer(2, commit_end)
    assert bench.machine.refusal_of(Promote(4)) is ConfigChangeError.NOT_CAUGHT_UP
    effects = bench.step(4, AppendReply(PARTITION, bench.machine.epoch, False, 0, 0, 0, True))
    assert appends_to(effects, 4)[0].prev_offset == 0


def test_refusal_by_an_empty_log_says_that_what_was_acknowledged_may_be_gone() -> None:
    bench = learner_bench()
    effects = bench.append(2, 5, (5, 9), learner=True)
    assert reply_in(effects).message == AppendReply(PARTITION, 5, False, 0, 0, 0, True)


def test_answer_to_a_snapshot_that_is_not_needed_says_that_the_replica_is_suspect() -> None:
    bench = learner_bench()
    bench.append(2, 5, (0, 0), [make_entry(0, 1, 5, "start")], learner=True)
    bench.machine.suspect = True
    effects = bench.step(2, SnapshotChunk(PARTITION, 5, 1, 5, 0, b"", [], True))
    assert reply_in(effects).message == AppendReply(PARTITION, 5, True, 1, 0, 0, True)


def test_messages_to_voters_do_not_say_learner() -> None:
    bench = with_learner()
    assert [effect.learner for effect in bench.propose() if isinstance(effect, SendEntries)] == [False, False, True]
    assert not AppendEntries(PARTITION, 1, 1, 1, 0, []).learner


@pytest.mark.parametrize(("commit", "role"), [(1, Role.CANDIDATE), (2, Role.LEADER)])
def test_votes_in_doubt_win_only_with_all_of_the_configuration_that_may_come_back(commit: int, role: Role) -> None:
    """Node 3 was taken out by an entry that only node 1 has, and committed without it since, with node 2, which then
    lost its disk: the two of them have all votes of the new configuration, and not what was committed (R12b)."""
    entries = (make_entry(0, 1, 1, "e0"), make_entry(1, 2, 1, name_of(Configuration((1, 2)))))
    bench = Bench(SimLog(Image(entries, 1)), commit=commit).become(Role.CANDIDATE)
    bench.step(2, VoteReply(PARTITION, bench.machine.epoch, True, False, True))
    assert bench.machine.voters == (1, 2) and bench.machine.role is role
