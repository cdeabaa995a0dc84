"""The tools that judge the code, run as part of the one test command: ruff, mypy, import-linter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import PACKAGES, ROOT, python_files

BIN = Path(sys.executable).parent


def run_tool(*command: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    program = [str(BIN / command[0]), *command[1:]]
    answer = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, env=environment)
    if answer.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{(answer.stdout + answer.stderr)[-6000:]}", pytrace=False)


def test_ruff_finds_nothing() -> None:
    """Many findings mend themselves: .venv/bin/ruff check --fix ."""
    run_tool("ruff", "check", "--quiet", ".")


@pytest.mark.slow
def test_mypy_finds_nothing() -> None:
    """Every function is annotated, and the annotations agree. Settings: pyproject.toml."""
    present = [*(package for package in PACKAGES if python_files(package)), "penstock_client"]
    run_tool("mypy", "--no-error-summary", *(flag for package in present for flag in ("-p", package)))


def test_import_contracts_hold() -> None:
    """The planes and their arrows: pyproject.toml, [tool.importlinter]. Move the code, do not add an exemption."""
    run_tool("lint-imports", "--no-cache")
