"""Runs `python -m workers.usage`, which brings usage up to this moment before a report, or `workers.usage.recount`, and
shows what it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import IO, Any

from deploy import limits, management
from deploy.errors import CommandError
from deploy.installation import ROOT, Installation
from deploy.state import State

_WIPE = "\r\033[K"


class StepDisplay:
    """What the process says on stderr: on a terminal one line that changes, else a line for each step. Lines of its log
    are not shown; the last lines of all are kept for the case that it fails."""

    def __init__(self, shown: IO[str]) -> None:
        self._shown = shown
        self._began_s = time.monotonic()
        self._step = ""
        self.last_words: list[str] = []

    def follow(self, lines: IO[str]) -> None:
        for line in lines:
            text = line.rstrip("\n")
            self.last_words = [*self.last_words, text][-limits.LAST_WORDS_LINES :]
            if text and not text.startswith("{"):
                self._show(text)

    def _show(self, text: str) -> None:
        line = f"{time.monotonic() - self._began_s:5.1f} s  {text}"
        if self._shown.isatty():
            self._shown.write(f"{_WIPE}{line}")
        elif text.partition(":")[0] != self._step:
            self._shown.write(f"{line}\n")
        self._step = text.partition(":")[0]
        self._shown.flush()

    def end(self) -> None:
        if self._shown.isatty():
            self._shown.write(_WIPE)
            self._shown.flush()


def bring_up_to_now(installation: Installation, state: State) -> dict[str, Any]:
    """The process's answer (`workers/usage/__main__.py`). Raises CommandError."""
    arguments = ["workers.usage", f"--wait-s={limits.REPORT_ROUND_WAIT_S}"]
    return _ask(installation, state, arguments, limits.REPORT_NOW_DEADLINE_S, "usage could not be brought up to now")


def recount(installation: Installation, state: State, arguments: list[str]) -> dict[str, Any]:
    """The answer of `workers/usage/recount.py`. Raises CommandError."""
    asked = ["workers.usage.recount", f"--wait-s={limits.REPORT_ROUND_WAIT_S}", *arguments]
    return _ask(installation, state, asked, limits.RECOUNT_DEADLINE_S, "the month could not be counted again")


def refusal_in(last_words: list[str]) -> str:
    """Why nothing was done, where the process says so; empty where it failed in another way."""
    try:
        said = json.loads(last_words[-1]) if last_words else None
    except ValueError:
        return ""
    return str(said.get("refused", "")) if isinstance(said, dict) else ""


def _ask(
    installation: Installation, state: State, arguments: list[str], deadline_s: float, failed: str
) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", *arguments]
    environment = {**installation.environment(state, "manage"), "PYTHONPATH": str(ROOT)}
    progress = StepDisplay(sys.stderr)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        follower = threading.Thread(target=progress.follow, args=(process.stderr,), daemon=True)
        follower.start()
        killer = threading.Timer(deadline_s, process.kill)
        killer.start()
        try:
            answer = process.stdout.read()
            process.wait()
        finally:
            killer.cancel()
            process.kill()
            follower.join()
            progress.end()
    if process.returncode == os.EX_UNAVAILABLE:
        raise management.failure_of(installation, "usage", process.returncode, "\n".join(progress.last_words))
    refused = refusal_in(progress.last_words)
    if process.returncode != 0 and refused:
        raise CommandError(f"{failed}: {refused}")
    if process.returncode != 0:
        words = "\n".join(progress.last_words)
        raise CommandError(f"{failed} ({process.returncode})\n{words}".strip())
    found: dict[str, Any] = json.loads(answer)
    return found
