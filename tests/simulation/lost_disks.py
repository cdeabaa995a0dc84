"""Which disks may lose something at a time: what a majority of every group can bear, and no more.

As a rule one, and only while all others hold, beyond doubt, all that they ever acknowledged. In a world with pairs two
of five: there each group must keep a majority of voters whose disks are beyond doubt. The group of the cluster, which
has all five nodes, bears both; a partition, which has three, one of them.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.faults import Faults
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

PAIRS_SHARE = 0.15  # of the worlds
PAIR_NODES = 5


def draw_pairs(faults: Faults, chance: random.Random) -> None:
    """From a source of its own. Disks must lose something, or there are no two."""
    if chance.random() < PAIRS_SHARE:
        lose_pairs(faults)


def lose_pairs(faults: Faults) -> None:
    faults.pairs = True
    faults.spoil_rate, faults.rot_rate = max(faults.spoil_rate, 0.2), max(faults.rot_rate, 0.1)
    faults.wipe_rate, faults.crash_rate = max(faults.wipe_rate, 0.005), max(faults.crash_rate, 0.01)


class LostDisks:
    def __init__(self, world: World) -> None:
        self._world = world
        self.pairs = 0  # times that a second disk lost something while a first one was in doubt

    def may_lose(self, process: SimProcess) -> bool:
        """May this node's disk lose something now?"""
        world = self._world
        if not world.faults.pairs:
            return world.others_are_sound(process)
        doubted = self._doubted_beside(process)
        if not doubted:
            return True
        # What an older directory forgot is another thing to find out (`older_directories.py`), one at a time.
        if len(doubted) > 1 or doubted[0].gone_back:
            return False
        lost = {process.process_id, doubted[0].process_id}
        plans = world.oracle.cluster.machine.partitions.values()
        return all(len(lost.intersection(plan.holders())) <= (len(plan.replicas) - 1) // 2 for plan in plans)

    def lost(self, process: SimProcess) -> None:
        """Something was lost there."""
        self.pairs += bool(self._doubted_beside(process))

    def _doubted_beside(self, process: SimProcess) -> list[SimProcess]:
        others = [other for other in self._world.processes.values() if other is not process]
        return [other for other in others if not self._world.oracle.is_sound(other)]
