"""Plays every file of `testdata/`. The commands are explained in `raft_scenario.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_nodes.machines.raft.leadership import Leadership
from tests.storage_nodes.machines.raft.raft_oracle import BrokenPromise
from tests.storage_nodes.machines.raft.raft_scenario import Scenario, ScenarioFailed

FILES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_played_ends_as_it_says(path: Path) -> None:
    Scenario().play(path.read_text())


def test_scenario_wrong_expectation_fails_with_its_line() -> None:
    with pytest.raises(ScenarioFailed, match=r"line 3, 'expect leader 2': leaders: found \[1\]"):
        Scenario().play("nodes 3\nelect 1\nexpect leader 2")


def test_scenario_figure_8_with_the_own_epoch_check_left_out_breaks_a_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R6: the scenario is only worth something if it fails for a machine that has the bug."""
    monkeypatch.setattr(Leadership, "_is_own", lambda self, offset: True)
    figure_8 = next(path for path in FILES if path.stem == "figure_8")
    with pytest.raises((BrokenPromise, ScenarioFailed)):
        Scenario().play(figure_8.read_text())
