"""Damage and crashes of a node's log, seed by seed; see docs/suite.md. Options: `tests/support/seeded_fuzz.py`, and how
many damages a run has."""

from __future__ import annotations

import argparse
import sys

from tests.storage_nodes.log.damage_fuzz.planted import PLANTED
from tests.storage_nodes.log.damage_fuzz.runner import DAMAGES, MODULE, Case, run_case
from tests.support.seeded_fuzz import FuzzCommand

RUNS_DEFAULT = 2_000


def case_of(seed: int, plant: str, arguments: argparse.Namespace) -> Case:
    return Case(seed, arguments.damages, plant)


if __name__ == "__main__":
    command = FuzzCommand(MODULE, RUNS_DEFAULT, PLANTED, run_case, case_of)
    command.parser.add_argument(
        "--damages", type=int, choices=sorted(set(DAMAGES)), help="a run; drawn where it is not said"
    )
    sys.exit(command.main())
