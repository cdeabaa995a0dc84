"""`send` and `receive` are noted in the audit trail: before they begin, and with their number when they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy import management
from deploy.commands import receive, send
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.noted_messages import noted

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

    def operate(installation: Installation, state: Any, *arguments: str) -> Any:
        calls.append(arguments)
        return json.loads("{}")

    monkeypatch.setattr(management, "operate", operate)
    return calls


def test_call_for_messages_is_noted_before_it_and_with_its_number_after_it(
    installation: Installation, told: list[tuple[str, ...]]
) -> None:
    with noted(installation, "send", "orders") as count:
        assert told == [BEGUN]
        count.add(3)
        count.add(4)
    assert told[1:] == [("note_messages", f"--account={ACCOUNT}", "--messages=7", "--", "send", "orders")]


def test_number_is_noted_of_a_call_that_fails_half_way(installation: Installation, told: list[tuple[str, ...]]) -> None:
    with pytest.raises(KeyboardInterrupt), noted(installation, "receive", "orders") as count:
        count.add(2)
        raise KeyboardInterrupt
    assert told[-1] == ("note_messages", f"--account={ACCOUNT}", "--messages=2", "--", "receive", "orders")


def test_call_that_cannot_be_noted_is_not_made(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise CommandError("the database is away")

    monkeypatch.setattr(management, "operate", refuse)
    for command in (send, receive):
        monkeypatch.setattr(command.sqs_client, "connect", lambda _: pytest.fail("it was made"))
        options = type("Options", (), {"data_dir": installation.data, "queue": "orders", "max": 1, "idle": 1})
        with pytest.raises(CommandError, match="the database is away"):
            command.run(options)
