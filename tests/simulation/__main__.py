"""`python -m tests.simulation SEED [--steps N] [--trace]`, `--sweep FROM COUNT`, `--bugs`: see docs/simulation.md."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.simulation.planted import PLANTED
from tests.simulation.world import STEPS_DEFAULT, Outcome, hunt, run_seed

PROGRESS_EVERY_S = 5.0
# Away from the seeds that sweeps start with.
BUG_SEEDS_FROM = 50_000


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def replay(seed: int, steps: int) -> str:
    return f"python -m tests.simulation {seed} --steps {steps} --trace"


def one(seed: int, steps: int, trace: bool) -> int:
    started = time.perf_counter()
    try:
        outcome = run_seed(seed, steps, say if trace else None)
    except Exception:
        traceback.print_exc()
        say(f"seed {seed} FAILED; again: {replay(seed, steps)}")
        return 1
    elapsed_s = time.perf_counter() - started
    say(f"seed {seed}: {outcome}")
    say(f"{outcome.steps / elapsed_s:,.0f} steps/s, {outcome.simulated_s / elapsed_s:.1f} x real time")
    return 0


def sweep(first: int, count: int, steps: int) -> int:
    started = shown = time.perf_counter()
    outcomes: list[Outcome] = []
    failed: list[int] = []
    for seed in range(first, first + count):
        try:
            outcomes.append(run_seed(seed, steps))
        except Exception as error:
            failed.append(seed)
            say(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}; again: {replay(seed, steps)}")
        now = time.perf_counter()
        if now - shown > PROGRESS_EVERY_S:
            shown = now
            say(f"... {seed - first + 1} of {count} seeds, {len(failed)} failed, {now - started:.0f} s")
    elapsed_s = time.perf_counter() - started
    total = sum(outcome.steps for outcome in outcomes)
    say(
        f"{count} seeds from {first}: {len(failed)} failed, {total:,} steps in {elapsed_s:.0f} s "
        f"({total / elapsed_s:,.0f}/s), {sum(o.acked for o in outcomes):,} acknowledged, "
        f"{sum(o.delivered for o in outcomes):,} delivered, {sum(o.elections for o in outcomes):,} elections, "
        f"{sum(o.recoveries for o in outcomes):,} recoveries, {sum(o.flushes for o in outcomes):,} flushes, "
        f"{sum(o.simulated_s for o in outcomes):,.0f} simulated s"
    )
    return 1 if failed else 0


def bugs(seeds_max: int) -> int:
    missed = 0
    say(f"{'bug':<5}{'rule':<5}{'seed':>7}{'seeds':>7}{'steps':>10}  what was noticed")
    for planted in PLANTED:
        caught = hunt(planted, BUG_SEEDS_FROM, seeds_max)
        missed += not caught.rule
        what = (planted.plant.__doc__ or "").partition(": ")[2]
        noticed = caught.rule or "NOT CAUGHT"
        seen = f"{caught.seed:>7}{caught.seeds:>7}{caught.steps:>10,}"
        say(f"{planted.number:<5}{planted.rule:<5}{seen}  {noticed}: {what}")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--steps", type=int, default=STEPS_DEFAULT, help="of the phase with faults")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--sweep", type=int, nargs=2, metavar=("FROM", "COUNT"))
    parser.add_argument("--bugs", action="store_true", help="run every planted bug until it is noticed")
    parser.add_argument("--seeds", type=int, default=300, help="most seeds a planted bug may take")
    arguments = parser.parse_args()
    if arguments.sweep is not None:
        return sweep(arguments.sweep[0], arguments.sweep[1], arguments.steps)
    if arguments.bugs:
        return bugs(arguments.seeds)
    if arguments.seed is None:
        parser.error("name a seed, or --sweep FROM COUNT, or --bugs")
    return one(arguments.seed, arguments.steps, arguments.trace)


if __name__ == "__main__":
    sys.exit(main())
