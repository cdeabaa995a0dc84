"""Penstock's evaluator and another one, of npm, judge the same policies: a short run of tests/frontend/authz/oracle."""

from __future__ import annotations

import json
import random

import pytest

from tests.clients.environments import NotInstallable
from tests.frontend.authz.oracle.comparison import Difference, Outcome, Verdict, compare, judge, lines
from tests.frontend.authz.oracle.edges import draw
from tests.frontend.authz.oracle.node import HERE, find_node

PAIRS_COUNT = 800
SEED = 20261122


def test_oracle_agrees_on_settled_ground() -> None:
    try:
        node = find_node()
        directory = node.install()
    except NotInstallable as error:
        pytest.skip(f"the other evaluator cannot be had here: {error}")
    outcome = compare(node, directory, PAIRS_COUNT, SEED)
    assert outcome.pairs_count == PAIRS_COUNT
    assert not outcome.unexplained, "\n".join(lines(outcome))
    # What is judged one way only would prove little.
    assert all(outcome.verdicts[verdict] >= PAIRS_COUNT // 100 for verdict in Verdict)


def test_oracle_difference_on_settled_ground_is_told_and_on_an_edge_is_counted() -> None:
    outcome = Outcome()
    pair = draw(random.Random(1))._replace(edge=None)
    outcome.add(Difference(pair, Verdict.ALLOWED, Verdict.DENIED, "", ""))
    outcome.add(Difference(pair._replace(edge="year"), Verdict.ALLOWED, Verdict.DENIED, "", ""))
    assert len(outcome.unexplained) == 1
    assert outcome.edges["year"] == {(Verdict.ALLOWED, Verdict.DENIED): 1}


def test_pairs_of_a_seed_are_the_same_again() -> None:
    assert [judge(draw(random.Random(7))) for _ in range(3)] == [judge(draw(random.Random(7)))] * 3


def test_oracle_lock_pins_every_package_and_names_no_registry() -> None:
    packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
    installed = {name: one for name, one in packages.items() if name}
    assert len(installed) >= 4
    assert all("integrity" in one and "resolved" not in one for one in installed.values())
