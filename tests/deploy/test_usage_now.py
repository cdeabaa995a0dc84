"""What a report with `--now` shows while usage is brought up to this moment, and its figures."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from deploy.commands import report
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.limits import LAST_WORDS_LINES
from deploy.state import State
from deploy.usage_now import StepDisplay, bring_up_to_now, refusal_in


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(shown: io.StringIO, *lines: str) -> StepDisplay:
    display = StepDisplay(shown)
    display.follow(io.StringIO("".join(f"{line}\n" for line in lines)))
    return display


def test_steps_are_a_line_each_away_from_a_terminal() -> None:
    shown = io.StringIO()
    told(shown, "node 1: 9 partitions", "node 1: 4 partitions", "Spark: ingest")
    assert [line.split("s  ")[1] for line in shown.getvalue().splitlines()] == ["node 1: 9 partitions", "Spark: ingest"]


def test_steps_are_one_line_that_changes_at_a_terminal() -> None:
    shown = Terminal()
    told(shown, "node 1: 9 partitions", "node 1: 4 partitions").end()
    assert shown.getvalue().count("\n") == 0 and shown.getvalue().count("\r") == 3


def test_lines_of_the_log_are_kept_for_a_failure_and_not_shown() -> None:
    shown = io.StringIO()
    display = told(shown, *[f'{{"event": {number}}}' for number in range(LAST_WORDS_LINES + 3)])
    assert shown.getvalue() == "" and len(display.last_words) == LAST_WORDS_LINES
    assert display.last_words[-1] == f'{{"event": {LAST_WORDS_LINES + 2}}}'


def test_error_that_a_terminal_wipes_is_kept_for_a_failure() -> None:
    display = told(Terminal(), "closing open windows", "Traceback (most recent call last):", "OperationalError: gone")
    assert display.last_words[-1] == "OperationalError: gone"


def test_refusal_is_told_once_and_is_no_step() -> None:
    shown = io.StringIO()
    display = told(shown, "Spark: settle", '{"refused": "2026-11 is not over"}')
    assert "not over" not in shown.getvalue() and refusal_in(display.last_words) == "2026-11 is not over"
    for other in ([], ["Traceback"], ['{"event": "x"}'], ["7"]):
        assert refusal_in(other) == ""


def test_database_that_is_away_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installation = Installation(tmp_path / "data")
    installation.prepare()
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(CommandError) as failure:
        bring_up_to_now(installation, State("pk-test", "127.0.0.1", 1, 1, defaultdict(lambda: 1)))
    assert str(failure.value).startswith("the database does not answer: ")
    assert str(failure.value).endswith("See ./penstock status") and "\n" not in str(failure.value)


def test_what_is_not_settled_is_shown_apart(capsys: pytest.CaptureFixture[str]) -> None:
    settled, since = defaultdict(int, messages_sent=7), defaultdict(int, messages_sent=5)
    queue = {"queue": "orders", "queue_uuid": "u"}
    found: dict[str, Any] = {
        "queues": [{**queue, "quantities": settled}], "totals": settled, "settled_up_to": None,
        "provisional": {"queues": [{**queue, "quantities": since}], "totals": since},
        "not_settled": "Java 17 or newer is missing: sudo apt-get install ...", "now": {"complete": True},
    }  # fmt: skip
    report.show_usage(found)
    report.show_settled(found)
    printed = capsys.readouterr()
    lines = [line.split()[:-5] for line in printed.out.splitlines()[1:]]
    assert lines[:2] == [["orders", "7"], ["all", "7"]]
    assert lines[2:] == [["orders", "(provisional)", "5"], ["all,", "with", "provisional", "12"]]
    assert "not settled now: Java 17" in printed.err and "missing from" not in printed.err
