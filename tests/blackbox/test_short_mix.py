"""A short mix of faults on three real nodes, judged by the same checkers as the long runs (docs/reliability.md)."""

from __future__ import annotations

import pytest

from tests.blackbox import nemeses
from tests.blackbox.bench import Bench
from tests.blackbox.scenarios import SCENARIOS, Scenario, run_scenario

pytestmark = pytest.mark.slow
LEASES_PAUSED = 4
SECONDS_MAX = 20.0


async def one_of_each(bench: Bench) -> None:
    await nemeses.kill_leader(bench)
    await nemeses.kill_all(bench)
    await nemeses.pause_leader(bench, LEASES_PAUSED)
    await nemeses.kill_leader(bench)
    await nemeses.kill_leader(bench)


def test_kills_and_a_paused_leader_lose_nothing_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "short-mix", Scenario(one_of_each))
    outcome = run_scenario("short-mix", SECONDS_MAX, seed=1, cycles_max=1)
    assert outcome.passed, (outcome.failure, outcome.findings, outcome.verdicts)
    assert outcome.cycles == 1
    for verdict in outcome.verdicts.values():
        assert verdict.counts["acked"] > 100, "too little load to mean anything"
    assert len(outcome.failovers_s) >= 3
