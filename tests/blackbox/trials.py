"""Trials: one command, one result as JSON, one table row. Each does one kind of harm and judges by rules of its own.

Scenarios (`scenarios.py`) repeat one fault under one load and judge one history; trials are for promises that need a
load, a clock or servers of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

COLUMNS = ("trial", "result", "s", "counts", "violations")
EXAMPLES = 3


class Ask(NamedTuple):
    """What the command line said. `seconds`: how long the harm lasts, or goes on being done anew."""

    seconds: float
    seed: int
    history: Path | None = None


class Result(msgspec.Struct):
    """What a trial found. `failure` is why it ended early; a trial that could not be judged has not passed."""

    name: str
    seed: int
    seconds: float = 0.0
    counts: dict[str, float] = {}
    violations: dict[str, list[str]] = {}
    notes: list[str] = []
    failure: str = ""

    @property
    def passed(self) -> bool:
        return bool(self.counts) and not self.failure and not any(self.violations.values())

    def as_json(self) -> bytes:
        found = {name: items for name, items in self.violations.items() if items}
        return msgspec.json.encode({"passed": self.passed, **msgspec.to_builtins(self), "violations": found})


class Trial(NamedTuple):
    """`seconds` is how long the harm lasts where nobody says otherwise; `overtime_s` bounds all the rest of the run."""

    run: Callable[[Ask, Result], Awaitable[None]]
    seconds: float
    overtime_s: float = 240.0


def run_trial(name: str, trial: Trial, ask: Ask) -> Result:
    """Run and judge. Whatever a trial started it ends itself, by process number, in its own `finally`."""
    result = Result(name, ask.seed)
    began_s = time.monotonic()
    try:
        asyncio.run(asyncio.wait_for(trial.run(ask, result), ask.seconds + trial.overtime_s))
    # Whatever it is: a trial that broke off has not passed. The last one is what a command of the launcher raises.
    except (Exception, pytest.fail.Exception) as error:
        result.failure = f"{type(error).__name__}: {error}"
    result.seconds = round(time.monotonic() - began_s, 1)
    return result


def header() -> list[str]:
    return ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]


def row(result: Result) -> str:
    counts = ", ".join(f"{name} {value:g}" for name, value in result.counts.items())
    found = ", ".join(f"{name} {len(items)}" for name, items in result.violations.items() if items)
    verdict = "passed" if result.passed else "FAILED"
    return f"| {result.name} | {verdict} | {result.seconds:.0f} | {counts or '-'} | {found or result.failure or '0'} |"


def details(result: Result) -> list[str]:
    lines = [f"- {result.name}: {text}" for text in result.notes]
    for name, items in result.violations.items():
        if items:
            lines.append(f"- {result.name}: {name} ({len(items)}): {'; '.join(items[:EXAMPLES])}")
    return lines + ([f"- {result.name}: ended early: {result.failure}"] if result.failure else [])
