"""Commands that are named in what is said: they act on the installation that it was said of."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from deploy.__main__ import main, parser
from deploy.commands.doctor import check
from deploy.errors import CommandError
from deploy.hints import data_dir_flag, hints_for
from deploy.installation import Installation


@pytest.mark.parametrize(
    ("said", "completed"),
    [
        ("See ./penstock status", "See ./penstock status --data-dir /d"),
        ("Start it: ./penstock node start 4", "Start it: ./penstock node start --data-dir /d 4"),
        ("Choose: ./penstock up --port 9923", "Choose: ./penstock up --data-dir /d --port 9923"),
        (
            "See ./penstock scrub and ./penstock logs node-4.",
            "See ./penstock scrub --data-dir /d and ./penstock logs --data-dir /d node-4.",
        ),
        ("./penstock report usage ... --now", "./penstock report usage --data-dir /d ... --now"),
        ("`./penstock send orders` creates it", "`./penstock send --data-dir /d orders` creates it"),
        ("./penstock billing terms prints terms", "./penstock billing terms --data-dir /d prints terms"),
        ("then\n./penstock up --data-dir /d or ./penstock down",
"then\n./penstock up --data-dir /d or ./penstock down --data-dir /d"),
        ("./penstock test tests/tidy", "./penstock test tests/tidy"),
        ("the commands of ./penstock", "the commands of ./penstock"),
    ],
)  # fmt: skip
def test_command_in_what_is_said_gets_the_installation_once(said: str, completed: str) -> None:
    hints = hints_for("/d", parser())
    assert hints.complete(said) == completed
    assert hints.complete(completed) == completed


def test_default_installation_needs_no_option() -> None:
    assert hints_for(None, parser()).complete("See ./penstock status") == "See ./penstock status"
    assert data_dir_flag(Installation(os.environ.get("PENSTOCK_DATA_DIR"))) == ""


def test_printed_option_quotes_its_path(tmp_path: Path) -> None:
    assert data_dir_flag(Installation(tmp_path / "with space")).endswith("with space'")


def test_refusal_of_a_taken_port_names_the_installation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["up", "--data-dir", str(tmp_path / "data"), "--port", port]) == 2
    said = capsys.readouterr().err
    assert f"Choose another port: ./penstock up --data-dir {tmp_path / 'data'} --port " in said


def test_findings_of_doctor_name_the_installation_also_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def look() -> str:
        raise CommandError("See ./penstock status")

    monkeypatch.setattr("deploy.output.hints", hints_for("/d", parser()))
    assert check("storage", look) == ("storage", False, "See ./penstock status --data-dir /d")


def test_line_of_a_log_is_shown_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = Installation(tmp_path).logs
    logs.mkdir()
    (logs / "node-1.log").write_text("see ./penstock status\n")
    assert main(["logs", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "node-1 | see ./penstock status\n"
