"""The table of planted bugs in docs/simulation.md is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulation.bug_list import PLANTED, Planted

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"
_ROW = re.compile(r"^\| (B\w+) \| (\w+) \| (.+?) \| (.+?) \| \d+ \| \d+ \| [\d,]+ \| .+ \|$", re.M)


def _searched_under(bug: Planted) -> str:
    name = bug.provoke.__name__
    if name == "<lambda>":
        return "as drawn"
    return "at least" if name == "apply" else f"`{name}`"


def test_every_planted_bug_has_a_row_that_says_under_which_faults_it_is_searched() -> None:
    rows = {number: (rule, mix) for number, rule, _what, mix in _ROW.findall(PAGE.read_text())}
    told = {number: (rule, "at least" if mix.startswith("at least ") else mix) for number, (rule, mix) in rows.items()}
    assert told == {bug.number: (bug.rule, _searched_under(bug)) for bug in PLANTED}
