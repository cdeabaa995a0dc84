"""Run seeds; see docs/simulation.md.

python -m tests.simulation SEED [--steps N] [--without KINDS] [--plant BUG] [--harsh] [--trace]   one seed
python -m tests.simulation --replay FILE [--trace]                                                a stored failure
python -m tests.simulation SEED --check-all, --sweep FROM COUNT --check-all      looks at what did not change, too
python -m tests.simulation SEED --shrink [...], --replay FILE --shrink                            make it smaller
python -m tests.simulation --sweep FROM COUNT [--processes P] [--harsh]                           many seeds
python -m tests.simulation --bugs [--seeds N] [--only BUGS] [--processes P]                       every planted bug
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from functools import partial

from tests.simulation.bug_list import PLANTED
from tests.simulation.cases import Case, Catch, commit, hunt, load, planted_bug, run_case, shrink
from tests.simulation.faults import KINDS
from tests.simulation.sweep import Bounds, describe, make_pool, sweep
from tests.simulation.world import STEPS_DEFAULT

# Away from the seeds that sweeps start with.
BUG_SEEDS_FROM = 50_000


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def one(case: Case, trace: bool) -> int:
    started = time.perf_counter()
    try:
        outcome = run_case(case, say if trace else None)
    except Exception:
        traceback.print_exc()
        say(f"FAILED; again, with every event: {case.command()} --trace")
        return 1
    elapsed_s = time.perf_counter() - started
    say(f"seed {case.seed}: {outcome}")
    say(f"{outcome.steps / elapsed_s:,.0f} steps/s, {outcome.simulated_s / elapsed_s:.1f} x real time")
    return 0


def smaller(case: Case) -> int:
    found = shrink(case, say)
    say(found.command())
    return 1


def many(bounds: Bounds, figures: str = "") -> int:
    found = sweep(bounds, say)
    for name, value, unit in describe(found):
        say(f"{name:<24}{value:>16,.0f}  {unit}")
    for verdict in found.failed:
        say(f"FAILED {verdict.seed}: {verdict.problem[:200]}")
    if figures:
        with open(figures, "w") as file:
            json.dump(list(describe(found)), file)
    return 1 if found.failed else 0


def _hunt(number: str, seeds_max: int) -> Catch:
    return hunt(planted_bug(number), BUG_SEEDS_FROM, seeds_max)


def bugs(only: list[str], seeds_max: int, processes: int) -> int:
    """Every planted bug until it is noticed."""
    planted = [bug for bug in PLANTED if not only or bug.number in only]
    if not planted:
        raise SystemExit("no such planted bug")
    say(f"{'bug':<6}{'rule':<5}{'seed':>7}{'seeds':>7}{'steps':>10}  what was noticed")
    needed, missed = [], 0
    with make_pool(processes) as pool:
        catches = pool.map(partial(_hunt, seeds_max=seeds_max), [bug.number for bug in planted])
        for bug, caught in zip(planted, catches, strict=True):
            missed += not caught.rule
            needed.append(caught.seeds)
            what = (bug.plant.__doc__ or "").partition(": ")[2].split("\n\n")[0].replace("\n    ", " ")
            seen = f"{caught.seed:>7}{caught.seeds:>7}{caught.steps:>10,}"
            say(f"{bug.number:<6}{bug.rule:<5}{seen}  {caught.rule or 'NOT CAUGHT'}: {what}")
    say(f"{len(planted) - missed} of {len(planted)} caught, median {statistics.median(needed):g} seeds")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--steps", type=int, default=STEPS_DEFAULT, help="of the phase with faults")
    parser.add_argument("--trace", action="store_true", help="write every event")
    parser.add_argument("--without", default="", metavar="KINDS", help=f"leave out faults: {', '.join(KINDS)}")
    parser.add_argument("--plant", default="", metavar="BUG", help="with this planted bug, for example B8")
    parser.add_argument("--harsh", action="store_true", help="every bound tiny, disks often lost, whatever was drawn")
    parser.add_argument("--check-all", action="store_true", help="look at what did not change, too")
    parser.add_argument("--replay", metavar="FILE", help="run a stored failure")
    parser.add_argument("--shrink", action="store_true", help="find fewer faults and steps that break the same rule")
    parser.add_argument("--sweep", type=int, nargs=2, metavar=("FROM", "COUNT"))
    parser.add_argument("--minutes", type=float, default=0.0, help="with --sweep: end after so long; COUNT may be 0")
    parser.add_argument("--figures", default="", metavar="FILE", help="with --sweep: write them there as JSON")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--bugs", action="store_true", help="run every planted bug until it is noticed")
    parser.add_argument("--only", default="", metavar="BUGS", help="with --bugs: these, for example B8,B21")
    parser.add_argument("--seeds", type=int, default=300, help="most seeds a planted bug may take")
    arguments = parser.parse_args()
    if arguments.sweep is not None:
        first, seeds = arguments.sweep
        bounds = Bounds(first, seeds, arguments.minutes, arguments.steps, arguments.processes, arguments.harsh)
        return many(bounds._replace(check_all=arguments.check_all), arguments.figures)
    if arguments.bugs:
        return bugs([name for name in arguments.only.split(",") if name], arguments.seeds, arguments.processes)
    if arguments.replay:
        case, at = load(arguments.replay)
        if at != commit():
            say(f"this failed on commit {at}; here, what is drawn when may differ")
    elif arguments.seed is not None:
        without = tuple(name for name in arguments.without.split(",") if name)
        if arguments.plant not in ("", *(bug.number for bug in PLANTED)) or not set(without) <= set(KINDS):
            parser.error("no such planted bug, or no such kind of faults")
        case = Case(arguments.seed, arguments.steps, without, arguments.plant, harsh=arguments.harsh)
        case = case._replace(check_all=arguments.check_all)
    else:
        parser.error("name a seed, or --replay FILE, or --sweep FROM COUNT, or --bugs")
    return smaller(case) if arguments.shrink else one(case, arguments.trace)


if __name__ == "__main__":
    sys.exit(main())
