"""What fuzzes of many seeds have in common: rules with names, a verdict a seed, processes that share the seeds, and a
command line (`python -m tests....`):

--seed S [--plant BUG]                one seed, with all that was done
[--seed S] --runs N [--processes P]   so many from S on
--bugs [--runs N] [--processes P]     in how many each planted bug shows, as a table of docs/suite.md
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

PROGRESS_EVERY_S = 5.0
# By number. The docstring says the number and what is wrong: `D1: ...`.
Plants = Mapping[str, Callable[[], AbstractContextManager[Any]]]


class BrokenRule(AssertionError):
    def __init__(self, rule: str, problem: object) -> None:
        super().__init__(f"{rule}: {problem}")
        self.rule = rule


def require(rule: str, holds: bool, problem: object) -> None:
    if not holds:
        raise BrokenRule(rule, problem)


class FuzzCase(Protocol):
    @property
    def seed(self) -> int: ...
    def command(self) -> str:
        """That runs it again."""


class Verdict(NamedTuple):
    case: FuzzCase
    rule: str  # that was broken; empty: none
    problem: str
    trace: tuple[str, ...]


class FuzzRun(Protocol):
    trace: list[str]  # what was done

    def run(self) -> None:
        """Raises BrokenRule."""


def judge(case: FuzzCase, begin: Callable[[], FuzzRun], rule_of_errors: str) -> Verdict:
    """Runs a case. An error that is no broken rule breaks `rule_of_errors`."""
    run = None
    try:
        run = begin()
        run.run()
    except BrokenRule as error:
        return Verdict(case, error.rule, str(error), tuple(run.trace if run else ()))
    except Exception:
        return Verdict(case, rule_of_errors, traceback.format_exc(limit=-4), tuple(run.trace if run else ()))
    return Verdict(case, "", "", tuple(run.trace))


RunCase = Callable[[Any], Verdict]


def run_cases(run_case: RunCase, cases: Sequence[FuzzCase], processes: int = 1) -> Iterator[Verdict]:
    if processes == 1:
        yield from map(run_case, cases)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(run_case, cases, chunksize=50)


class FuzzCommand:
    """The command line of one fuzz."""

    def __init__(
        self,
        module: str,
        runs_default: int,
        plants: Plants,
        run_case: RunCase,
        case_of: Callable[[int, str, argparse.Namespace], FuzzCase],
    ) -> None:
        """`case_of` makes the case of a seed with a planted bug, "" = none, and the arguments of `parser`."""
        self._runs_default, self._plants, self._run_case, self._case_of = runs_default, plants, run_case, case_of
        self.parser = parser = argparse.ArgumentParser(prog=f"python -m {module}")
        parser.add_argument("--seed", type=int, help="alone: this one, with all that was done; otherwise the first")
        parser.add_argument("--runs", type=int, help=f"how many seeds; {runs_default:,} without --seed")
        parser.add_argument("--processes", type=int, default=1)
        parser.add_argument("--plant", default="", metavar="BUG", help="with this planted bug")
        parser.add_argument("--bugs", action="store_true", help="with each planted bug in turn")

    def main(self) -> int:
        """The exit code: 1 where a rule was broken, or a planted bug was not found."""
        arguments = self.parser.parse_args()
        if arguments.plant not in ("", *self._plants):
            self.parser.error("no such planted bug")
        first, runs, processes = arguments.seed or 1, arguments.runs or self._runs_default, arguments.processes

        def cases(plant: str) -> list[FuzzCase]:
            return [self._case_of(seed, plant, arguments) for seed in range(first, first + runs)]

        if arguments.bugs:
            return self._bugs(cases, processes)
        if arguments.seed is not None and arguments.runs is None:
            return self._one(self._case_of(first, arguments.plant, arguments))
        return self._many(cases(arguments.plant), processes)

    def _one(self, case: FuzzCase) -> int:
        verdict = self._run_case(case)
        _say("\n".join(verdict.trace))
        _say(f"FAILED seed {case.seed}, {verdict.problem}" if verdict.rule else f"seed {case.seed}: every rule holds")
        return 1 if verdict.rule else 0

    def _many(self, cases: list[FuzzCase], processes: int) -> int:
        started = shown = time.perf_counter()
        failed = 0
        for done, verdict in enumerate(run_cases(self._run_case, cases, processes), 1):
            if verdict.rule:
                failed += 1
                _say(f"FAILED seed {verdict.case.seed}, {verdict.problem}")
                _say(f"    again: {verdict.case.command()}")
            now = time.perf_counter()
            if now - shown > PROGRESS_EVERY_S:
                shown = now
                _say(f"... {done:,} of {len(cases):,} runs, {failed} failed, {now - started:,.0f} s")
        _say(f"{len(cases):,} runs, {failed} failed, {time.perf_counter() - started:,.0f} s")
        return 1 if failed else 0

    def _bugs(self, cases: Callable[[str], list[FuzzCase]], processes: int) -> int:
        missed = 0
        for number, plant in self._plants.items():
            found = [verdict for verdict in run_cases(self._run_case, cases(number), processes) if verdict.rule]
            rules = ", ".join(rule for rule, _ in Counter(verdict.rule for verdict in found).most_common())
            what = (plant.__doc__ or "").partition(": ")[2].strip().rstrip(".")
            first = f"{found[0].case.seed:,}" if found else "-"
            _say(f"| {number} | {what} | {len(found):,} | {first} | {rules or 'NOT FOUND'} |")
            missed += not found
        return 1 if missed else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
