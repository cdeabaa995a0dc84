"""A short damage fuzz of the log; the long one is `python -m tests.storage_nodes.log.damage_fuzz` (docs/suite.md)."""

from __future__ import annotations

import pytest

from tests.storage_nodes.log.damage_fuzz.runner import Case, run_case

SEEDS = 160
# Those that few seeds show; all of them run with `--bugs`.
QUICK = ("D3", "D7", "D11", "D14", "D15", "D16", "D17", "D18", "D20", "D21")
QUICK_SEEDS_MAX = 30


@pytest.mark.parametrize("first", range(1, SEEDS, 40))
def test_damaged_log_opens_and_keeps_what_it_promised(first: int) -> None:
    for seed in range(first, first + 40):
        verdict = run_case(Case(seed, None, ""))
        assert not verdict.rule, f"{verdict.problem}; again: {verdict.case.command()}"


@pytest.mark.parametrize("number", QUICK)
def test_planted_bug_of_the_log_is_noticed(number: str) -> None:
    assert any(run_case(Case(seed, None, number)).rule for seed in range(1, QUICK_SEEDS_MAX + 1))
