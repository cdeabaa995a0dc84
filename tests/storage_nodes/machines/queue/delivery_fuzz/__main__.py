"""Random work of a queue partition, seed by seed; see docs/suite.md.

python -m tests.storage_nodes.machines.queue.delivery_fuzz --seed S [--plant BUG]   one seed, with all its steps
python -m tests.storage_nodes.machines.queue.delivery_fuzz [--seed S] --runs N [--processes P]   so many from S on
python -m tests.storage_nodes.machines.queue.delivery_fuzz --bugs [--runs N] [--processes P]   with each planted bug
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.storage_nodes.machines.queue.delivery_fuzz.planted import PLANTED
from tests.storage_nodes.machines.queue.delivery_fuzz.runner import Case, run_case, run_cases

RUNS_DEFAULT = 500
PROGRESS_EVERY_S = 5.0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def one(case: Case) -> int:
    verdict = run_case(case)
    say("\n".join(verdict.trace))
    end = f"FAILED seed {case.seed}, {verdict.problem}" if verdict.rule else f"seed {case.seed}: every rule holds"
    say(f"{end} ({case.kind})")
    return 1 if verdict.rule else 0


def many(cases: list[Case], processes: int) -> int:
    started = shown = time.perf_counter()
    failed = 0
    for done, verdict in enumerate(run_cases(cases, processes), 1):
        if verdict.rule:
            failed += 1
            say(f"FAILED seed {verdict.case.seed} ({verdict.case.kind}), {verdict.problem}")
            say(f"    again: {verdict.case.command()}")
        now = time.perf_counter()
        if now - shown > PROGRESS_EVERY_S:
            shown = now
            say(f"... {done:,} of {len(cases):,} runs, {failed} failed, {now - started:,.0f} s")
    say(f"{len(cases):,} runs, {failed} failed, {time.perf_counter() - started:,.0f} s")
    return 1 if failed else 0


def bugs(seed: int, runs: int, processes: int) -> int:
    """In how many runs each planted bug shows: as a table of docs/suite.md."""
    missed = 0
    for number, plant in PLANTED.items():
        cases = [Case(at, number) for at in range(seed, seed + runs)]
        found = [verdict for verdict in run_cases(cases, processes) if verdict.rule]
        rules = ", ".join(rule for rule, _ in Counter(verdict.rule for verdict in found).most_common())
        what = (plant.__doc__ or "").partition(": ")[2].strip().rstrip(".")
        first = f"{found[0].case.seed:,}" if found else "-"
        say(f"| {number} | {what} | {len(found):,} | {first} | {rules or 'NOT FOUND'} |")
        missed += not found
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storage_nodes.machines.queue.delivery_fuzz")
    parser.add_argument("--seed", type=int, help="alone: this one, with all its steps; otherwise the first")
    parser.add_argument("--runs", type=int, help=f"how many seeds; {RUNS_DEFAULT:,} without --seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--plant", default="", metavar="BUG", help="with this planted bug, for example Q4")
    parser.add_argument("--bugs", action="store_true", help="with each planted bug in turn")
    arguments = parser.parse_args()
    if arguments.plant not in ("", *PLANTED):
        parser.error("no such planted bug")
    seed, runs = arguments.seed or 1, arguments.runs or RUNS_DEFAULT
    if arguments.bugs:
        return bugs(seed, runs, arguments.processes)
    if arguments.seed is not None and arguments.runs is None:
        return one(Case(seed, arguments.plant))
    return many([Case(at, arguments.plant) for at in range(seed, seed + runs)], arguments.processes)


if __name__ == "__main__":
    sys.exit(main())
