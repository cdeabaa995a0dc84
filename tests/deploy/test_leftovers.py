"""Processes an earlier supervisor left: found by their mark, stopped; all others are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.installation import MARK
from deploy.leftovers import find_leftovers, is_alive_in, stop_leftovers

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """One of this data directory that ignores SIGTERM, and one of another directory."""
    made = {}
    for name in ("ours", "theirs"):
        environment = {**os.environ, MARK: str(tmp_path / name)}
        made[name] = subprocess.Popen([sys.executable, "-S", "-c", DEAF], env=environment, stdout=subprocess.PIPE)
        made[name].stdout.read(1)  # type: ignore[union-attr]  # it ignores the signal from here on
    yield made
    for process in made.values():
        process.kill()
        process.communicate()


def test_leftovers_of_this_data_directory_are_stopped(
    tmp_path: Path, sleepers: dict[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.limits.LEFTOVER_TERM_S", 0.3)
    assert find_leftovers(tmp_path / "ours") == [sleepers["ours"].pid]
    assert stop_leftovers(tmp_path / "ours") == 1
    assert sleepers["ours"].wait(5) == -9
    assert sleepers["theirs"].poll() is None, "another installation's process was touched"


def test_leftovers_none_costs_no_wait(tmp_path: Path) -> None:
    began = time.monotonic()
    assert stop_leftovers(tmp_path) == 0
    assert time.monotonic() - began < 2


def test_process_number_given_out_anew_is_not_ours(tmp_path: Path) -> None:
    assert not is_alive_in(os.getpid(), tmp_path / "postgres")
    assert not is_alive_in(2**22 + 1, tmp_path)
