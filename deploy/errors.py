"""The error of a command: a sentence for the person who typed it, with the next step in it."""

from __future__ import annotations


class CommandError(Exception):
    """Shown as one sentence on stderr; the command ends with `exit_code`."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


# Exit codes that scripts may rely on (README.md).
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_RUNNING = 3
