"""One way to run a seed: how long, without which kinds of faults, with which planted bug. What fails is kept as this.

`hunt` runs seeds with a planted bug until it is noticed; `shrink` makes a failing case smaller; `store` and `load` keep
one in a file.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from tests.simulation.bug_list import PLANTED, Planted
from tests.simulation.faults import KINDS, Faults
from tests.simulation.guards import NotDeterministic
from tests.simulation.log_oracle import BrokenInvariant
from tests.simulation.world import STEPS_DEFAULT, Outcome, World

STEPS_MIN = 50
FAILURES_DIRECTORY = "simulation-failures"


class Case(NamedTuple):
    seed: int
    steps: int = STEPS_DEFAULT
    without: tuple[str, ...] = ()  # KINDS of faults
    plant: str = ""  # number of a planted bug, "" = none
    has_bug: bool = True  # False = only the faults that provoke it
    harsh: bool = False  # `Faults.harden`
    check_all: bool = False  # the oracle looks at what did not change, too

    def command(self) -> str:
        words = [f"python -m tests.simulation {self.seed} --steps {self.steps}"]
        words += [f"--without {','.join(self.without)}"] if self.without else []
        words += [f"--plant {self.plant}"] if self.plant else []
        words += ["--harsh"] if self.harsh else []
        words += ["--check-all"] if self.check_all else []
        return " ".join(words)


def planted_bug(number: str) -> Planted:
    """Raises LookupError."""
    for planted in PLANTED:
        if planted.number == number:
            return planted
    raise LookupError(f"no bug {number} is planted; there are {', '.join(p.number for p in PLANTED)}")


def make_world(case: Case, trace: Callable[[str], None] | None = None) -> World:
    def adjust(faults: Faults) -> None:
        if case.harsh:
            faults.harden()
        if case.plant:
            faults.consumers = 0  # steps go to what can show the bug; those of groups ask for members
            planted_bug(case.plant).provoke(faults)
        faults.switch_off(case.without)

    return World(case.seed, trace, adjust, case.check_all)


def run_case(case: Case, trace: Callable[[str], None] | None = None) -> Outcome:
    """Raises BrokenInvariant."""
    world = make_world(case, trace)
    with _bug_of(case):
        return world.run(case.steps)


def verdict(case: Case) -> tuple[str, int]:
    """(rule that was broken, empty where none was; steps). A node that stops by an assertion of its own counts."""
    world = make_world(case)
    with _bug_of(case):  # a bug that cannot be planted any more must not count as noticed
        try:
            world.run(case.steps)
        except NotDeterministic:
            raise
        except BrokenInvariant as error:
            return error.rule, world.scheduler.steps
        except Exception as error:
            return type(error).__name__, world.scheduler.steps
    return "", world.scheduler.steps


def _bug_of(case: Case) -> AbstractContextManager[Any]:
    return planted_bug(case.plant).plant() if case.plant and case.has_bug else nullcontext()


# --- planted bugs -------------------------------------------------------------------------------------------------


class Catch(NamedTuple):
    seed: int  # that caught it
    seeds: int  # that were run
    steps: int  # over all of them
    rule: str  # that was found broken; empty when nothing was


def hunt(planted: Planted, first: int, seeds_max: int) -> Catch:
    """Run seeds with a planted bug until one fails that passes without it: then it was the bug that was noticed."""
    total = 0
    for seed in range(first, first + seeds_max):
        case = Case(seed, planted.steps, plant=planted.number)
        rule, steps = verdict(case)
        total += steps
        if rule and not verdict(case._replace(has_bug=False))[0]:
            return Catch(seed, seed - first + 1, total, rule)
    return Catch(-1, seeds_max, total, "")


# --- smaller ------------------------------------------------------------------------------------------------------


def shrink(case: Case, say: Callable[[str], None]) -> Case:
    """The smallest case found that breaks the same rule.

    A kind of fault that is off changes what is drawn after it, so the run is another one: what stays is not *the*
    cause, but a smaller run that breaks the same promise, and that is what one wants to read.
    """
    rule = verdict(case)[0]
    if not rule:
        say("nothing is broken")
        return case
    say(f"breaks {rule}")
    for kind in KINDS:
        smaller = case._replace(without=(*case.without, kind))
        if kind not in case.without and verdict(smaller)[0] == rule:
            case = smaller
            say(f"without {kind} too")
    while case.steps // 2 >= STEPS_MIN and verdict(case._replace(steps=case.steps // 2))[0] == rule:
        case = case._replace(steps=case.steps // 2)
        say(f"in {case.steps} steps too")
    return case


# --- files --------------------------------------------------------------------------------------------------------


def store(directory: str, case: Case, problem: str) -> str:
    """Write what is needed to see the failure again; the file's path."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"seed-{case.seed}.json")
    with open(path, "w") as file:
        json.dump({**case._asdict(), "commit": commit(), "problem": problem}, file, indent=1)
        file.write("\n")
    return path


def load(path: str) -> tuple[Case, str]:
    """A stored case, and the commit on which it failed."""
    with open(path) as file:
        fields = json.load(file)
    fields["without"] = tuple(fields["without"])
    return Case(**{name: fields[name] for name in Case._fields if name in fields}), fields["commit"]


def commit() -> str:
    """A seed replays exactly only on the code that it failed on."""
    answer = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"
