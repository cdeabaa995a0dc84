"""`python -m tests.blackbox`: run fault scenarios against real processes and print what was seen.

python -m tests.blackbox --list
python -m tests.blackbox NAME [--seconds N] [--seed S] [--history FILE]
python -m tests.blackbox matrix --seconds N [--seed S]        every scenario for N seconds, a markdown table
python -m tests.blackbox check FILE --queue P --stream P      judge a stored history again
python -m tests.blackbox TRIAL [--seconds N] [--json FILE]    harm with a load and a verdict of its own (`trials.py`)
python -m tests.blackbox trials [--seconds N]                 all of these
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.blackbox import (
    away,
    bad_input,
    bursts,
    clocks,
    crowding,
    fuzzing,
    http_target,
    poisoned,
    quotas,
    refusals,
    report,
    revocation,
    trials,
    wire,
)
from tests.blackbox.checkers import check_queue, check_stream
from tests.blackbox.history import load
from tests.blackbox.scenarios import SCENARIOS, Outcome, run_scenario

TRIALS: dict[str, trials.Trial] = {
    **clocks.TRIALS,
    **bursts.TRIALS,
    **away.TRIALS,
    **bad_input.TRIALS,
    **crowding.TRIALS,
    **revocation.TRIALS,
    **fuzzing.TRIALS,
    **poisoned.TRIALS,
    **quotas.TRIALS,
    **refusals.TRIALS,
    **wire.TRIALS,
}
SECONDS_USUAL = 30.0
Run = Callable[[str, float, int, Path | None], Outcome]


def main() -> int:
    # What the runs made on the machine (namespaces, mounts, processes) is removed on the way out.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    arguments = _parser().parse_args()
    if arguments.list:
        for name in (*SCENARIOS, *http_target.SCENARIOS, *TRIALS):
            missing = _missing(name)
            sys.stdout.write(f"{name}{f'   not run here: {missing}' if missing else ''}\n")
        return 0
    if arguments.name == "check":
        return _check(arguments.file, arguments.queue, arguments.stream)
    if arguments.name == "trials" or arguments.name in TRIALS:
        return _try_all([*TRIALS] if arguments.name == "trials" else [arguments.name], arguments)
    names = [*SCENARIOS, *http_target.SCENARIOS] if arguments.name == "matrix" else [arguments.name]
    return _run_all(names, arguments.seconds or SECONDS_USUAL, arguments.seed, arguments.history)


def _try_all(names: list[str], arguments: argparse.Namespace) -> int:
    lines: list[str] = []
    failed = 0
    _say(*trials.header())
    for name in names:
        trial = TRIALS[name]
        ask = trials.Ask(arguments.seconds or trial.seconds, arguments.seed, arguments.history)
        result = trials.run_trial(name, trial, ask)
        failed += not result.passed
        _say(trials.row(result))
        lines += trials.details(result)
        if arguments.json:
            with arguments.json.open("ab") as file:
                file.write(result.as_json() + b"\n")
    _say("", *lines)
    return 1 if failed else 0


def _run_all(names: list[str], seconds: float, seed: int, history: Path | None) -> int:
    lines: list[str] = []
    failed = 0
    _say(*report.header())
    for name in names:
        missing = _missing(name)
        if missing:
            _say(report.not_run_row(name, missing))
            continue
        run: Run = run_scenario if name in SCENARIOS else http_target.run_scenario
        outcome = run(name, seconds, seed, history)
        failed += not outcome.passed
        _say(report.row(outcome))
        lines += report.details(outcome)
    _say("", *lines)
    return 1 if failed else 0


def _missing(name: str) -> str:
    return SCENARIOS[name].missing() if name in SCENARIOS else ""


def _check(path: Path, queue: int, stream: int) -> int:
    events = load(path)
    verdicts = {"queue": check_queue(events, queue), "stream": check_stream(events, stream)}
    for kind, verdict in verdicts.items():
        found = {name: items for name, items in verdict.violations.items() if items}
        _say(f"{kind}: {'valid' if verdict.valid else 'NOT VALID'} {verdict.counts} {found or ''}")
    return 0 if all(verdict.valid for verdict in verdicts.values()) else 1


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.blackbox", description="Faults on real processes, judged.")
    names = ["matrix", "trials", "check", *SCENARIOS, *http_target.SCENARIOS, *TRIALS]
    parser.add_argument("name", nargs="?", default="matrix", choices=names)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--list", action="store_true", help="what there is, and what cannot run here")
    parser.add_argument("--seconds", type=float, help="how long faults go on, each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", type=Path, help="write the history to this file")
    parser.add_argument("--json", type=Path, help="add the result of every trial to this file, a line each")
    parser.add_argument("--queue", type=int, default=1, help="check: the queue's partition")
    parser.add_argument("--stream", type=int, default=2, help="check: the stream's partition")
    return parser


if __name__ == "__main__":
    sys.exit(main())
