"""One timer gives up all calls that are not over at their deadlines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.client.deadlines import OVER_KEPT_MAX, Deadlines
from storage_nodes.client.suspensions import Suspensions


class Call:
    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.is_over = False
        self.given_up = 0

    def give_up(self) -> None:
        self.given_up += 1
        self.is_over = True


class Rig:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Any, Any]] = []
        self.loop: Any = SimpleNamespace(time=lambda: self.now_s, call_at=self._call_at)
        self.deadlines = Deadlines(Suspensions())

    def _call_at(self, *timer: Any) -> Any:
        self.timers.append(timer)
        return timer

    def add(self, deadline_s: float) -> Call:
        call = Call(deadline_s)
        self.deadlines.add(self.loop, call)
        return call

    def ring(self) -> None:
        self.timers, timers = [], self.timers
        for due_s, ring, loop in timers:
            self.now_s = max(self.now_s, due_s)
            ring(loop)


def test_calls_are_given_up_at_their_own_deadlines_by_one_timer() -> None:
    rig = Rig()
    calls = [rig.add(1.0), rig.add(2.0), rig.add(3.0)]
    calls[1].is_over = True
    assert len(rig.timers) == 1
    rig.ring()
    assert [call.given_up for call in calls] == [1, 0, 0]
    assert [timer[0] for timer in rig.timers] == [3.0]
    rig.ring()
    assert [call.given_up for call in calls] == [1, 0, 1] and not rig.timers
    rig.add(9.0)
    assert len(rig.timers) == 1


def test_calls_behind_one_that_fails_to_be_given_up_keep_their_deadlines() -> None:
    rig = Rig()
    bad, good = rig.add(1.0), rig.add(2.0)

    def fail() -> None:
        raise ZeroDivisionError

    bad.give_up = fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        rig.ring()
    rig.ring()
    assert good.given_up == 1


def test_calls_that_are_over_do_not_pile_up_behind_one_that_is_not() -> None:
    rig = Rig()
    stuck = rig.add(1.0)
    for _ in range(10 * OVER_KEPT_MAX):
        rig.add(1.0).is_over = True
        assert len(rig.deadlines) <= 2 * OVER_KEPT_MAX
    rig.ring()
    assert stuck.given_up == 1


class CountingCall(Call):
    asked = 0

    @property
    def is_over(self) -> bool:
        CountingCall.asked += 1
        return False

    @is_over.setter
    def is_over(self, value: bool) -> None: ...


def test_many_calls_that_are_not_over_are_not_looked_through_again_for_each_one_more() -> None:
    rig = Rig()
    for _ in range(20 * OVER_KEPT_MAX):
        rig.deadlines.add(rig.loop, CountingCall(1.0))
    assert CountingCall.asked <= 2 * len(rig.deadlines)
