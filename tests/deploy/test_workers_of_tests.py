"""`./penstock test` shares a long run between workers, and leaves a short one in one process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deploy.commands.run_tests import FILES_ALONE_MAX, WORKERS_MAX, refuse_unknown, workers_for
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import ROOT

SHARED = ["-n", "3", "--dist", "loadgroup"]


@pytest.mark.parametrize(
    "arguments", [[], ["-q", "--durations=40"], ["tests/frontend"], ["-m", "not slow"], ["tests/api", "tests/tidy"]]
)
def test_run_of_many_files_has_a_worker_more_than_cores(arguments: list[str]) -> None:
    assert workers_for(arguments, 2) == SHARED
    assert workers_for(arguments, 64)[1] == str(WORKERS_MAX)
    assert workers_for(arguments, 1) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["tests/deploy/test_child.py"],
        ["tests/deploy/test_child.py::test_x[a]", "tests/deploy/test_lines.py"],
        ["tests/api/series"],
        ["tests/deploy/test_chidl.py"],
        ["tests/frontend", "tests/deploy/test_chidl.py::test_x"],
        ["-k", "backoff"],
        ["-kbackoff"],
        ["-n", "0"],
        ["-n4"],
        ["--numprocesses=3"],
        ["-p", "no:xdist"],
        ["--pdb"],
        ["--collect-only"],
    ],
)
def test_run_of_few_files_or_with_a_word_on_workers_stays_as_it_is(arguments: list[str]) -> None:
    assert workers_for(arguments, 2) == []


def test_files_are_counted_in_folders_and_one_by_one() -> None:
    some = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / "frontend").glob("test_*.py"))]
    assert workers_for(some[:FILES_ALONE_MAX], 2) == []
    assert workers_for(some[: FILES_ALONE_MAX + 1], 2) == SHARED


def test_interpreters_that_tests_start_keep_what_they_compiled() -> None:
    asked = subprocess.run([sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"], capture_output=True)
    assert asked.stdout == b"False\n" and not sys.dont_write_bytecode


@pytest.mark.parametrize("arguments", [["backoff"], ["tests/deploy", "tests/deploy/test_chidl.py::test_x"]])
def test_tests_that_are_not_there_are_refused_with_what_can_be_named(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match=r"there are no tests .*name a file or a folder, as tests/deploy") as refused:
        refuse_unknown(arguments)
    assert refused.value.exit_code == EXIT_USAGE


def test_value_of_an_option_is_not_taken_for_a_place() -> None:
    refuse_unknown(["tests/deploy/test_child.py::test_x", "-k", "backoff"])
    refuse_unknown(["-m", "slow"])
