"""`send` and `receive` are noted in the audit trail: before they begin, and with their number when they end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from deploy import limits, management
from deploy.commands import receive, send
from deploy.errors import CommandError
from deploy.installation import ROOT, Installation
from deploy.noted_messages import noted
from deploy.state import State

ACCOUNT = "123456789012"
BEGUN = ("note_messages", f"--account={ACCOUNT}", "--", "send", "orders")


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    made = Installation(tmp_path)
    monkeypatch.setattr(Installation, "load_state", lambda self: None)
    monkeypatch.setattr("deploy.noted_messages.ensure_demo_key", lambda *_: {"account_id": ACCOUNT})
    return made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    calls: list[tuple[str, ...]] = []

    @contextmanager
    def conversing(installation: Installation, state: Any, *arguments: str) -> Iterator[Callable[[str], None]]:
        calls.append(arguments)
        yield lambda line: calls.append((line,))

    monkeypatch.setattr(management, "conversing", conversing)
    return calls


def test_call_for_messages_is_noted_before_it_and_with_its_number_after_it(
    installation: Installation, told: list[tuple[str, ...]]
) -> None:
    with noted(installation, "send", "orders") as count:
        assert told == [BEGUN]
        count.add(3)
        count.add(4)
    assert told[1:] == [("7",)]


def test_number_is_noted_of_a_call_that_fails_half_way(installation: Installation, told: list[tuple[str, ...]]) -> None:
    with pytest.raises(KeyboardInterrupt), noted(installation, "receive", "orders") as count:
        count.add(2)
        raise KeyboardInterrupt
    assert told[-1] == ("2",)


STUCK = """
import asyncio, signal, sys
from contextlib import contextmanager
from deploy import management, noted_messages

# As in a terminal: what runs behind nohup, or in the background of a script, ignores these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

@contextmanager
def conversing(*_):
    yield lambda line: print("told", line, flush=True)

management.conversing = conversing
noted_messages.ensure_demo_key = lambda *_: {"account_id": "1"}

class Installation:
    def load_state(self): return None

with noted_messages.noted(Installation(), "send", "orders") as count:
    count.add(5)
    async def read():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    asyncio.run(read())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_call_that_is_ended_by_a_signal_is_noted_and_ends_though_its_input_is_idle(number: signal.Signals) -> None:
    command = [sys.executable, "-c", STUCK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        try:
            assert process.wait(20) == 128 + number
            assert process.stdout.read() == "told 5\n"
        finally:
            process.kill()


def test_call_that_is_ended_by_a_signal_shows_the_cursor_of_its_terminal_again() -> None:
    """A display of progress hides it."""
    shown, terminal = os.openpty()
    command = [sys.executable, "-c", STUCK]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=terminal, text=True, cwd=ROOT
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        assert select.select([shown], [], [], 5)[0] and b"\x1b[?25h" in os.read(shown, 1_000)
    finally:
        os.close(shown)
        os.close(terminal)


def test_signal_that_is_ignored_stays_so(installation: Installation, told: list[tuple[str, ...]]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with noted(installation, "send", "orders"):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert told[-1] == ("0",)


@pytest.mark.parametrize(("script", "wrong"), [
    ("print('{}', flush=True); assert input() == '7'", ""),
    ("raise SystemExit('CommandError: no such account')", "no such account"),
    ("print('{}', flush=True); input(); raise SystemExit('CommandError: no space left')", "no space left"),
    ("import time; print('{}', flush=True); input(); time.sleep(30)", "did not end within"),
    ("import time; time.sleep(30)", "failed"),
])  # fmt: skip
def test_command_is_told_its_number_once_it_is_ready_and_its_refusals_are_raised(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, script: str, wrong: str
) -> None:
    def start(*_: Any, **more: Any) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, text=True, **more)

    monkeypatch.setattr(management, "_process", start)
    monkeypatch.setattr(limits, "DEMO_KEY_DEADLINE_S", 3.0 if "sleep" in script else 30.0)
    refused = pytest.raises(CommandError, match=wrong) if wrong else nullcontext()
    with refused, management.conversing(installation, State.__new__(State), "note_messages") as tell:
        tell("7")


def test_call_that_cannot_be_noted_is_not_made(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise CommandError("the database is away")

    monkeypatch.setattr(management, "conversing", refuse)
    for command in (send, receive):
        monkeypatch.setattr(command, "sqs_client", lambda _: pytest.fail("it was made"))
        options = type("Options", (), {"data_dir": installation.data, "queue": "orders", "max": 1, "idle": 1})
        with pytest.raises(CommandError, match="the database is away"):
            command.run(options)
