"""Where the replicas of a new partition go, and who of a consumer group reads what, is decided by folds: another choice
for the same log forks the state of replicas of two releases, and of every log that is folded again.

So what is chosen at level 1 is frozen, ties included. Who wants another choice adds a feature level (docs/upgrades.md),
and leaves these as they are.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping

import pytest

from storage_nodes.machines.cluster.placement import place
from storage_nodes.machines.stream.assignment import assign
from storage_nodes.model import NodeAddress

Counts = Mapping[int, int]

# Nodes with their zones; how many replicas; what the nodes hold; how often each leads by preference; who is chosen.
PLACED: list[tuple[str, int, Counts, Counts, tuple[int, ...]]] = [
    ("1:a 2:b 3:c", 3, {}, {}, (1, 2, 3)),
    ("3:c 2:b 1:a", 2, {}, {}, (1, 2)),
    ("1:a 2:b 3:c", 3, {}, {1: 1}, (2, 3, 1)),
    ("1:a 2:b 3:c", 3, {1: 1, 2: 1, 3: 1}, {1: 1, 2: 1}, (3, 1, 2)),
    ("1:a 2:b 3:c", 1, {1: 3, 2: 3, 3: 2}, {}, (3,)),
    ("1:a 2:b", 3, {}, {}, (1, 2)),
    ("1:a 2:a 3:a", 3, {1: 2, 2: 1}, {3: 4, 2: 4}, (1, 2, 3)),
    ("1:a 2:a 3:b", 3, {3: 7}, {1: 2}, (2, 3, 1)),
    ("1:a 2:a 3:a 4:b", 2, {1: 1, 3: 1, 4: 9}, {}, (2, 4)),
    ("1:a 2:a 3:b 4:b 5:c", 3, {}, {}, (1, 3, 5)),
    ("1:a 2:a 3:b 4:b 5:c", 3, {1: 5, 3: 2, 4: 2, 5: 9}, {}, (2, 3, 5)),
    ("1:a 2:b 3:c 4:a", 3, {1: 1, 2: 1, 3: 1, 4: 1}, {1: 3, 4: 0, 2: 1, 3: 1}, (2, 3, 1)),
    ("1:a 2:b 3:c 4:d", 3, {1: 4, 2: 3, 3: 2, 4: 1}, {4: 2, 3: 2, 2: 1}, (2, 3, 4)),
    ("9:z 10:y 2:x", 2, {}, {}, (2, 9)),
    ("1:a", 0, {}, {}, ()),
]

# Partitions; members in the order in which they came; who reads what now; who is to read what.
ASSIGNED: list[tuple[list[int], tuple[int, ...], Counts, Counts]] = [
    ([4, 5, 6], (1,), {}, {4: 1, 5: 1, 6: 1}),
    ([4, 5, 6, 7], (1, 2), {}, {4: 1, 5: 2, 6: 1, 7: 2}),
    ([4, 5, 6, 7], (2, 1), {}, {4: 2, 5: 1, 6: 2, 7: 1}),
    ([4, 5, 6, 7], (), {4: 1}, {}),
    ([], (1, 2), {}, {}),
    ([4, 5], (1, 2, 3), {}, {4: 1, 5: 2}),
    ([4, 5, 6], (1, 2), {4: 0, 5: 0, 6: 0}, {4: 1, 5: 2, 6: 1}),
    ([4, 5, 6, 7, 8], (1, 2), dict.fromkeys(range(4, 9), 1), {4: 1, 5: 1, 6: 1, 7: 2, 8: 2}),
    ([4, 5, 6, 7, 8], (1, 2, 3), {4: 2, 5: 2, 6: 2, 7: 9, 8: 1}, {4: 2, 5: 2, 6: 3, 7: 1, 8: 1}),
    ([8, 7, 6, 5, 4], (3, 1, 2), {4: 1, 8: 2}, {4: 1, 5: 1, 6: 3, 7: 3, 8: 2}),
    ([4, 5, 6, 7], (1, 2, 3), dict.fromkeys(range(4, 8), 3), {4: 3, 5: 3, 6: 1, 7: 2}),
    ([4, 5, 6, 7], (5, 9), {4: 9, 5: 9, 7: 1}, {4: 9, 5: 9, 6: 5, 7: 5}),
    (
        [4, 5, 6, 7, 8, 9],
        (7, 11),
        {4: 11, 5: 11, 6: 11, 7: 11, 8: 7, 9: 7},
        {4: 11, 5: 11, 6: 11, 7: 7, 8: 7, 9: 7},
    ),
    (
        [4, 5, 6, 7, 8, 9, 10],
        (1, 2, 3),
        {4: 1, 5: 1, 6: 2, 7: 2, 8: 3, 9: 3, 10: 3},
        {4: 1, 5: 1, 6: 2, 7: 2, 8: 3, 9: 3, 10: 3},
    ),
]

DRAWN = 2_000
PLACED_SUM = 3_209_783_930
ASSIGNED_SUM = 1_771_426_113


def placed(nodes: str, count: int, held: Counts, leads: Counts) -> tuple[int, ...]:
    pairs = [node.split(":") for node in nodes.split()]
    addresses = [NodeAddress(int(node_id), "host", 7_000, zone) for node_id, zone in pairs]
    return place(addresses, count, {node_id: range(holds) for node_id, holds in held.items()}, leads)


@pytest.mark.parametrize(("nodes", "count", "held", "leads", "chosen"), PLACED)
def test_choice_of_nodes_is_frozen(
    nodes: str, count: int, held: Counts, leads: Counts, chosen: tuple[int, ...]
) -> None:
    assert placed(nodes, count, held, leads) == chosen


@pytest.mark.parametrize(("partitions", "members", "now", "found"), ASSIGNED)
def test_choice_of_readers_is_frozen(
    partitions: list[int], members: tuple[int, ...], now: Counts, found: Counts
) -> None:
    assert assign(partitions, members, now) == found


def test_choices_in_many_drawn_states_are_frozen() -> None:
    """Of what is drawn, `random()` alone is the same in every release of Python."""
    draw = random.Random(1).random

    def below(limit: int) -> int:
        return int(draw() * limit)

    placed_sum = assigned_sum = 0
    for _ in range(DRAWN):
        node_ids = range(1, 2 + below(9))
        nodes = " ".join(f"{node_id}:{'abcd'[below(4)]}" for node_id in node_ids)
        held, leads = ({node_id: below(4) for node_id in node_ids} for _ in range(2))
        placed_sum = zlib.crc32(repr(placed(nodes, 1 + below(3), held, leads)).encode(), placed_sum)
        members = tuple(sorted({1 + below(9) for _ in range(below(6))}, key=lambda member: member * 7 % 10))
        partitions = list(range(20, 20 + below(12)))
        now = {partition: below(10) for partition in partitions if below(3)}
        found = sorted(assign(partitions, members, now).items())
        assigned_sum = zlib.crc32(repr(found).encode(), assigned_sum)
    assert (placed_sum, assigned_sum) == (PLACED_SUM, ASSIGNED_SUM)
