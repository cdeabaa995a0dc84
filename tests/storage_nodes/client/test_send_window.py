"""Sends of one client to one partition: as many under way as the window holds, the others in order behind them."""

from __future__ import annotations

from storage_nodes.client.send_window import SendWindow
from storage_nodes.limits import SENDS_UNDER_WAY_BYTES_MAX

HALF = SENDS_UNDER_WAY_BYTES_MAX // 2


class Begun:
    """Which sends were let go, in order."""

    def __init__(self) -> None:
        self.window = SendWindow()
        self.names: list[str] = []
        self.given_up: set[str] = set()

    def enter(self, name: str, size_bytes: int) -> None:
        self.window.enter(size_bytes, lambda: self._go(name))

    def _go(self, name: str) -> bool:
        if name in self.given_up:
            return False
        self.names.append(name)
        return True


def test_sends_beyond_the_window_wait_for_those_before_them() -> None:
    begun = Begun()
    for name in "abcd":
        begun.enter(name, HALF)
    assert begun.names == ["a", "b"]
    begun.window.leave(HALF)
    assert begun.names == ["a", "b", "c"]
    for _ in range(3):
        begun.window.leave(HALF)
    assert begun.names == ["a", "b", "c", "d"] and begun.window.is_idle


def test_small_send_does_not_overtake_a_large_one_that_waits() -> None:
    begun = Begun()
    begun.enter("a", HALF)
    begun.enter("large", HALF + 1)
    begun.enter("small", 1)
    assert begun.names == ["a"]
    begun.window.leave(HALF)
    assert begun.names == ["a", "large", "small"]


def test_send_larger_than_the_window_goes_alone() -> None:
    begun = Begun()
    begun.enter("huge", 2 * SENDS_UNDER_WAY_BYTES_MAX)
    begun.enter("next", 1)
    assert begun.names == ["huge"]
    begun.window.leave(2 * SENDS_UNDER_WAY_BYTES_MAX)
    assert begun.names == ["huge", "next"]


def test_send_that_was_given_up_while_it_waited_takes_no_room() -> None:
    begun = Begun()
    for name in "abc":
        begun.enter(name, 2 * HALF)
    begun.given_up = {"b"}
    begun.window.leave(2 * HALF)
    assert begun.names == ["a", "c"]
    begun.window.leave(2 * HALF)
    assert begun.window.is_idle


def test_ten_thousand_sends_that_are_over_at_once_need_no_stack() -> None:
    window = SendWindow()
    over: list[int] = []

    def fails_at_once() -> bool:
        over.append(1)
        window.leave(HALF)  # as a send to a closed client
        return True

    window.enter(2 * HALF, lambda: True)
    for _ in range(10_000):
        window.enter(HALF, fails_at_once)
    window.leave(2 * HALF)
    assert len(over) == 10_000 and window.is_idle
