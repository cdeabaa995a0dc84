"""The time of a partition while it is led: where it begins, how evenly it runs, how it comes back to agreed time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.limits import CLOCK_OFFSET_MS_MAX, CLOCK_SLEW_PERMILLE
from storage_nodes.model import AHEAD_UNKNOWN
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.clocks.clock_agreement import ClockAgreement
from storage_nodes.node.replicas.leader_time import LeaderTime
from storage_nodes.node.replicas.replica import Replica

TRUE_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class HandClock(NodeClock):
    def __init__(self, wrong_ms: int = 0) -> None:
        self.now_ms = 1_000
        self.wrong_ms = wrong_ms

    def mono_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return TRUE_MS + self.now_ms + self.wrong_ms


class Rig:
    """Time since TRUE_MS is what the monotonic clock says; `agreed_wrong_ms` is how wrong agreed time is."""

    def __init__(self, agreed_wrong_ms: int | None = 0, wrong_ms: int = 0) -> None:
        self.clock = HandClock(wrong_ms)
        self.agreement = ClockAgreement(1)
        self.agree(agreed_wrong_ms)

    def agree(self, wrong_ms: int | None) -> None:
        self.agreement.base_ms = None if wrong_ms is None else TRUE_MS + wrong_ms

    def lead(self, last_stamp_ms: int = 0) -> LeaderTime:
        return LeaderTime(self.clock, self.agreement, last_stamp_ms)

    def wrong_ms(self, time: LeaderTime) -> int:
        return time.now_ms() - TRUE_MS - self.clock.now_ms


def test_time_begins_at_agreed_time_whatever_the_own_clock_says() -> None:
    for wrong_ms in (DAY_MS, -DAY_MS):
        rig = Rig(wrong_ms=wrong_ms)
        time = rig.lead()
        assert rig.wrong_ms(time) == 0 and time.ahead_ms == 0


def test_time_begins_at_the_own_clock_where_no_majority_was_heard_and_says_so() -> None:
    rig = Rig(None, wrong_ms=DAY_MS)
    time = rig.lead()
    assert rig.wrong_ms(time) == DAY_MS and time.ahead_ms == AHEAD_UNKNOWN
    rig.agree(0)
    rig.clock.now_ms += 1
    time.now_ms()
    assert time.ahead_ms == DAY_MS


def test_time_moves_on_to_a_stamp_that_is_found_later_and_never_back() -> None:
    rig = Rig()
    time = rig.lead()
    last_ms = time.now_ms() + DAY_MS
    time.not_before(last_ms)
    assert time.now_ms() == last_ms and time.ahead_ms == DAY_MS
    time.not_before(last_ms - HOUR_MS)
    assert time.now_ms() == last_ms
    unknown = Rig(None).lead()
    unknown.not_before(unknown.now_ms() + DAY_MS)
    assert unknown.ahead_ms == AHEAD_UNKNOWN


class Restarted(Replica):
    """Elected right after its restart: what was flushed since its checkpoint was folded only when it led."""

    def folded_ms(self) -> int:
        return TRUE_MS + DAY_MS


def test_leader_serves_by_no_time_before_that_of_what_it_has_folded_meanwhile() -> None:
    replica: Any = Restarted.__new__(Restarted)
    replica.time = Rig().lead()
    replica.applied = replica._lead_at = 5
    replica.serving, replica.raft = False, None
    replica.host = SimpleNamespace(failover=SimpleNamespace(serves=lambda raft: None))
    replica.maybe_lead()
    assert replica.serving and replica.now_ms() == TRUE_MS + DAY_MS


def test_time_begins_at_the_last_stamp_of_the_log_and_runs_on_from_there() -> None:
    rig = Rig()
    last_ms = TRUE_MS + DAY_MS
    time = rig.lead(last_ms)
    assert time.now_ms() == last_ms
    rig.clock.now_ms += 30_000
    assert 30_000 * (1_000 - CLOCK_SLEW_PERMILLE) // 1_000 <= time.now_ms() - last_ms <= 30_000
    assert time.ahead_ms == rig.wrong_ms(time)


def test_step_of_the_wall_clock_moves_the_time_of_no_leader() -> None:
    rig = Rig()
    time = rig.lead()
    for wrong_ms in (HOUR_MS, -HOUR_MS, -TRUE_MS):
        rig.clock.wrong_ms = wrong_ms
        rig.clock.now_ms += 10
        assert rig.wrong_ms(time) == 0


@pytest.mark.parametrize("agreed_wrong_ms", [DAY_MS, HOUR_MS, 1_500, 0, -1_500, -HOUR_MS, -DAY_MS, None])
def test_time_never_falls_jumps_or_stands_still_wherever_agreed_time_goes(agreed_wrong_ms: int | None) -> None:
    rig = Rig()
    time = rig.lead()
    rig.agree(agreed_wrong_ms)
    before_ms = started_ms = time.now_ms()
    for step in range(2_000):
        elapsed_ms = 1 + step % 7
        rig.clock.now_ms += elapsed_ms
        now_ms = time.now_ms()
        assert before_ms <= now_ms <= before_ms + elapsed_ms + 1
        before_ms = now_ms
    elapsed_ms = rig.clock.now_ms - 1_000
    assert abs(before_ms - started_ms - elapsed_ms) <= elapsed_ms * CLOCK_SLEW_PERMILLE // 1_000


@pytest.mark.parametrize("wrong_ms", [3_000, -3_000])
def test_time_far_from_agreed_time_is_slewed_until_it_is_near_and_no_further(wrong_ms: int) -> None:
    rig = Rig()
    time = rig.lead()
    rig.agree(wrong_ms)
    for _ in range(2_000 * 1_000 // CLOCK_SLEW_PERMILLE // 100 + 10):
        rig.clock.now_ms += 100
        time.now_ms()
    assert CLOCK_OFFSET_MS_MAX - 10 <= abs(wrong_ms - rig.wrong_ms(time)) <= CLOCK_OFFSET_MS_MAX


def test_time_nobody_asked_for_in_a_while_does_not_jump() -> None:
    rig = Rig()
    time = rig.lead()
    rig.agree(HOUR_MS)
    rig.clock.now_ms += DAY_MS
    assert 0 < rig.wrong_ms(time) <= 1_000 * CLOCK_SLEW_PERMILLE // 1_000


def test_time_of_a_machine_that_was_suspended_ran_on() -> None:
    rig = Rig()
    time = rig.lead()
    rig.clock.now_ms += 8 * HOUR_MS  # such a monotonic clock counts it
    assert rig.wrong_ms(time) == 0


def test_point_in_time_is_found_on_the_monotonic_clock() -> None:
    rig = Rig()
    time = rig.lead(TRUE_MS + DAY_MS)
    due_ms = time.now_ms() + 500
    assert time.mono_of(due_ms) == rig.clock.now_ms + 500


def test_clock_of_the_machine_runs_and_is_read_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = NodeClock()
    before_ms = clock.mono_ms()
    monkeypatch.setattr("time.time_ns", lambda: 5_000_000_000)
    assert clock.wall_ms() == 5_000
    assert clock.mono_ms() >= before_ms
