"""Commands in what is said, as they can be pasted: with the installation that this command acts on.

What is said names commands as `./penstock node start 4`. Where another installation than the default one is acted on,
each of them is given its --data-dir here, in one place, because supervisor and `manage.py` say some of them.
"""

from __future__ import annotations

import argparse
import re
import shlex
from itertools import pairwise

from deploy.installation import Installation

OPTION = "--data-dir"
_COMMAND = re.compile(r"\./penstock ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")


class Hints:
    """`commands`: the words of each that takes --data-dir."""

    def __init__(self, flag: str, commands: frozenset[tuple[str, ...]]) -> None:
        self._flag = flag
        self._commands = commands

    def complete(self, text: str) -> str:
        """The text with the option after the words of each command in it that lacks it."""
        if not self._flag or "./penstock " not in text:
            return text
        return "\n".join(self._line(line) for line in text.split("\n"))

    def _line(self, line: str) -> str:
        done, position = [], 0
        for match, following in pairwise([*_COMMAND.finditer(line), None]):
            assert match is not None, "only the last has none that follows"
            words = tuple(filter(None, match.groups()))
            end = match.end() if words in self._commands else match.end(1)
            rest = line[end : following.start() if following else len(line)]
            if (words in self._commands or words[:1] in self._commands) and OPTION not in rest:
                done += [line[position:end], self._flag]
                position = end
        return "".join([*done, line[position:]])


def hints_for(data_dir: str | None, parser: argparse.ArgumentParser) -> Hints:
    return Hints(data_dir_flag(Installation(data_dir)), frozenset(located_commands(parser)))


def data_dir_flag(installation: Installation) -> str:
    """Nothing for the installation that a command takes which is told of none."""
    return "" if installation.data == Installation().data else f" {OPTION} {shlex.quote(str(installation.data))}"


def located_commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of each command that takes --data-dir."""
    found = [words] if words and OPTION in parser._option_string_actions else []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                found += located_commands(command, (*words, name))
    return found
