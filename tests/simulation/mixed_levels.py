"""Nodes of two releases in one cluster: those of the level before (LEVEL_BEFORE) are upgraded one by one, at a start.

Whether a node goes back to the older release is up to its operator, who keeps the cluster's level where it is
meanwhile (PENSTOCK_FEATURE_LEVEL_MAX). So in half of the mixed worlds a hold is set on every node, and each start draws
one of the two releases; until the hold is let go, and from then on no node goes back. When the world heals all are
upgraded, and then the level must rise.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.protocol.levels import FEATURE_LEVEL, FEATURE_LEVEL_MIN, Speaks, spoken

if TYPE_CHECKING:
    from tests.simulation.faults import Faults
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

LEVEL_BEFORE = FEATURE_LEVEL - 1
UPGRADES, HELD = 1, 2  # kinds of mixed worlds
HELD_US = (8_000_000, 40_000_000)
RESTART_RATE = 0.02  # of the looks at a node that is not of the newest release, or is held


def draw_levels(faults: Faults, chance: random.Random) -> None:
    faults.mixed = chance.choice([0, 0, 0, UPGRADES, HELD])


class MixedLevels:
    """Of one world. Draws from a source of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}-levels")
        self._held_until_us = self._chance.randrange(*HELD_US)
        self.upgrades = self.rolled_back = 0

    @property
    def _is_held(self) -> bool:
        held = self._world.faults.mixed == HELD and not self._world.draining
        return held and self._world.scheduler.now_us < self._held_until_us

    def starting(self, process: SimProcess) -> None:
        """Which release is started?"""
        newest, chance, before = spoken(), self._chance, process.speaks.highest
        if not self._world.faults.mixed or self._world.draining:
            process.speaks = newest
            return
        level = chance.choice([LEVEL_BEFORE, FEATURE_LEVEL])
        if not process.lives:
            level = LEVEL_BEFORE if chance.random() < 0.8 else level
        elif not self._is_held:
            level = max(level, before)
        self.rolled_back += level < before
        self.upgrades += bool(process.lives) and level > before
        process.speaks = Speaks(FEATURE_LEVEL_MIN, level, LEVEL_BEFORE if self._is_held else level)

    def tick(self) -> None:
        """Now and then a node is stopped, to be started with another release."""
        if self._world.faults.mixed:
            for process in self._world.processes.values():
                if process.speaks != spoken() and self._chance.random() < RESTART_RATE and self._may_stop():
                    process.stop()

    def heal(self) -> None:
        """All are to be upgraded, and no hold is left; called until it is so."""
        for process in self._world.processes.values():
            if process.speaks != spoken() and self._may_stop():
                process.stop()

    def _may_stop(self) -> bool:
        """Nobody may while a node was not told yet that its directory is an older one: neither itself nor who tells."""
        return self._world.older.untold() is None

    # --- what must hold ---------------------------------------------------------------------------------------

    def committed(self, partition: int, level: int) -> None:
        """LEVEL: the partition says that it is at this level, and the cluster was there before it."""
        allowed = self._world.oracle.cluster.machine.level
        if level > allowed:
            text = f"partition {partition} is at level {level}, the cluster at {allowed}"
            self._world.oracle.fail("LEVEL of the cluster first", text)

    def unsettled(self) -> str:
        """L5: once every node speaks the newest level, the cluster rises to it."""
        for node_id, process in self._world.processes.items():
            if process.is_up and process.node is not None and CLUSTER_PARTITION in process.node.replicas:
                level = process.node.cluster.machine.level
                if level != FEATURE_LEVEL:
                    return f"the cluster is at level {level} on node {node_id}"
        return ""
