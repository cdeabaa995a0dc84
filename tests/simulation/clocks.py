"""The clocks of machines, and what goes wrong with them.

A machine has a boot-time clock, which only ever advances (with drift, also while the machine sleeps), and a wall clock
with an offset. True time is the scheduler's. In a world whose clocks jump a fixed minority of the nodes are *liars*:
their wall clocks may be wrong by anything from a second to decades, at a start or under way. All others stay right
within RIGHT_MS, so that what a majority says is right, whoever is asked and however old the answer.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from storage_nodes.node.clocks.clock import NodeClock

if TYPE_CHECKING:
    from tests.simulation.clockwork import Scheduler
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

WALL_START_MS = 1_700_000_000_000
MONO_START_MS = 1_000_000
RIGHT_MS = 300
DRIFT_PPM = 1_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_2100_MS = 4_102_444_800_000
# What a wrong wall clock is off by; 0 = by nothing, it was mended.
_WRONG_MS = (0, 0, 1_500, -1_500, 10_000, -10_000, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS, 5 * DAY_MS)
_AT_BOOT_MS = (*_WRONG_MS, -WALL_START_MS, YEAR_2100_MS - WALL_START_MS)


class MachineClock:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.drift_ppm = 0
        self.offset_ms = 0

    def boottime_ms(self) -> int:
        now_us = self._scheduler.now_us
        return MONO_START_MS + (now_us + now_us * self.drift_ppm // 1_000_000) // 1_000

    def wall_ms(self) -> int:
        return true_ms(self._scheduler) + self.offset_ms


class SimClock(NodeClock):
    """What a node sees of the clocks of its machine."""

    def __init__(self, machine: MachineClock) -> None:
        self._machine = machine

    def mono_ms(self) -> int:
        return self._machine.boottime_ms()

    def wall_ms(self) -> int:
        return self._machine.wall_ms()


class ClockFaults:
    """Draws what happens to the clocks of a world, from a source of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}-clocks")
        faults, chance, nodes = world.faults, self._chance, world.node_ids
        minority = (len(nodes) - 1) // 2
        self.liars = set(chance.sample(nodes, minority)) if faults.jump_rate else set()
        for process in world.processes.values():
            if faults.drift:
                process.clock.drift_ppm = chance.randrange(-DRIFT_PPM, DRIFT_PPM)
            process.clock.offset_ms = self._nearly_right_ms()
        self.jumps = self.sleeps = 0

    def _nearly_right_ms(self) -> int:
        return self._chance.randrange(-RIGHT_MS, RIGHT_MS)

    def starting(self, process: SimProcess) -> None:
        """A machine's clock may be anything before the network time is there."""
        if self._may_lie(process) and self._chance.random() < 0.5:
            self._set(process, self._chance.choice(_AT_BOOT_MS))

    def tick(self) -> None:
        """NTP steps a clock; a machine sleeps, or all of them do."""
        world, chance, faults = self._world, self._chance, self._world.faults
        for process in world.processes.values():
            if process.is_up and chance.random() < faults.jump_rate:
                if self._may_lie(process):
                    self._set(process, chance.choice(_WRONG_MS))
                else:
                    process.clock.offset_ms = self._nearly_right_ms()
            elif process.is_up and chance.random() < faults.suspend_rate:
                self._suspend(process)
        if chance.random() < faults.sleep_rate:
            self._sleep()

    def _suspend(self, process: SimProcess) -> None:
        """One machine sleeps; a liar's wall clock did not notice."""
        duration_ms = self._chance.randrange(2_000, 15_000)
        process.pause(duration_ms * 1_000)
        self._world.scheduler.after(duration_ms * 1_000 - 1, self._wakes, process, duration_ms)

    def _wakes(self, process: SimProcess, slept_ms: int) -> None:
        if self._may_lie(process):
            self._set(process, -slept_ms)

    def _sleep(self) -> None:
        """All machines sleep at once, as those of one host do: for as long as it likes, at no cost in steps."""
        world, faults = self._world, self._world.faults
        longest_ms = 600_000
        if not faults.drift:
            longest_ms = 8 * HOUR_MS
        duration_ms = self._chance.choice([3_000, 20_000, 70_000, longest_ms])
        self.sleeps += 1
        world.scheduler.sleep(duration_ms * 1_000)
        for process in world.processes.values():
            process.resumed_us = world.scheduler.now_us

    def heal(self) -> None:
        """Faults are over. A clock may stay wrong, where its node is not needed: no disk was lost, none is emptied."""
        world, faults = self._world, self._world.faults
        needed = world.wipes or faults.rot_rate or faults.movers or len(world.node_ids) > 4
        if faults.mended or needed or self._chance.random() < 0.5:
            for node_id in sorted(self.liars):
                self._set(world.processes[node_id], 0)

    def is_wrong(self, node_id: int) -> bool:
        """Beyond what peers may overlook."""
        return abs(self._world.processes[node_id].clock.offset_ms) > 1_000 + 2 * RIGHT_MS

    def _may_lie(self, process: SimProcess) -> bool:
        return process.process_id in self.liars and not self._world.draining

    def _set(self, process: SimProcess, wrong_ms: int) -> None:
        process.clock.offset_ms = wrong_ms + self._nearly_right_ms()
        self.jumps += 1


def true_ms(scheduler: Scheduler) -> int:
    return WALL_START_MS + scheduler.now_us // 1_000
