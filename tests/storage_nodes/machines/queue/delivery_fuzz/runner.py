"""One seed: steps of a queue partition, each judged, until all that is left is received."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import NamedTuple

from storage_nodes.machines.queue.effects import DeadLetter, Deliver
from storage_nodes.machines.queue.leader.leader import RETENTION_CHECKS_PER_RETENTION
from tests.storage_nodes.machines.queue.delivery_fuzz.configurations import KINDS, LONG_MS, Kind
from tests.storage_nodes.machines.queue.delivery_fuzz.configured_fifo import ConfiguredFifo
from tests.storage_nodes.machines.queue.delivery_fuzz.oracle import (
    judge_fold,
    judge_groups,
    judge_leases,
    judge_letters,
    judge_replicas,
)
from tests.storage_nodes.machines.queue.delivery_fuzz.planted import PLANTED
from tests.storage_nodes.machines.queue.delivery_fuzz.small_limits import small_limits
from tests.storage_nodes.machines.queue.delivery_fuzz.workload import Workload
from tests.storage_nodes.machines.queue.partition import VISIBILITY_MS
from tests.support.seeded_fuzz import BrokenRule, Verdict, judge, require

MODULE = "tests.storage_nodes.machines.queue.delivery_fuzz"
STEPS = 150
DRAIN_ROUNDS_MAX = 400
# Share of runs in which all that is left, and some sends more, expires instead of being received.
LAPSE_SHARE = 0.5
LAPSE_SENDS_MAX = 12
# Of retention: all is gone within so many.
LAPSE_CHECKS_MAX = 2
# In the last of these all that is delayed, paused or remembered is past.
REST_ROUNDS, REST_MS = 20, 60_000


class Case(NamedTuple):
    seed: int
    plant: str = ""

    @property
    def kind(self) -> Kind:
        return KINDS[self.seed % len(KINDS)]

    def command(self) -> str:
        plant = f" --plant {self.plant}" if self.plant else ""
        return f"python -m {MODULE} --seed {self.seed}{plant}"


class Run:
    def __init__(self, rnd: random.Random, kind: Kind, limits: dict[str, int]) -> None:
        self._rnd = rnd
        self._workload = Workload(rnd, kind, limits)
        self._partition = self._workload.partition
        config = self._partition.config
        assert config is not None
        self._naive = ConfiguredFifo(config) if kind.is_fifo else None
        self._entries_seen = self._effects_seen = 0
        self.trace = self._workload.trace
        self.trace.append(str(kind))

    def run(self) -> None:
        for _ in range(STEPS):
            self._workload.step()
            self._judge()
        self._workload.write()
        self.trace.append("drain")
        self._drain()

    def _judge(self) -> None:
        workload, partition = self._workload, self._partition
        for effect in partition.effects[self._effects_seen :]:
            if isinstance(effect, DeadLetter):
                judge_letters(effect)
            elif isinstance(effect, Deliver):
                moved = workload.moved.intersection(pick.offset for pick in effect.picks)
                require("moved", not moved, f"{moved} are handed out")
                workload.delivered(effect)
        self._effects_seen = len(partition.effects)
        if self._naive is not None:
            judge_fold(self._naive, partition, self._entries_seen)
            self._entries_seen = len(partition.log)
        judge_replicas(partition)
        leader = partition.leader.leader
        if leader is not None:
            judge_leases(partition.leader.state, leader, workload.revived)
            if self._naive is not None:
                judge_groups(partition.leader.state, leader, self._naive)

    # --- the end ----------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        workload, partition = self._workload, self._partition
        partition.holds_fetches = False
        partition.run_fetches()
        self._settle()
        lapses = self._rnd.random() < LAPSE_SHARE
        retention_ms = LONG_MS if lapses else self._rnd.choice((20_000, LONG_MS))
        partition.perform(partition.leader.configure(workload.token(), workload.configurations.last(retention_ms)))
        self._settle()
        if lapses:
            self._lapse()
        for at in range(DRAIN_ROUNDS_MAX):
            workload.pass_ms(VISIBILITY_MS + 1_000 if at % 3 == 0 else 1_000)
            self._settle()
            while partition.moves:
                workload.move()
                self._settle()
            if workload.kind.is_fifo:
                partition.perform(partition.leader.unpark(workload.token(), [], partition.now_ms))
                self._settle()
            self._receive()
            if self._is_empty and self._rests():
                return
        state = partition.leader.state
        raise BrokenRule("drains", f"{len(state.live)} in flight or delayed, {state.fresh_count} wait")

    def _lapse(self) -> None:
        """Nobody receives: all that is there expires soon after its retention. How much one input looks at matters
        little beside that."""
        partition = self._partition
        self.trace.append("lapse")
        partition.leader.clocks_say(0)
        for _ in range(self._rnd.randint(0, LAPSE_SENDS_MAX)):
            self._workload.do("send")
            self._settle()
        until_ms = partition.now_ms + LONG_MS + LAPSE_CHECKS_MAX * LONG_MS // RETENTION_CHECKS_PER_RETENTION
        while 0 < (due_ms := partition.leader.next_tick_ms()) <= until_ms:
            self._workload.pass_ms(max(0, due_ms - partition.now_ms))
            partition.commit()
        self._judge()
        state = partition.leader.state
        left = f"{len(state.live)} in flight or delayed, {state.fresh_count} wait"
        require("expires", self._is_empty, f"{left}, all beyond their retention")

    @property
    def _is_empty(self) -> bool:
        state = self._partition.leader.state
        return not (state.live or state.fresh_count or state.delayed)

    def _receive(self) -> None:
        workload, partition, token = self._workload, self._partition, self._workload.token()
        partition.acquire(token, workload.acquired_max, VISIBILITY_MS, self._rnd.choice((0, 500)))
        self._settle()
        picks = partition.delivered.get(token)
        if picks:
            partition.delete(workload.token(), [pick[:2] for pick in picks])
            self._settle()

    def _rests(self) -> bool:
        """Nothing is asked for once all is past."""
        partition = self._partition
        partition.leader.clocks_say(0)
        for _ in range(REST_ROUNDS):
            self._workload.pass_ms(REST_MS)
            self._settle()
        if self._is_empty:
            require("rests", not partition.leader.next_tick_ms(), "ticks of an empty queue go on")
        return self._is_empty

    def _settle(self) -> None:
        self._partition.commit()
        self._judge()


def run_case(case: Case) -> Verdict:
    rnd = random.Random(case.seed)
    with small_limits(rnd) as limits, PLANTED[case.plant]() if case.plant else nullcontext():
        return judge(case, lambda: Run(rnd, case.kind, limits), "works")
