"""What a leader does: feeding followers, counting what is fsynced, telling the commit position (R5, R6, R16)."""

from __future__ import annotations

import pytest

from storage_nodes.limits import APPEND_IN_FLIGHT_BYTES_MAX, COMMIT_NOTICE_MS
from storage_nodes.machines.raft.effects import (
    BecameLeader,
    Committed,
    Effect,
    Role,
    SafetyViolation,
    SendEntries,
    SendSnapshot,
)
from storage_nodes.machines.raft.timing import APPENDS_TRACKED_MAX, RETRANSMIT_MS
from storage_nodes.protocol.peer_messages import AppendEntries, AppendReply
from tests.storage_nodes.machines.raft.raft_bench import PARTITION, Bench, appends_to, log_of


def refuse(bench: Bench, sender: int, conflict_epoch: int, offset: int) -> list[Effect]:
    return bench.step(sender, AppendReply(PARTITION, bench.machine.epoch, False, offset, conflict_epoch))


def test_proposal_goes_to_every_follower_at_once() -> None:
    bench = Bench(log_of(1)).lead()
    assert bench.propose() == [SendEntries(2, 2, 2, 2, 2, 2), SendEntries(3, 2, 2, 2, 2, 2)]


def test_proposal_by_a_follower_is_a_bug_of_the_driver() -> None:
    with pytest.raises(AssertionError, match="only a leader proposes"):
        Bench(log_of(1)).machine.proposed(1, 10_000)


def test_commit_needs_the_fsync_of_a_majority() -> None:
    """R5: the leader's own counts like any other."""
    bench = Bench(log_of(1)).lead()
    bench.propose()
    assert bench.answer(2, 3) == []
    assert bench.sync() == [Committed(3)]
    bench.propose()
    bench.answer(2, 4)
    assert bench.answer(3, 4) == [Committed(4)], "two followers are a majority without the leader's disk"


def test_commit_of_five_needs_three() -> None:
    bench = Bench(log_of(1), size=5).lead()
    bench.propose()
    bench.sync()
    assert bench.answer(5, 3) == []
    assert bench.answer(4, 3) == [Committed(3)]


def test_commit_skips_what_only_older_epochs_wrote() -> None:
    """R6, figure 8: entries of epoch 1 on a majority are not committed before one of the own epoch is."""
    bench = Bench(log_of(1, 1)).become(Role.LEADER)
    bench.sync()
    assert refuse(bench, 2, 1, 1)[0] == SendEntries(2, 1, 1, 0, 2, 0)
    assert [effect for effect in bench.answer(2, 2) if isinstance(effect, Committed)] == []
    assert bench.answer(2, 3)[:2] == [Committed(3), BecameLeader()]


def test_replicated_is_what_every_voter_has_fsynced() -> None:
    bench = Bench(log_of(1)).lead()
    bench.propose()
    bench.sync()
    bench.answer(2, 3)
    assert bench.machine.replicated == 2
    bench.answer(3, 3)
    assert bench.machine.replicated == 3


def test_follower_learns_the_replicated_position_from_the_append() -> None:
    bench = Bench(log_of(1, 1)).follow(2)
    bench.step(2, AppendEntries(PARTITION, 1, 1, 2, 0, [], 2))
    assert bench.machine.replicated == 2


def test_answer_beyond_the_log_raises() -> None:
    bench = Bench(log_of(1)).lead()
    with pytest.raises(SafetyViolation, match="node 2 matches up to 77"):
        bench.answer(2, 77)


def test_refusal_backs_off_an_epoch_at_a_time() -> None:
    """R16: log 1 1 2 2 4 4; the follower's was 1 1 3 3 3."""
    bench = Bench(log_of(1, 1, 2, 2, 4, 4)).become(Role.LEADER)
    assert appends_to(refuse(bench, 2, 3, 5), 2)[0][1:3] == (4, 2)
    assert appends_to(refuse(bench, 2, 1, 2), 2)[0][1:3] == (2, 1)
    assert bench.answer(2, 7) == []
    assert bench.machine.status().peers[0].match == 7


def test_refusal_that_is_late_is_ignored() -> None:
    bench = Bench(log_of(1, 1)).lead()
    assert refuse(bench, 2, 1, 1) == []
    assert len(bench.propose()) == 2, "it still replicates"


def test_refusal_after_a_lost_append_sends_from_what_is_proved() -> None:
    bench = Bench(log_of(1)).lead()
    bench.propose()
    bench.propose()
    assert appends_to(refuse(bench, 2, 2, 2), 2)[0].prev_offset == 2


def test_probing_sends_one_append_at_a_time() -> None:
    bench = Bench(log_of(1)).become(Role.LEADER)
    assert appends_to(bench.propose(), 2) == []
    assert bench.answer(2, 3) == [], "the epoch start and the proposal are answered"
    bench.propose()
    bench.propose()
    assert bench.machine.status().peers[0].behind == 2


def test_pipeline_stops_at_the_bytes_in_flight_and_goes_on_with_an_answer() -> None:
    bench = Bench(log_of(1)).lead()
    machine = bench.machine
    bench.log.append(b"2:3:2:big")
    (first, _other) = machine.proposed(3, bench.now_ms)
    assert isinstance(first, SendEntries)
    assert machine.sent(2, 3, APPEND_IN_FLIGHT_BYTES_MAX) == []
    assert appends_to(bench.propose(), 2) == []
    assert appends_to(bench.answer(2, 3), 2) == [SendEntries(2, 3, 2, 2, 2, 2)]


def test_pipeline_remembers_a_bounded_number_of_appends() -> None:
    bench = Bench(log_of(1)).lead()
    for _ in range(APPENDS_TRACKED_MAX * 3):
        bench.propose()
    lead = bench.machine._lead
    assert lead is not None and len(lead.peers[0].in_flight) == APPENDS_TRACKED_MAX
    bench.answer(2, bench.log.log_end)
    assert lead.peers[0].in_flight == [] and lead.peers[0].in_flight_bytes == 0


def test_send_that_waits_for_the_disk_is_not_asked_for_twice() -> None:
    bench = Bench(log_of(1)).lead()
    machine = bench.machine
    bench.log.append(b"2:3:2:w")
    (effect, _other) = machine.proposed(3, bench.now_ms)
    assert isinstance(effect, SendEntries) and machine.is_current(effect)
    bench.log.append(b"3:4:2:w")
    assert appends_to(machine.proposed(4, bench.now_ms), 2) == []
    assert appends_to(machine.sent(2, 3, 10), 2) == [SendEntries(2, 3, 2, 2, 2, 2)]


def test_send_that_waited_past_the_step_down_is_no_longer_current() -> None:
    """R14: another epoch's log may have other entries there."""
    bench = Bench(log_of(1)).lead()
    effect = appends_to(bench.propose(), 2)[0]
    bench.append(3, 9, (2, 2))
    assert not bench.machine.is_current(effect)
    assert bench.machine.sent(2, 3, 10) == []


def test_send_that_was_overtaken_by_a_refusal_is_asked_for_again() -> None:
    bench = Bench(log_of(1)).lead()
    bench.propose()
    bench.log.append(b"3:4:2:w")
    bench.machine.proposed(4, bench.now_ms)
    assert refuse(bench, 2, 2, 2) == []
    assert appends_to(bench.machine.sent(2, 4, 10), 2) == [SendEntries(2, 2, 2, 2, 2, 2)]


def test_unanswered_append_is_sent_again_as_a_probe() -> None:
    bench = Bench(log_of(1)).lead()
    bench.propose()
    bench.sync()
    bench.answer(3, 3)
    due_ms = bench.now_ms + RETRANSMIT_MS
    bench.tick_at(bench.now_ms + COMMIT_NOTICE_MS)
    again = appends_to(bench.tick_at(due_ms + COMMIT_NOTICE_MS), 2)
    assert again == [SendEntries(2, 2, 2, 3, 2, 2)]


def test_follower_that_is_down_is_sent_nothing_and_everything_when_it_is_up() -> None:
    bench = Bench(log_of(1)).lead()
    bench.machine.peer_down(3, bench.now_ms)
    assert appends_to(bench.propose(), 3) == []
    bench.sync()
    bench.answer(2, 3)
    bench.tick()
    bench.answer(2, 3)
    assert bench.tick() == [] and bench.machine.next_tick_ms() == 0, "it is not waited for"
    effects = bench.perform(bench.machine.peer_up(3, bench.now_ms))
    assert appends_to(effects, 3) == [SendEntries(3, 2, 2, 3, 2, 2)]


def test_suspect_follower_that_a_snapshot_made_level_gets_an_append_however_often_it_says_so() -> None:
    """It knows the commit position by the snapshot, but only an append makes it trusted (seed 110008720)."""
    bench = Bench(log_of(1)).lead()
    bench.propose()
    bench.sync()
    bench.answer(2, 3)
    bench.log.trim(3)
    lost = AppendReply(PARTITION, bench.machine.epoch, False, 0, 0, 0, True)
    assert bench.step(3, lost) == [SendSnapshot(3, 2, False)]
    level = AppendReply(PARTITION, bench.machine.epoch, True, 3, 0, 3, True)
    bench.step(3, level)
    bench.step(3, level)
    assert appends_to(bench.tick(), 3) == [SendEntries(3, 3, 2, 3, 2, 3)]


def test_answer_of_a_suspect_follower_that_comes_late_is_asked_about() -> None:
    """It is trusted by now, and nothing else would be sent to it: a learner was never promoted (seed 160003747)."""
    bench = Bench(log_of(1)).lead()
    bench.propose()
    bench.sync()
    bench.answer(2, 3)
    bench.tick()
    for follower in (2, 3):
        bench.answer(follower, 3)
    assert bench.tick() == [] and bench.machine.next_tick_ms() == 0
    bench.step(3, AppendReply(PARTITION, bench.machine.epoch, True, 0, 0, 0, True))
    assert bench.tick() == [SendEntries(3, 3, 2, 3, 2, 3)]
    bench.answer(3, 3)
    assert bench.tick() == [] and bench.machine.next_tick_ms() == 0


def test_commit_is_told_to_idle_followers_soon_and_then_there_is_no_timer() -> None:
    bench = Bench(log_of(1)).lead()
    bench.propose()
    bench.sync()
    bench.answer(2, 3, known=2)
    bench.answer(3, 3, known=2)
    assert bench.machine.next_tick_ms() <= bench.now_ms + COMMIT_NOTICE_MS
    assert bench.tick() == [SendEntries(2, 3, 2, 3, 2, 3), SendEntries(3, 3, 2, 3, 2, 3)]
    bench.answer(2, 3)
    bench.answer(3, 3)
    assert bench.tick() == [] and bench.machine.next_tick_ms() == 0


def test_commit_notice_is_repeated_until_an_answer_shows_that_it_arrived() -> None:
    """An answer to the append before the notice must not be taken for one to the notice."""
    bench = Bench(log_of(1)).lead()
    bench.propose()
    bench.sync()
    bench.answer(3, 3)
    bench.tick()
    bench.answer(3, 3)
    bench.answer(2, 3, known=2)
    assert appends_to(bench.tick(), 2) == [SendEntries(2, 3, 2, 3, 2, 3)]
    bench.answer(2, 3, known=3)
    assert bench.tick() == [] and bench.machine.next_tick_ms() == 0


def test_commit_notice_that_gets_no_answer_is_sent_again() -> None:
    bench = Bench(log_of(1)).lead()
    bench.propose()
    bench.sync()
    bench.answer(2, 3, known=2)
    bench.answer(3, 3, known=2)
    bench.tick()
    bench.answer(3, 3)
    assert appends_to(bench.tick(), 2) == [SendEntries(2, 3, 2, 3, 2, 3)]


def test_commit_rides_on_appends_while_there_are_any() -> None:
    """A busy group sends no notices."""
    bench = Bench(log_of(1)).lead()
    for _ in range(50):
        bench.now_ms += COMMIT_NOTICE_MS // 4
        assert len(bench.propose()) == 2
        bench.sync()
        bench.answer(2, bench.log.log_end)
        bench.answer(3, bench.log.log_end)
        assert bench.tick_at(bench.now_ms) == []


def test_driver_that_could_send_nothing_is_asked_again_later() -> None:
    bench = Bench(log_of(1)).lead()
    bench.log.append(b"2:3:2:w")
    bench.machine.proposed(3, bench.now_ms)
    assert bench.machine.sent(2, 2, 0) == [] and bench.machine.sent(3, 3, 9) == []
    assert appends_to(bench.tick(), 2) == [SendEntries(2, 2, 2, 2, 2, 2)]
