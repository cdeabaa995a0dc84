"""A short mix of faults on three real nodes, judged by the same checkers as the long runs (docs/reliability.md)."""

from __future__ import annotations

import asyncio
import time

import pytest

from storage_nodes.model import Acks
from tests.blackbox import membership, nemeses
from tests.blackbox.bench import Bench
from tests.blackbox.checkers import SEND
from tests.blackbox.scenarios import SCENARIOS, Scenario, run_scenario
from tests.blackbox.workload import RETRY_PAUSE_S

pytestmark = pytest.mark.slow
LEASES_PAUSED = 4
SECONDS_MAX = 20.0
# A leader that lost its followers keeps answering for a moment: longer than this and it never will.
STEP_DOWN_S = 5.0
LONE_LEADERS_MAX = 5


async def one_of_each(bench: Bench) -> None:
    await nemeses.kill_leader(bench)
    await nemeses.kill_all(bench)
    await nemeses.pause_leader(bench, LEASES_PAUSED)
    await nemeses.kill_leader(bench)
    await nemeses.kill_leader(bench)


async def every_change_beside_a_kill(bench: Bench) -> None:
    for change in (membership.move_replica, membership.take_move_back, membership.drain_node):
        await membership.together(bench, nemeses.kill_leader, change)
    # Whatever became of these beside the kills: alone they must happen.
    before = bench.notes["replicas moved"], bench.notes["nodes drained"]
    await membership.together(bench, nemeses.quiet, membership.move_replica)
    await membership.together(bench, nemeses.quiet, membership.drain_node)
    assert (bench.notes["replicas moved"], bench.notes["nodes drained"]) == (before[0] + 1, before[1] + 1)


async def lose_what_only_the_leader_has(bench: Bench) -> None:
    """Writes that are acknowledged by the leader's disk alone, on a leader that never comes back in time."""
    bench.load.acks = Acks.LEADER
    for _ in range(LONE_LEADERS_MAX):
        leader = await bench.leader(bench.load.queue)
        followers = [node for node in bench.cluster.node_ids if node != leader]
        for node in followers:
            bench.cluster.kill(node)
        if lost := await acknowledged_alone(bench):
            bench.cluster.kill(leader)
            bench.load.acks = Acks.QUORUM
        for node in followers:
            bench.cluster.start(node)
        await bench.recovered()
        if lost:
            bench.cluster.start(leader)
            return
    raise AssertionError("no leader acknowledged anything alone")


async def acknowledged_alone(bench: Bench) -> bool:
    """False where the leader stepped down before it acknowledged anything: on a busy machine it may be that late."""
    since_s = time.monotonic()
    while time.monotonic() < since_s + STEP_DOWN_S:
        if bench.acked_since(bench.load.queue, SEND, since_s):
            return True
        await asyncio.sleep(RETRY_PAUSE_S)
    return False


def test_messages_that_are_really_lost_are_reported_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way from process to verdict can fail: with too few acknowledgements a loss is made, and found."""
    monkeypatch.setitem(SCENARIOS, "planted-loss", Scenario(lose_what_only_the_leader_has))
    outcome = run_scenario("planted-loss", SECONDS_MAX, seed=1, cycles_max=1)
    assert not outcome.failure
    assert not outcome.passed
    violations = outcome.verdicts["queue"].violations
    assert violations["lost-middle"] or violations["lost-postfix"]


def test_kills_and_a_paused_leader_lose_nothing_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "short-mix", Scenario(one_of_each))
    outcome = run_scenario("short-mix", SECONDS_MAX, seed=1, cycles_max=1)
    assert outcome.passed, (outcome.failure, outcome.findings, outcome.verdicts)
    assert outcome.cycles == 1
    for verdict in outcome.verdicts.values():
        assert verdict.counts["acked"] > 100, "too little load to mean anything"
    assert len(outcome.failovers_s) >= 3


def test_moves_and_drains_beside_kills_lose_nothing_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    room_to_move = SCENARIOS["moves"].cluster
    monkeypatch.setitem(SCENARIOS, "short-moves", Scenario(every_change_beside_a_kill, room_to_move))
    outcome = run_scenario("short-moves", SECONDS_MAX, seed=1, cycles_max=1)
    assert outcome.passed, (outcome.failure, outcome.findings, outcome.verdicts)
    for verdict in outcome.verdicts.values():
        assert verdict.counts["acked"] > 100, "too little load to mean anything"
    assert len(outcome.failovers_s) >= 3
