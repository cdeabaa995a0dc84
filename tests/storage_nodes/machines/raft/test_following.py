"""The follower's half of log matching (R5, R16, R17)."""

from __future__ import annotations

import pytest

from storage_nodes.machines.raft.effects import (
    Append,
    Committed,
    Role,
    SafetyViolation,
    SaveVote,
    Send,
    SteppedDown,
    Truncate,
    Trusted,
    WithdrawPromise,
)
from storage_nodes.protocol.peer_messages import AppendReply, SnapshotChunk, VoteReply, VoteRequest
from tests.storage_nodes.machines.raft.raft_bench import PARTITION, Bench, log_of, reply_in, sends
from tests.storage_nodes.machines.raft.raft_disk import make_entry


def entry(base: int, epoch: int, records: int = 1) -> bytes:
    return make_entry(base, base + records, epoch, f"n{base}")


def test_append_that_continues_the_log_is_appended_and_answered_after_the_fsync() -> None:
    """R5, B10."""
    bench = Bench(log_of(1)).follow(2)
    new = entry(1, 1, 3)
    ok = AppendReply(PARTITION, 1, True, 4, 0, 1)
    assert bench.append(2, 1, (1, 1), [new], commit=1) == [Append([new]), Send(2, ok, True), Committed(1)]


def test_append_of_several_entries_is_appended_whole() -> None:
    bench = Bench(log_of(1)).follow(2)
    effects = bench.append(2, 1, (1, 1), [entry(1, 1), entry(2, 1)])
    assert effects[0] == Append([entry(1, 1), entry(2, 1)]) and bench.log.log_end == 3


def test_append_that_is_shorter_than_the_log_cuts_nothing() -> None:
    """R17, B1: a late or repeated message."""
    log = log_of(1, 1, 1)
    bench = Bench(log).follow(2)
    assert bench.append(2, 1, (0, 0), [log.entries[0]]) == [Send(2, AppendReply(PARTITION, 1, True, 1), True)]
    assert bench.append(2, 1, (1, 1)) == [Send(2, AppendReply(PARTITION, 1, True, 1), True)]
    assert bench.log.log_end == 3


def test_append_that_overlaps_adds_only_what_is_new() -> None:
    log = log_of(1, 1)
    bench = Bench(log).follow(2)
    effects = bench.append(2, 1, (0, 0), [*log.entries, entry(2, 1)])
    assert effects == [Append([entry(2, 1)]), Send(2, AppendReply(PARTITION, 1, True, 3), True)]


def test_append_with_another_epoch_at_an_offset_cuts_from_there() -> None:
    """R17: a real conflict."""
    log = log_of(1, 1, 2, 2)
    bench = Bench(log)
    effects = bench.append(2, 3, (1, 1), [log.entries[1], entry(2, 3)])
    assert effects[1:] == [Truncate(2), Append([entry(2, 3)]), Send(2, AppendReply(PARTITION, 3, True, 3), True)]


def test_append_that_would_cut_below_the_commit_raises() -> None:
    """R17: it stops, it does not obey."""
    bench = Bench(log_of(1, 1, 1), commit=3)
    with pytest.raises(SafetyViolation, match="cut at 1, below the commit position 3"):
        bench.append(2, 2, (1, 1), [entry(1, 2)])
    assert bench.log.log_end == 3


def test_append_after_a_committed_position_of_another_epoch_raises() -> None:
    bench = Bench(log_of(1, 1, 1), commit=2)
    with pytest.raises(SafetyViolation, match="epoch at committed offset 2 is 1 here and 2 at the leader"):
        bench.append(2, 3, (2, 2), [entry(2, 3)])


def test_append_of_another_entry_of_the_same_epoch_raises() -> None:
    """One epoch has one leader, and that one writes an offset once."""
    bench = Bench(log_of(1, 1), commit=0)
    with pytest.raises(SafetyViolation, match="two different entries of epoch 1 at offset 1"):
        bench.append(2, 1, (1, 1), [entry(1, 1, records=5)])


@pytest.mark.parametrize(
    ("prev", "conflict_epoch", "offset"),
    [
        ((4, 9), 4, 6),  # beyond the log: all of it may match
        ((3, 9), 2, 4),  # an epoch it never saw: the one before
        ((5, 6), 4, 6),
        ((2, 6), 2, 4),  # it has a later epoch there
        ((1, 3), 1, 2),
    ],
)
def test_append_after_what_the_log_lacks_is_refused_with_an_epoch_boundary(
    prev: tuple[int, int], conflict_epoch: int, offset: int
) -> None:
    """R16."""
    bench = Bench(log_of(1, 1, 2, 2, 4, 4))
    reply = reply_in(bench.append(2, 6, prev, [entry(prev[1], 6)]))
    assert reply == (2, AppendReply(PARTITION, 6, False, offset, conflict_epoch), True)
    assert bench.log.log_end == 6


def test_commit_follows_the_leader_up_to_what_matches_and_never_falls() -> None:
    log = log_of(1, 1, 1)
    bench = Bench(log).follow(2)
    assert bench.append(2, 1, (0, 0), [log.entries[0]], commit=3)[-1] == Committed(1)
    assert bench.append(2, 1, (1, 3), commit=2)[-1] == Committed(2)
    bench.append(2, 1, (1, 3), commit=1)
    assert bench.machine.commit == 2


def test_append_with_a_gap_is_used_up_to_the_gap() -> None:
    bench = Bench(log_of(1)).follow(2)
    effects = bench.append(2, 1, (1, 1), [entry(1, 1), entry(5, 1)])
    assert effects == [Append([entry(1, 1)]), Send(2, AppendReply(PARTITION, 1, True, 2), True)]
    assert bench.append(2, 1, (1, 2), [entry(5, 1)]) == [Send(2, AppendReply(PARTITION, 1, True, 2), True)]
    assert reply_in(bench.append(2, 1, (1, 1), [entry(4, 1)])).message.offset == 1  # type: ignore[union-attr]


def test_append_that_makes_a_suspect_log_whole_is_answered_as_of_one_that_is_not() -> None:
    """R12: an idle leader sends nothing more, and would never hear that this learner may be promoted."""
    bench = Bench(log_of(1)).follow(2)
    bench.machine.suspect = True
    effects = bench.append(2, 1, (1, 1), [entry(1, 1)], commit=1)
    assert Send(2, AppendReply(PARTITION, 1, True, 2, 0, 1), True) in effects and Trusted() in effects


def test_append_that_does_not_reach_the_commit_is_answered_as_of_a_suspect_log() -> None:
    bench = Bench(log_of(1)).follow(2)
    bench.machine.suspect = True
    effects = bench.append(2, 1, (1, 1), [entry(1, 1)], commit=9)
    assert Send(2, AppendReply(PARTITION, 1, True, 2, 0, 2, True), True) in effects and Trusted() not in effects


def test_first_leader_that_speaks_to_a_suspect_voter_is_deposed_the_next_one_is_followed() -> None:
    """R12: it may be a stale one, and what was forgotten a vote for its successor (seed 7000868)."""
    bench = Bench(suspect=True)
    effects = bench.append(2, 1, (0, 0), [entry(0, 1)], commit=1)
    assert effects == [SaveVote(2, 0), Send(2, AppendReply(PARTITION, 2, False, 0), True)]
    assert bench.log.log_end == 0
    assert Trusted() in bench.append(3, 2, (0, 0), [entry(0, 2)], commit=1)


def test_snapshot_of_the_first_leader_that_speaks_to_a_suspect_voter_is_refused() -> None:
    bench = Bench(suspect=True)
    chunk = SnapshotChunk(PARTITION, 1, 9, 1, 0, b"", [], True)
    assert bench.step(2, chunk) == [SaveVote(2, 0), Send(2, AppendReply(PARTITION, 2, False, 0), True)]


def test_leader_that_a_suspect_voter_voted_for_since_its_loss_is_followed() -> None:
    """Else a new cluster, where all are suspect, would elect again and again."""
    bench = Bench(suspect=True)
    bench.step(2, VoteRequest(PARTITION, 1, 0, 0))
    assert Trusted() in bench.append(2, 1, (0, 0), [entry(0, 1)], commit=1)


def test_follower_that_learns_late_that_it_is_suspect_deposes_whom_it_follows_and_is_trusted_by_the_next_one() -> None:
    """What it forgot may be a vote for a later epoch than that of the leader it found."""
    bench = Bench(log_of(1)).follow(2)
    effects = bench.perform(bench.machine.became_suspect(bench.now_ms))
    assert effects == [SaveVote(2, 0), WithdrawPromise(2), Send(2, AppendReply(PARTITION, 2, False, 0), True)]
    assert bench.machine.leader == 0
    assert reply_in(bench.ask(3, 2)).message == VoteReply(PARTITION, 2, True, False, True), "its vote is marked"
    assert Trusted() in bench.append(3, 2, (1, 1), [entry(1, 2)], commit=2)


def test_suspect_follower_without_a_leader_deposes_the_first_that_speaks_to_it() -> None:
    bench = Bench(log_of(1))
    assert bench.machine.became_suspect(bench.now_ms) == []
    effects = bench.append(2, 1, (1, 1))
    assert effects == [SaveVote(2, 0), Send(2, AppendReply(PARTITION, 2, False, 0), True)]


def test_leader_that_learns_that_it_is_suspect_steps_down_and_says_so() -> None:
    bench = Bench(log_of(1)).lead()
    effects = bench.perform(bench.machine.became_suspect(bench.now_ms))
    assert effects[0] == SteppedDown(0, "node 1 gave up leading") and len(sends(effects, VoteRequest)) == 2


@pytest.mark.parametrize("role", [Role.PRE_CANDIDATE, Role.CANDIDATE])
def test_candidate_that_learns_that_it_is_suspect_begins_anew(role: Role) -> None:
    bench = Bench(log_of(1)).become(role)
    bench.perform(bench.machine.became_suspect(bench.now_ms))
    assert bench.machine.role is Role.FOLLOWER and bench.machine.next_tick_ms() > bench.now_ms
    bench.grant(2)
    assert bench.machine.role is Role.FOLLOWER


def test_single_voter_that_is_suspect_leads_on_and_is_trusted() -> None:
    bench = Bench(size=1)
    bench.sync()
    bench.perform(bench.machine.became_suspect(bench.now_ms))
    assert bench.machine.role is Role.LEADER and Trusted() in bench.sync()
