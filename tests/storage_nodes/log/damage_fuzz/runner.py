"""One seed: lives of a node's log that end in crashes, damage, a repair that is cut short, and work again."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import NamedTuple
from unittest import mock

from storage_nodes.log import recovery
from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.record_batch import build_batch
from tests.storage_nodes.log.damage_fuzz.damages import Damages
from tests.storage_nodes.log.damage_fuzz.maintenance import Maintenance
from tests.storage_nodes.log.damage_fuzz.oracle import (
    Flushed,
    ends_unreadable,
    judge_again,
    judge_damaged,
    judge_files,
    judge_undamaged,
    states,
)
from tests.storage_nodes.log.damage_fuzz.planted import PLANTED
from tests.storage_nodes.log.damage_fuzz.workload import CRASH_AFTER_MAX, Workload
from tests.storage_nodes.log.faulty_disk import SECTOR_BYTES, FaultyDisk, PowerLost
from tests.storage_nodes.log.writing import SMALL, carry_out, commit, facts_of
from tests.support.seeded_fuzz import BrokenRule, Verdict, judge

MODULE = "tests.storage_nodes.log.damage_fuzz"
# How many damages a seed that does not say draws from.
DAMAGES = (0, 1, 1, 2)
IN_USE_SHARE = 0.35
REPAIRS_CUT_MAX = 3
FLUSH_ROUNDS = 4
GROUPS_MAX = 100  # that fill a file of the write-ahead log


class Case(NamedTuple):
    seed: int
    damages: int | None = None  # None: drawn
    plant: str = ""

    def command(self) -> str:
        damages = "" if self.damages is None else f" --damages {self.damages}"
        plant = f" --plant {self.plant}" if self.plant else ""
        return f"python -m {MODULE} --seed {self.seed}{damages}{plant}"


class Run:
    def __init__(self, case: Case) -> None:
        self._rnd = rnd = random.Random(case.seed)
        self._damages = Damages(rnd, rnd.choice(DAMAGES) if case.damages is None else case.damages)
        self._workload = Workload(random.Random(case.seed + 1))
        self._lives = rnd.randint(1, 3)
        self._starts = 0
        self.trace = self._workload.trace

    def run(self) -> None:
        for _ in range(self._lives - bool(self._damages.left)):
            self._workload.live(self._rnd, self._crash_after())
            disk = self._ended()
            log, disk = self._open(disk)
            self._workload.go_on(log, disk, judge_undamaged(self._workload, log))
        if self._damages.left:
            self._damaged_life()

    def _damaged_life(self) -> None:
        rnd, workload = self._rnd, self._workload
        if rnd.random() < IN_USE_SHARE:
            workload.live(rnd)
            Maintenance(workload, self._damages, rnd).live()
            disk = workload.disk.as_killed()
            disk.settle()
            flushed = Flushed(disk, workload)
        else:
            workload.live(rnd, self._crash_after())
            disk = workload.disk.as_killed()
            disk.settle()
            flushed = Flushed(disk, workload)
            self._damage(disk)
            while self._damages.left and rnd.random() < 0.7:
                self._damage(disk)
        starts = self._starts + 1
        log, disk = self._open(disk)
        judge_damaged(workload, log, self._damages, flushed, self._starts > starts)
        self._go_on(log)
        before, unreadable = states(log), ends_unreadable(log, disk)
        log, disk = self._open(self._next(disk), cut=False)
        judge_again(before, log, unreadable)
        if log.partitions:
            self._flush(log)
            judge_files(log, disk)

    def _damage(self, disk: FaultyDisk) -> None:
        self._damages.do(disk)
        self.trace.append(f"damage: {self._damages.done[-1]}")

    def _crash_after(self) -> int | None:
        return self._rnd.randrange(1, CRASH_AFTER_MAX) if self._rnd.random() < 0.7 else None

    def _ended(self) -> FaultyDisk:
        return self._next(self._workload.disk)

    def _next(self, disk: FaultyDisk) -> FaultyDisk:
        """That is found at the next start."""
        power_loss = self._rnd.random() < 0.5
        self.trace.append("power loss" if power_loss else "killed")
        return disk.after_power_loss() if power_loss else disk.as_killed()

    def _open(self, disk: FaultyDisk, cut: bool = True) -> tuple[NodeLog, FaultyDisk]:
        """Open for repair; with `cut` it may be cut short some times, and damage that is left may come in between."""
        tries = self._rnd.randint(0, REPAIRS_CUT_MAX) if cut else 0
        while True:
            self._starts += 1
            disk.crash_after = self._rnd.randrange(1, 60) if tries else None
            tries -= bool(tries)
            try:
                log = NodeLog.open("/node", SMALL, disk, incarnation_min=5_000 * self._starts, repair=True)
            except PowerLost:
                disk = self._next(disk)
                if self._damages.left and self._damages.done:
                    disk.settle()
                    self._damage(disk)
                continue
            except Exception as error:
                raise BrokenRule("opens", f"{type(error).__name__}: {error} after {self._damages.done}") from error
            disk.crash_after = None
            return log, disk

    def _go_on(self, log: NodeLog) -> None:
        """Every replica takes entries."""
        for partition, found in log.partitions.items():
            for _ in range(3):
                epoch = max(found.last_epoch, found.epoch, self._workload.past[partition].epoch_free)
                log.append(partition, build_batch(found.log_end, epoch, 5, [b"new"]))
        if log.partitions:
            commit(log)

    def _flush(self, log: NodeLog) -> None:
        """Until nothing of what was there before is needed."""
        for _ in range(FLUSH_ROUNDS):
            found = next(iter(log.partitions.values()))
            for _ in range(GROUPS_MAX):
                log.append(found.partition, build_batch(found.log_end, found.last_epoch, 5, [b"x" * 200]))
                commit(log)
                plan = log.begin_flush()
                if plan is not None:
                    break
            else:
                raise BrokenRule("ends", "no flush begins, whatever is written")
            while not log.plan_flush(plan, facts_of(log)):  # type: ignore[arg-type]
                pass
            carry_out(log, plan)


def run_case(case: Case) -> Verdict:
    small_steps = mock.patch.object(recovery, "UNREADABLE_STEP_BYTES", SECTOR_BYTES)
    with small_steps, PLANTED[case.plant]() if case.plant else nullcontext():
        return judge(case, lambda: Run(case), "ends")
