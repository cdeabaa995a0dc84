"""What a command of operators says when it is refused, or when the database is away: one line, soon."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.limits import COMMAND_CONNECT_TIMEOUT_S
from deploy import management
from deploy.errors import EXIT_NOT_RUNNING, EXIT_USAGE, CommandError
from deploy.installation import ROOT, Installation
from deploy.ports import choose_port
from deploy.state import State

HUNG_S_MAX = COMMAND_CONNECT_TIMEOUT_S + 25  # on a crowded machine the start of Django is most of it


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Connections are taken by the kernel, and nobody answers: a PostgreSQL that hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    made = Installation(tmp_path / "data")
    made.prepare()
    return made


def test_refusal_is_its_sentence_alone(installation: Installation) -> None:
    words = '{"level": "warning"}\nCommandError: there is no key \'AKPSNOPE\''
    assert str(management.failure_of(installation, "operate_keys", 1, words)) == "there is no key 'AKPSNOPE'"


def test_argument_that_is_no_text_is_refused_before_anything_starts(installation: Installation) -> None:
    state = State("pk-test", "127.0.0.1", 1, 1)
    with pytest.raises(CommandError, match=r"'al\\udcffice' is no text in UTF-8") as refusal:
        management.run_manage(installation, state, ["billing_report", "usage", "al\udcffice"], 10)
    assert refusal.value.exit_code == EXIT_USAGE


def test_failure_that_is_no_refusal_keeps_its_last_lines(installation: Installation) -> None:
    words = "Traceback (most recent call last):\n  x\nValueError: y"
    told = str(management.failure_of(installation, "operate_keys", 1, words))
    assert told.startswith("manage.py operate_keys failed:") and told.endswith("ValueError: y")


def test_database_away_is_one_line_and_says_where_to_look(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    failure = management.failure_of(installation, "x", os.EX_UNAVAILABLE, "{}\nthe database does not answer: refused")
    assert str(failure) == "the database does not answer: refused. See ./penstock status"


def test_database_of_a_stopped_installation_is_said_to_be_stopped(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    failure = management.failure_of(installation, "x", os.EX_UNAVAILABLE, "the database does not answer")
    assert failure.exit_code == EXIT_NOT_RUNNING and "nothing is running in" in str(failure)


def test_command_hears_soon_and_in_one_line_that_the_database_hangs(
    installation: Installation, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    state = installation.settle_state(None, choose_port(set()), 3)
    environment = installation.environment(state, "manage")
    environment["DATABASE_URL"] = f"postgresql://penstock:x@127.0.0.1:{silent_port}/penstock"
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    environment.pop("PENSTOCK_PROCESS", None)
    began = time.monotonic()
    answer = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "operate_keys", "list", "--", "acme"],
        capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert answer.returncode == os.EX_UNAVAILABLE, answer.stderr
    assert answer.stderr.startswith("the database does not answer: ") and answer.stderr.count("\n") == 1
    assert time.monotonic() - began < HUNG_S_MAX


def test_command_without_its_settings_names_them_in_one_line() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "DATABASE_"))}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    answer = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "billing_admin", "plans"],
        capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert answer.returncode == os.EX_CONFIG, answer.stderr
    assert answer.stderr.startswith(
        "DATABASE_URL: Field required; PENSTOCK_SECRETS_DIR: Field required. The commands of"
    )
    assert answer.stderr.count("\n") == 1
