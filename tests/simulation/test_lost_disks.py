"""Which disks may lose something at a time, by what is in doubt already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.simulation.lost_disks import LostDisks
from tests.simulation.process import SimProcess
from tests.simulation.world import World, run_seed


def may_lose(node: int, doubted: set[int], partitions: list[tuple[int, ...]], pairs: bool = True) -> bool:
    """Of five nodes; what is in doubt, and who holds the partitions. Node 5 may have an older directory."""
    processes = {one: SimpleNamespace(process_id=one, gone_back={7} if one == 5 else set()) for one in range(1, 6)}
    plans = [SimpleNamespace(replicas=held[:3], holders=lambda held=held: held) for held in partitions]

    def is_sound(process: Any) -> bool:
        return process.process_id not in doubted

    world = SimpleNamespace(
        processes=processes,
        faults=SimpleNamespace(pairs=pairs),
        oracle=SimpleNamespace(
            is_sound=is_sound, cluster=SimpleNamespace(machine=SimpleNamespace(partitions=dict(enumerate(plans))))
        ),
        others_are_sound=lambda process: not doubted - {process.process_id},
    )
    return LostDisks(cast(World, world)).may_lose(cast(SimProcess, processes[node]))


@pytest.mark.parametrize(
    ("doubted", "partitions", "expected"),
    [
        (set(), [(1, 2, 3)], True),
        ({1}, [(1, 2, 3)], True),  # its own
        ({2}, [], True),
        ({2}, [(2, 3, 4), (1, 3, 4)], True),  # one each
        ({2}, [(2, 3, 4), (1, 2, 3)], False),  # both in one
        ({2}, [(1, 3, 4, 2)], False),  # one is on its way there
        ({2, 3}, [], False),
        ({5}, [], False),  # an older directory is found out alone
    ],
)
def test_second_disk_is_lost_only_where_each_group_keeps_a_majority(
    doubted: set[int], partitions: list[tuple[int, ...]], expected: bool
) -> None:
    assert may_lose(1, doubted, partitions) == expected


@pytest.mark.parametrize("doubted", [set(), {2}])
def test_without_pairs_one_disk_is_lost_at_a_time(doubted: set[int]) -> None:
    assert may_lose(1, doubted, [], pairs=False) == (not doubted)


def test_a_seed_loses_two_disks_at_a_time() -> None:
    assert any(run_seed(seed, 2_000).pairs for seed in range(97, 105))
