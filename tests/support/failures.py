"""A failed test is named as soon as it has failed; the whole story comes at the end, as pytest tells it."""

from __future__ import annotations

import pytest
from _pytest.terminal import TerminalReporter

CHARACTERS_MAX = 300


class FailuresAtOnce:
    """A plugin of the process that has the terminal."""

    def __init__(self, reporter: TerminalReporter) -> None:
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.ensure_newline()
            self._reporter.write_line(failure_line(report), red=True)


def failure_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash is not None else report.longreprtext.strip()
    where = "" if report.when == "call" else f" ({report.when})"
    return f"FAILED {report.nodeid}{where} - {message.partition(chr(10))[0][:CHARACTERS_MAX]}"
