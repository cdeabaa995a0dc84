"""The one place of the commands that prints: data on stdout, talk on stderr, no colour away from a terminal."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

    from deploy.hints import Hints


# Set once it is known which installation a command acts on.
hints: Hints | None = None


def say(text: str) -> None:
    """A line for the person at the terminal."""
    sys.stderr.write(f"{complete(text)}\n")
    sys.stderr.flush()


def complete(text: str) -> str:
    """The commands that it names can be pasted."""
    return text if hints is None else hints.complete(text)


def data(text: str) -> None:
    """A line of the command's result."""
    verbatim(complete(text))


def verbatim(text: str) -> None:
    """A line that others wrote, or that a program reads."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def red(text: str) -> str:
    """The line as it stands out at a terminal; unchanged elsewhere."""
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[31m{text}\x1b[0m"


def data_json(value: Any) -> None:
    verbatim(json.dumps(value, indent=2))


def counted(count: int, noun: str) -> str:
    """1 message, 1,234 messages."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def table(headings: list[str], rows: list[list[str]], none: str = "") -> None:
    """Columns on stdout, as wide as their longest cell. Where there are no rows, `none` says so on stderr."""
    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]
    for row in [headings, *rows]:
        data("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if none and not rows:
        say(none)


def progress_bar() -> Progress:
    """A progress display on stderr: rich's bar at a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    plain = not sys.stderr.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    console = Console(stderr=True, no_color=plain)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not sys.stderr.isatty())
