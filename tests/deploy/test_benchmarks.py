"""`bench`: what it lists and says, and what it leaves behind when it is ended early: nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.__main__ import main
from deploy.commands import run_benchmarks
from deploy.installation import ROOT

RUNS_ANOTHER = (
    "import benchmarks, sys; benchmarks.__path__.append(sys.argv.pop(1)); "
    "from benchmarks.__main__ import main; sys.exit(main())"
)
SLEEPER = """
import pathlib, sys, time
place = pathlib.Path(sys.argv[1])
if __name__ == "__main__":
    (place / "up").touch()
    try:
        time.sleep(60)
    finally:
        time.sleep(0.2)
        (place / "down").touch()
"""
LAUNCHER = (
    "import sys; from deploy.commands.run_benchmarks import run_to_the_end; sys.exit(run_to_the_end(sys.argv[1:]))"
)


def wait_for(what: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 30
    while not what():
        assert time.monotonic() < ends_s, "not in time"
        time.sleep(0.01)


def test_help_lists_all_and_says_what_one_measures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_benchmarks, "run_to_the_end", lambda command: pytest.fail("nothing is measured"))
    assert main(["bench", "--help"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0].replace("-", "_") for line in listed] == list(run_benchmarks.benchmarks())
    assert all(len(line) > 40 for line in listed)
    assert main(["bench", "usage-now", "--help"]) == 0
    assert "./penstock bench usage-now [QUEUES]" in capsys.readouterr().out


@pytest.mark.parametrize("through_launcher", [False, True])
def test_benchmark_that_is_ended_takes_down_what_it_has_started(tmp_path: Path, through_launcher: bool) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    command = [sys.executable, "-c", RUNS_ANOTHER, str(tmp_path), "sleeper", str(tmp_path)]
    if through_launcher:
        command = [sys.executable, "-c", LAUNCHER, *command]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        wait_for((tmp_path / "up").exists)
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
        assert (tmp_path / "down").exists(), "before whoever ended it goes on"
    finally:
        process.kill()


def test_those_that_follow_one_that_was_ended_are_not_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []
    codes = iter([1, 128 + signal.SIGTERM])

    def end(command: list[str]) -> int:
        begun.append(command[3])
        return next(codes)

    monkeypatch.setattr(run_benchmarks, "run_to_the_end", end)
    assert main(["bench"]) != 0
    assert begun == list(run_benchmarks.benchmarks())[:2] and f"failed: {', '.join(begun)}" in capsys.readouterr().err
