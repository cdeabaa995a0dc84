"""Seeds of the deterministic simulation, in several processes: how many hold, and how fast they go.

    ./penstock bench simulation [--from N] [--seeds M] [--minutes T] [--processes P] [--steps S]

Ends with 1 if any seed failed. Each failure is stored as a small file, `simulation-failures/seed-<seed>.json`, and told
with the command that replays it; nothing else is left behind but the report. What a seed is: docs/simulation.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

from benchmarks.report import Report

SEEDS_DEFAULT = 200


def main() -> int:
    parser = argparse.ArgumentParser(prog="penstock bench simulation")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N", help="the first seed")
    parser.add_argument("--seeds", type=int, default=0, metavar="M", help="how many; 0 = until the time is over")
    parser.add_argument("--minutes", type=float, default=0.0, metavar="T", help="how long; 0 = no bound")
    parser.add_argument("--processes", type=int, default=1, metavar="P")
    parser.add_argument("--steps", type=int, default=0, metavar="S", help="of each phase with faults; 0 = as usual")
    arguments = parser.parse_args()
    if arguments.processes < 1 or arguments.seeds < 0 or arguments.minutes < 0:
        parser.error("at least one process, and no negative bounds")
    seeds = arguments.seeds or (0 if arguments.minutes else SEEDS_DEFAULT)
    command = [sys.executable, "-m", "tests.simulation", "--sweep", str(arguments.first), str(seeds)]
    command += ["--minutes", str(arguments.minutes), "--processes", str(arguments.processes)]
    command += ["--steps", str(arguments.steps)] if arguments.steps else []
    with tempfile.TemporaryDirectory() as directory:
        figures = os.path.join(directory, "figures.json")
        code = subprocess.run([*command, "--figures", figures], stdout=sys.stderr).returncode
        if os.path.exists(figures):
            _report(figures)
    return code


def _report(figures: str) -> None:
    report = Report("simulation")
    with open(figures) as file:
        for name, value, unit in json.load(file):
            report.figures.append((name, value, unit))
    report.print()


if __name__ == "__main__":
    sys.exit(main())
