"""The steps of a move: the right ones, in an order that never weakens the group, from whatever point it is taken up."""

from __future__ import annotations

import itertools
import random

import pytest

from storage_nodes.machines.cluster.commands import NOBODY, Move
from storage_nodes.machines.cluster.mover import (
    Finish,
    HandOver,
    RaftGroup,
    Step,
    next_cluster_step,
    next_step,
)
from storage_nodes.machines.raft.membership import AddLearner, Promote, Remove, changed
from storage_nodes.protocol.configuration import Configuration

MOVE = Move(1, 3, 4)
UNDO = Move(1, 3, 4, undo=True)
GROWTH = Move(1, NOBODY, 4)
ALL = (1, 2, 3, 4)


def group(
    voters: tuple[int, ...],
    learners: tuple[int, ...] = (),
    leader: int = 1,
    settled: bool = True,
    up: tuple[int, ...] = ALL,
    level: tuple[int, ...] = ALL,
) -> RaftGroup:
    return RaftGroup(leader, voters, learners, settled, [node for node in up if node != leader], level)


@pytest.mark.parametrize(
    ("move", "seen", "step"),
    [
        (MOVE, group((1, 2, 3)), AddLearner(4)),
        (MOVE, group((1, 2, 3), (4,), level=(2, 3)), None),
        (MOVE, group((1, 2, 3), (4,)), Promote(4)),
        (MOVE, group((1, 2, 3, 4)), Remove(3)),
        (MOVE, group((1, 2, 3, 4), leader=3), HandOver(4, 3)),
        (MOVE, group((1, 2, 4)), Finish(True)),
        (MOVE, group((1, 2, 4), (3,)), Remove(3)),
        (MOVE, group((1, 2, 3), settled=False), None),
        # Of 1, 2 and 4, which would remain, only the leader is up.
        (MOVE, group((1, 2, 3, 4), up=(1, 3)), None),
        (MOVE, group((1, 2, 3, 4), up=(1, 4)), Remove(3)),
        (UNDO, group((1, 2, 3)), Finish(False)),
        (UNDO, group((1, 2, 3), (4,)), Remove(4)),
        (UNDO, group((1, 2, 3, 4)), Remove(4)),
        (UNDO, group((1, 2, 3, 4), leader=4), HandOver(3, 4)),
        (UNDO, group((1, 2, 4)), Finish(True)),
        (GROWTH, group((1,)), AddLearner(4)),
        (GROWTH, group((1,), (4,)), Promote(4)),
        (GROWTH, group((1, 4)), Finish(True)),
        (Move(1, NOBODY, 4, undo=True), group((1, 4)), Remove(4)),
    ],
)
def test_next_step_follows_from_the_configuration(move: Move, seen: RaftGroup, step: Step | None) -> None:
    assert next_step(move, seen) == step


@pytest.mark.parametrize(("move", "undo_at"), [*itertools.product((MOVE, GROWTH), (None, 0, 1, 2, 3, 4))])
def test_move_comes_to_its_end_whoever_leads_and_whenever_it_is_cancelled(move: Move, undo_at: int | None) -> None:
    for seed in range(50):
        chance = random.Random(seed)
        before = configuration = Configuration((1, 2, 3) if move.source else (1, 2))
        for turn in range(50):
            now = Move(1, move.source, move.target, undo_at is not None and turn >= undo_at)
            leader = chance.choice(configuration.voters)
            level = ALL if chance.random() < 0.5 else ()
            step = next_step(now, group(configuration.voters, configuration.learners, leader, level=level))
            if isinstance(step, Finish):
                target_in = move.target in configuration.voters
                assert step.done == target_in and not configuration.learners
                assert len(configuration.voters) == len(before.voters) + (step.done and not move.source)
                break
            if isinstance(step, AddLearner | Promote | Remove):
                assert not (isinstance(step, Remove) and step.node_id == leader)
                configuration = changed(configuration, step)
                assert len(configuration.voters) >= len(before.voters), "never fewer copies than before"
        else:
            raise AssertionError("the move does not end")


@pytest.mark.parametrize(
    ("seen", "wanted", "unwanted", "step"),
    [
        (group((1, 2, 3)), (1, 2, 3), (), None),
        (group((1, 2, 3)), (1, 2, 3, 4), (), AddLearner(4)),
        # A fourth voter tolerates no further failure.
        (group((1, 2, 3), (4,)), (1, 2, 3, 4), (), None),
        (group((1, 2, 3), (4,)), (1, 2, 4), (3,), Promote(4)),
        (group((1, 2, 3), (4,), level=()), (1, 2, 4), (3,), None),
        (group((1, 2, 3, 4)), (1, 2, 4), (3,), Remove(3)),
        (group((1, 2, 3, 4), leader=3), (1, 2, 4), (3,), HandOver(NOBODY, 3)),
        (group((1, 2, 4), (3,)), (1, 2, 4), (3,), Remove(3)),
        (group((1,), (2,)), (1, 2), (), None),
        (group((1,), (2, 3)), (1, 2, 3), (), Promote(2)),
        (group((1, 2, 3), (4, 5)), (1, 2, 3, 4, 5), (), Promote(4)),
        (group((1, 2, 3), settled=False), (1, 2, 3, 4), (), None),
    ],
)
def test_group_of_the_cluster_has_every_node_and_an_odd_number_of_voters(
    seen: RaftGroup, wanted: tuple[int, ...], unwanted: tuple[int, ...], step: Step | None
) -> None:
    assert next_cluster_step(seen, wanted, unwanted, 7) == step


def test_group_of_the_cluster_has_no_more_voters_than_it_may() -> None:
    seen = RaftGroup(1, (1, 2, 3), (4, 5), True, (2, 3, 4, 5), (2, 3, 4, 5))
    assert next_cluster_step(seen, (1, 2, 3, 4, 5), (), 3) is None
