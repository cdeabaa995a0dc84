"""Seeds of the deterministic simulation, in several processes: how many hold, and how fast they go.

    ./penstock bench simulation [--from N] [--seeds M] [--minutes T] [--processes P] [--steps S]

Ends with 1 if any seed failed. Each failure is stored as a small file, `simulation-failures/seed-<seed>.json`, and told
with the command that replays it; nothing else is written but the report. What a seed is: docs/simulation.md.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.report import Report
from tests.simulation.sweep import Bounds, describe, sweep
from tests.simulation.world import STEPS_DEFAULT

SEEDS_DEFAULT = 200


def main() -> int:
    parser = argparse.ArgumentParser(prog="penstock bench simulation")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N", help="the first seed")
    parser.add_argument("--seeds", type=int, default=0, metavar="M", help="how many; 0 = until the time is over")
    parser.add_argument("--minutes", type=float, default=0.0, metavar="T", help="how long; 0 = no bound")
    parser.add_argument("--processes", type=int, default=1, metavar="P")
    parser.add_argument("--steps", type=int, default=STEPS_DEFAULT, metavar="S", help="of each phase with faults")
    arguments = parser.parse_args()
    if arguments.processes < 1 or arguments.seeds < 0 or arguments.minutes < 0:
        parser.error("at least one process, and no negative bounds")
    seeds = arguments.seeds or (0 if arguments.minutes else SEEDS_DEFAULT)
    bounds = Bounds(arguments.first, seeds, arguments.minutes, arguments.steps, arguments.processes)
    report = Report("simulation")
    found = sweep(bounds, _say)
    for name, value, unit in describe(found):
        report.add(name, value, unit)
    report.print()
    return 1 if found.failed else 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
