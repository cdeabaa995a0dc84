"""Both evaluators judge the same pairs, and what becomes of it is counted."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from frontend.authz import (
    NO_POLICY,
    Decision,
    PolicyError,
    PolicyKind,
    Reason,
    compile_policy,
    evaluate,
    join_policies,
)
from tests.frontend.authz.oracle.edges import draw
from tests.frontend.authz.oracle.node import Node
from tests.frontend.authz.oracle.pairs import Pair, simulation

_EXPLICIT = (
    Reason.DENIED_BY_IDENTITY,
    Reason.DENIED_BY_RESOURCE,
    Reason.UNREADABLE_IDENTITY,
    Reason.UNREADABLE_RESOURCE,
)


class Verdict(Enum):
    ALLOWED = "Allowed"
    DENIED = "ExplicitlyDenied"
    NOT_ALLOWED = "ImplicitlyDenied"
    REFUSED = "refused"  # the document itself


class Difference(NamedTuple):
    pair: Pair
    ours: Verdict
    theirs: Verdict
    why_ours: str
    why_theirs: str


class Outcome:
    """`unexplained` are differences on settled ground: there must be none."""

    def __init__(self) -> None:
        self.pairs_count = 0
        self.verdicts: Counter[Verdict] = Counter()
        self.unexplained: list[Difference] = []
        self.edges: dict[str, Counter[tuple[Verdict, Verdict]]] = {}

    def add(self, found: Difference) -> None:
        self.pairs_count += 1
        edge = found.pair.edge
        if edge is not None:
            self.edges.setdefault(edge, Counter())[found.ours, found.theirs] += 1
            return
        self.verdicts[found.ours] += 1
        if found.ours is not found.theirs:
            self.unexplained.append(found)


def compare(node: Node, directory: Path, pairs_count: int, seed: int) -> Outcome:
    chance = random.Random(seed)
    pairs = [draw(chance) for _ in range(pairs_count)]
    outcome = Outcome()
    for pair, answer in zip(pairs, node.simulate(directory, (simulation(pair) for pair in pairs)), strict=True):
        ours, why_ours = judge(pair)
        theirs, why_theirs = read_answer(answer)
        outcome.add(Difference(pair, ours, theirs, why_ours, why_theirs))
    return outcome


def judge(pair: Pair) -> tuple[Verdict, str]:
    try:
        identity = join_policies(
            [compile_policy(json.dumps(one), PolicyKind.IDENTITY, f"p{at}") for at, one in enumerate(pair.identity)]
        )
        resource = NO_POLICY
        if pair.resource is not None:
            resource = compile_policy(json.dumps(pair.resource), PolicyKind.RESOURCE, "queue")
    except PolicyError as error:
        return Verdict.REFUSED, str(error)
    decision = evaluate(pair.request, identity, resource)
    return _verdict(decision), f"{decision.reason.value} ({decision.statement})"


def _verdict(decision: Decision) -> Verdict:
    if decision.allowed:
        return Verdict.ALLOWED
    return Verdict.DENIED if decision.reason in _EXPLICIT else Verdict.NOT_ALLOWED


def read_answer(line: str) -> tuple[Verdict, str]:
    answer = json.loads(line)
    if "error" in answer:
        return Verdict.REFUSED, json.dumps(answer["error"])
    return Verdict(answer["result"]), ""


def lines(outcome: Outcome) -> Iterator[str]:
    settled = sum(outcome.verdicts.values())
    verdicts = ", ".join(f"{verdict.value} {count}" for verdict, count in sorted(outcome.verdicts.items(), key=str))
    yield f"{outcome.pairs_count} pairs; {settled} on settled ground ({verdicts}), {len(outcome.unexplained)} differ"
    for name, counts in sorted(outcome.edges.items()):
        same = sum(count for (ours, theirs), count in counts.items() if ours is theirs)
        differ = [
            f"{ours.value} / {theirs.value} {count}" for (ours, theirs), count in counts.items() if ours is not theirs
        ]
        yield f"  {name}: {same} alike" + "".join(f", ours / theirs {one}" for one in sorted(differ))
    for found in outcome.unexplained[:10]:
        yield ""
        yield f"ours {found.ours.value}: {found.why_ours}; theirs {found.theirs.value} {found.why_theirs}"
        yield f"  {simulation(found.pair)}"
