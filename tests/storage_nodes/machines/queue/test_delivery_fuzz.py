"""A short fuzz of the delivery; the long one is `python -m tests.storage_nodes.machines.queue.delivery_fuzz`
(docs/suite.md)."""

from __future__ import annotations

import pytest

from tests.storage_nodes.machines.queue.delivery_fuzz.configurations import KINDS
from tests.storage_nodes.machines.queue.delivery_fuzz.runner import Case, run_case
from tests.storage_nodes.machines.queue.delivery_fuzz.small_limits import DRAWN

# A seed says the kind of queue, each in turn.
SEEDS = 24
# Those that few seeds show; all of them run with `--bugs`.
QUICK = ("Q2", "Q3", "Q4", "Q5")
QUICK_SEEDS_MAX = 30


@pytest.mark.parametrize("first", range(1, len(KINDS) + 1), ids=lambda seed: str(Case(seed).kind))
def test_rules_hold_after_every_step(first: int) -> None:
    for seed in range(first, SEEDS + 1, len(KINDS)):
        verdict = run_case(Case(seed))
        assert not verdict.rule, f"{verdict.problem}; again: {verdict.case.command()}"


@pytest.mark.parametrize("number", QUICK)
def test_planted_bug_of_the_delivery_is_noticed(number: str) -> None:
    assert any(run_case(Case(seed, number)).rule for seed in range(1, QUICK_SEEDS_MAX + 1))


def test_limits_are_restored_after_a_run() -> None:
    before = [getattr(module, name) for _, name, modules in DRAWN for module in modules]
    run_case(Case(1))
    assert [getattr(module, name) for _, name, modules in DRAWN for module in modules] == before
