"""Random work of a queue partition, seed by seed; see docs/suite.md. Options: `tests/support/seeded_fuzz.py`."""

from __future__ import annotations

import argparse
import sys

from tests.storage_nodes.machines.queue.delivery_fuzz.planted import PLANTED
from tests.storage_nodes.machines.queue.delivery_fuzz.runner import MODULE, Case, run_case
from tests.support.seeded_fuzz import FuzzCommand

RUNS_DEFAULT = 500


def case_of(seed: int, plant: str, _arguments: argparse.Namespace) -> Case:
    return Case(seed, plant)


if __name__ == "__main__":
    sys.exit(FuzzCommand(MODULE, RUNS_DEFAULT, PLANTED, run_case, case_of).main())
