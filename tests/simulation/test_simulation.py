"""A short walk through the simulation; the long ones are `python -m tests.simulation --sweep` and `--bugs`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.simulation import sweep as sweeps
from tests.simulation.bug_list import PLANTED, Planted
from tests.simulation.cases import Case, commit, hunt, load, run_case, shrink, store, verdict
from tests.simulation.guards import NotDeterministic, guarded
from tests.simulation.log_oracle import BrokenInvariant
from tests.simulation.world import Outcome, run_seed

# In these seeds clients get through, and two disks are lost at a time.
SEEDS_FROM = 89
SEEDS = 24
STEPS = 2_000
# Every seed that ever failed: it stays.
REGRESSIONS = [
    15,
    19,
    34,
    50,
    123,
    200,
    237,
    250,
    281,
    289,
    325,
    357,
    1027,
    1118,
    1148,
    1223,
    1257,
    1355,
    1384,
    2017,
    2046,
    2195,
    3057,
    3094,
    3119,
    3182,
    3388,
    5068,
    71018,
    72035,
    72146,
    1000112,
    1001976,
    1002187,
    1002495,
    2000420,
    2003252,
    3000645,
    4000105,
    6200095,
    7100050,
    12001646,
    20100053,
    600011018,
]
# Those that needed more steps.
LONG_REGRESSIONS = [
    900168, 1000224, 1000227, 1000239, 1000356, 1000810, 1000982, 1001047, 2000628, 40006523, 40006843, 60003702,
    700001766, 900000377, 900000431, 910000676, 1100011417, 1100015377, 1200004078, 1200005165, 7025879, 7030010,
    8000031, 8002851, 8205007, 8205619, 8501999, 9003142, 9037324, 9505990, 9610594, 9703512,
    11603665, 11615342,
]  # fmt: skip
# The same under harsh draws (`Faults.harden`).
HARSH_REGRESSIONS = [7000868, 7001076, 7002379]
# Those that a few seeds are enough for; all of them run by `python -m tests.simulation --bugs`.
QUICK = (
    "B1", "B3", "B6a", "B10", "B11", "B12", "B14", "B16", "B17", "B22", "B26", "B27", "B29", "B36", "B38",
    "B39", "B40", "B41", "B42", "B43", "B50", "B51", "B52", "B54", "B55", "B57", "B60", "B61", "B62", "B64", "B65",
    "B70", "B71", "B72",
)  # fmt: skip
QUICK_SEEDS_FROM = 50_000
QUICK_SEEDS_MAX = 40


@pytest.mark.parametrize("first", range(SEEDS_FROM, SEEDS_FROM + SEEDS, 8))
def test_seeds_keep_every_promise(first: int) -> None:
    outcomes = [run_seed(seed, STEPS) for seed in range(first, first + 8)]
    assert sum(outcome.acked for outcome in outcomes) > 100, "the clients hardly got through: nothing was tested"
    assert sum(outcome.flushes for outcome in outcomes) > 10
    assert sum(outcome.recoveries for outcome in outcomes) >= 20


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seed_that_failed_once_holds(seed: int) -> None:
    run_seed(seed, STEPS)


@pytest.mark.parametrize("seed", LONG_REGRESSIONS)
def test_seed_that_failed_late_holds(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("seed", HARSH_REGRESSIONS)
def test_seed_that_failed_under_harsh_draws_holds(seed: int) -> None:
    run_case(Case(seed, harsh=True))


@pytest.mark.parametrize("planted", [bug for bug in PLANTED if bug.number in QUICK], ids=lambda bug: bug.number)
def test_planted_bug_is_noticed(planted: Planted) -> None:
    assert hunt(planted, QUICK_SEEDS_FROM, QUICK_SEEDS_MAX).rule


def test_failing_case_is_kept_in_a_file_and_breaks_the_same_rule_again(tmp_path: Path) -> None:
    case = Case(QUICK_SEEDS_FROM, 2_500, ("rot", "eio"), "B26")
    rule, _ = verdict(case)
    loaded, at = load(store(str(tmp_path), case, rule))
    assert (loaded, at) == (case, commit())
    assert rule
    assert verdict(loaded)[0] == rule


def test_shrunk_case_is_smaller_and_breaks_the_same_rule() -> None:
    case = Case(QUICK_SEEDS_FROM, 2_500, plant="B26")
    smaller = shrink(case, lambda _: None)
    assert len(smaller.without) > len(case.without)
    assert verdict(smaller)[0] == verdict(case)[0]


def test_sweep_counts_and_stores_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(case: Case) -> Outcome:
        if case.seed == 2:
            raise BrokenInvariant("I2", "planted here")
        return run_case(case)

    monkeypatch.setattr(sweeps, "run_case", run)
    found = sweeps.sweep(sweeps.Bounds(1, 3, steps=300, harsh=True), lambda _: None, str(tmp_path))
    assert (found.seeds, [failed.seed for failed in found.failed]) == (3, [2])
    assert load(str(tmp_path / "seed-2.json"))[0] == Case(2, 300, harsh=True)


def test_same_seed_twice_gives_the_same_run() -> None:
    first, other, again = run_seed(7, STEPS), run_seed(8, STEPS), run_seed(7, STEPS)
    assert first == again
    assert first.digest != other.digest


def test_clock_of_the_machine_is_refused_during_a_run() -> None:
    with guarded(), pytest.raises(NotDeterministic):
        time.time()
