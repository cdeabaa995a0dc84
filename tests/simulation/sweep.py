"""Many seeds, in several processes: progress, figures, and a file for every seed that failed.

Nothing is shared between seeds, so any number of processes gives the same verdicts. Every TWICE_EACH-th seed is run a
second time: another digest means that something in the run is not decided by the seed, and counts as a failure.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import count
from multiprocessing.util import Finalize
from typing import NamedTuple

from tests.simulation.cases import FAILURES_DIRECTORY, Case, run_case, store
from tests.simulation.world import STEPS_DEFAULT, Outcome

TWICE_EACH = 50
PROGRESS_EVERY_S = 5.0
# Objects between two collections while a seed runs: more than a seed makes. What it leaves is collected after it.
COLLECT_EACH_OBJECTS = 1_000_000
# Seeds handed to the processes ahead of what they finish, per process.
AHEAD = 4


class Verdict(NamedTuple):
    seed: int
    outcome: Outcome | None
    problem: str  # empty: every promise was kept
    cpu_s: float


class Sweep(NamedTuple):
    """What a sweep found. `totals` are sums over the outcomes of all seeds that passed."""

    seeds: int
    failed: list[Verdict]
    totals: Counter[str]
    elapsed_s: float
    cpu_s: float

    @property
    def steps_per_core_s(self) -> float:
        """Steps in a second of one core's time."""
        return self.totals["steps"] / max(self.cpu_s, 1e-9)


class Bounds(NamedTuple):
    """Which seeds: from `first` on, until `seeds` of them or `minutes` are over; 0 = no such bound."""

    first: int
    seeds: int = 0
    minutes: float = 0.0
    steps: int = STEPS_DEFAULT
    processes: int = 1
    harsh: bool = False
    check_all: bool = False

    def case(self, seed: int) -> Case:
        return Case(seed, self.steps, harsh=self.harsh, check_all=self.check_all)


def sweep(bounds: Bounds, say: Callable[[str], None], directory: str = FAILURES_DIRECTORY) -> Sweep:
    started = shown = time.perf_counter()
    totals: Counter[str] = Counter()
    failed: list[Verdict] = []
    done, cpu_s = 0, 0.0
    with _collector_at_rest():
        for verdict in _verdicts(bounds, started):
            done += 1
            cpu_s += verdict.cpu_s
            if verdict.outcome is not None:
                totals.update({n: v for n, v in verdict.outcome._asdict().items() if n not in ("seed", "digest")})
            if verdict.problem:
                failed.append(verdict)
                path = store(directory, bounds.case(verdict.seed), verdict.problem)
                say(f"seed {verdict.seed}: {verdict.problem[:300]}")
                say(f"    again: python -m tests.simulation --replay {path}")
            now = time.perf_counter()
            if now - shown > PROGRESS_EVERY_S:
                shown = now
                rate = totals["steps"] / (now - started)
                say(f"... {done:,} seeds, {len(failed)} failed, {rate:,.0f} steps/s, {now - started:,.0f} s")
    return Sweep(done, failed, totals, time.perf_counter() - started, cpu_s)


def judge(case: Case) -> Verdict:
    """Run one seed, or the same twice."""
    twice = case.seed % TWICE_EACH == 0
    started = time.process_time()
    outcome = None
    try:
        outcome = run_case(case)
        problem = ""
        if twice and (again := run_case(case)) != outcome:
            problem = f"NOT DETERMINISTIC: {outcome} and then {again}"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    gc.collect()
    return Verdict(case.seed, outcome, problem, (time.process_time() - started) / (2 if twice and not problem else 1))


def describe(found: Sweep) -> Iterator[tuple[str, float, str]]:
    """The figures of a sweep: name, value, unit."""
    totals = found.totals
    yield "seeds", found.seeds, "seeds"
    yield "seeds that failed", len(found.failed), "seeds"
    yield "steps", totals["steps"], "steps"
    yield "steps, all processes", totals["steps"] / max(found.elapsed_s, 1e-9), "1/s"
    yield "steps, one core", found.steps_per_core_s, "1/s"
    yield "simulated time", totals["simulated_s"] / 3_600, "h"
    for name in Outcome._fields[Outcome._fields.index("acked") :]:
        yield name, totals[name], ""


def make_pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, initializer=_collect_at_end)


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Garbage is collected between seeds (`judge`), and modules are no part of it: a tenth of the time. Processes that
    are forked within inherit this."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EACH_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _collect_at_end() -> None:
    """Coroutines of worlds that are over must go before the interpreter does: while it ends, they cannot."""
    Finalize(None, gc.collect, exitpriority=10)


def _verdicts(bounds: Bounds, started: float) -> Iterator[Verdict]:
    seeds = iter(range(bounds.first, bounds.first + bounds.seeds)) if bounds.seeds else count(bounds.first)
    end = started + bounds.minutes * 60 if bounds.minutes else float("inf")
    if bounds.processes == 1:
        for seed in seeds:
            if time.perf_counter() >= end:
                return
            yield judge(bounds.case(seed))
        return
    with make_pool(bounds.processes) as pool:
        pending: set[Future[Verdict]] = set()
        while True:
            while len(pending) < bounds.processes * AHEAD and time.perf_counter() < end:
                seed = next(seeds, -1)
                if seed < 0:
                    break
                pending.add(pool.submit(judge, bounds.case(seed)))
            if not pending:
                return
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from sorted(future.result() for future in finished)
