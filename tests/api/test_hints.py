"""Hints never hold up a request, whatever the broker does."""

from __future__ import annotations

import socket
import time

import pytest

from api import limits
from api.hints import Hint, HintSender

REFUSING = "redis://127.0.0.1:1/0"


def test_request_does_not_wait_for_a_broker_that_takes_connections_and_says_nothing() -> None:
    """As one does that is stopped: the kernel goes on taking connections for it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sender = HintSender(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        began = time.monotonic()
        for number in range(200):
            sender.send(Hint.PROVISION_QUEUE, number)
        assert time.monotonic() - began < 0.1


def test_broker_that_is_away_is_left_alone_for_longer_and_longer_and_hints_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    sender = HintSender(REFUSING)
    pauses = []
    for _ in range(6):
        assert not sender.publish(Hint.PROVISION_QUEUE, 1)
        pauses.append(sender._pause_ms)
        assert not sender.send(Hint.PROVISION_QUEUE, 1), "dropped without a thread"
        sender._silent_until_s = 0.0
    assert pauses == [500, 1000, 2000, 4000, limits.HINT_PAUSE_MS_MAX, limits.HINT_PAUSE_MS_MAX]


def test_hints_that_nobody_takes_off_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HINTS_WAITING_MAX", 3)
    sender = HintSender(REFUSING)
    monkeypatch.setattr(sender, "_start_once", lambda: None)
    assert [sender.send(Hint.MOVE_MESSAGES, number) for number in range(5)] == [True, True, True, False, False]
