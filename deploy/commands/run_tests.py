"""`test [pytest arguments]`: the whole suite, or what the arguments choose; what CI runs.

A run of more than a few files is shared by a worker a core (pytest-xdist; `tests/support/load_groups.py` says what runs
together). `-n 0` runs everything in one process, `-n 4` on four workers.
"""

from __future__ import annotations

import itertools
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy import system_packages
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import ROOT

# A worker costs a second or two: its imports, and the collection of its own.
FILES_ALONE_MAX = 8
# Tests that run processes wait for them for half of their time: a worker more than cores uses it.
WAITING_WORKERS = 1
# More workers than this would wait: one group of the heavy tests runs at a time.
WORKERS_MAX = 5
HASH_SEEDS = 2**32
# What says itself how many workers, needs the terminal, chooses a few tests by name, or runs none.
ALONE = (
    "-n", "--numprocesses", "--dist", "-pno:xdist", "no:xdist", "--pdb", "--trace", "-s", "--capture=no", "-k", "--lf",
    "--last-failed", "--sw", "--stepwise", "--co", "--collect-only", "--fixtures", "--markers", "-h", "--help",
    "--version",
)  # fmt: skip


def run(arguments: list[str]) -> int:
    refuse_unknown(arguments)
    system_packages.ensure(system_packages.OF_TESTS)
    sys.stdout.flush()
    os.chdir(ROOT)
    workers = workers_for(arguments, len(os.sched_getaffinity(0)))
    # Workers must collect the same tests in the same order, also where a set says which.
    os.environ.setdefault("PYTHONHASHSEED", str(secrets.randbelow(HASH_SEEDS)))
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *workers, *arguments])


def refuse_unknown(arguments: Sequence[str]) -> None:
    """What stands before the first option is a place: behind one it may be a value. Raises CommandError."""
    for argument in itertools.takewhile(lambda one: not one.startswith("-"), arguments):
        if not (ROOT / argument.partition("::")[0]).exists():
            hint = "name a file or a folder, as tests/deploy; -k WORD chooses among them"
            raise CommandError(f"there are no tests {argument!r}: {hint}", EXIT_USAGE)


def workers_for(arguments: Sequence[str], core_count: int) -> list[str]:
    """The options of pytest-xdist; none where the run stays in one process."""
    if core_count < 2 or any(is_alone(argument) for argument in arguments):
        return []
    places = [Path(argument.partition("::")[0]) for argument in arguments if not argument.startswith("-")]
    if any(is_missing(place) for place in places):
        return []  # pytest names it then; its workers would only run no tests
    named = [place for place in places if (ROOT / place).exists()]
    if named and sum(count_files(ROOT / place) for place in named) <= FILES_ALONE_MAX:
        return []
    return ["-n", str(min(core_count + WAITING_WORKERS, WORKERS_MAX)), "--dist", "loadgroup"]


def is_missing(place: Path) -> bool:
    """Of what was certainly meant as a file or folder: the value of an option is among the places, too."""
    return (place.suffix == ".py" or place.parts[:1] == ("tests",)) and not (ROOT / place).exists()


def is_alone(argument: str) -> bool:
    """Also with its value joined: `-n4`, `-kbackoff`, `--dist=load`."""
    return any(
        argument == option or argument.startswith(option + "=" if option.startswith("--") else option)
        for option in ALONE
    )


def count_files(place: Path) -> int:
    return sum(1 for _ in place.rglob("test_*.py")) if place.is_dir() else 1
