"""Plays every scenario of `testdata/`. The commands are explained in `queue_scenario.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_nodes.machines.queue.delivery.groups import GroupWindow, MessageGroup
from storage_nodes.machines.queue.state.checkpoint import Entry
from storage_nodes.machines.queue.state.dedup import NOT_SEEN
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.machines.queue.state.taken_letters import TakenLetters
from tests.storage_nodes.machines.queue.queue_scenario import Scenario, WrongAnswers, scenarios_of

FILES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
SCENARIOS = {f"{path.stem}: {name}": text for path in FILES for name, text in scenarios_of(path.read_text()).items()}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_played_is_answered_as_it_says(name: str) -> None:
    Scenario(SCENARIOS[name]).check()


def test_scenario_wrong_answer_fails_with_the_difference() -> None:
    with pytest.raises(WrongAnswers, match=r" receive\n-    nothing\n\+    a/1\n counts"):
        Scenario("queue fifo\nsend a\nreceive\n    nothing\ncounts\n    0 waiting, 1 in flight, 0 delayed\n").check()


def test_scenario_command_that_cannot_be_played_fails_with_its_line() -> None:
    with pytest.raises(WrongAnswers, match=r"line 2, 'delete a': KeyError\('a'\)"):
        Scenario("queue fifo\ndelete a\n    ok\n").check()


# A scenario is only worth something if it fails for a machine that has the bug.


def test_scenario_of_older_receipts_fails_where_only_the_last_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_change(state: QueueState, entry: Entry, delivery: int, visibility_ms: int, now_ms: int) -> bool:
        return entry[1] == delivery

    monkeypatch.setattr(QueueState, "_may_change", may_change)
    with pytest.raises(WrongAnswers, match=r"-    ok\n\+    a/1 not in flight"):
        Scenario(SCENARIOS["visibility: an older receipt changes and deletes what is in flight again"]).check()


def test_scenario_of_locks_fails_where_what_is_in_flight_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(window: GroupWindow, group: MessageGroup, room: int) -> tuple[int, int]:
        return 0, min(room, len(group.fresh) - group.head)

    monkeypatch.setattr(GroupWindow, "run", run)
    with pytest.raises(WrongAnswers, match=r"-    nothing                      # b waits for a\n\+    b/1"):
        Scenario(SCENARIOS["groups: messages of a group are received in their order, one at a time"]).check()


def test_scenario_of_the_second_copy_fails_where_no_letter_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TakenLetters, "take", lambda self, letter, offset: NOT_SEEN)
    with pytest.raises(WrongAnswers, match=r"-    letters: a repeats a"):
        Scenario(
            SCENARIOS["dead_letters: a failover between the copy and its answer does not double the letter"]
        ).check()
