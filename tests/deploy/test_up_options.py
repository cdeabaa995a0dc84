"""What `up` says of numbers and addresses that cannot be, and of an installation that already runs."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from deploy import control
from deploy.__main__ import main
from deploy.commands import up
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import Installation
from deploy.ports import choose_port, require_free


@pytest.mark.parametrize(
    "words", [["--port", "99999"], ["--port", "-5"], ["--port", "0"], ["--redirect-port", "70000"], ["--nodes", "10"]]
)
def test_number_out_of_range_is_a_sentence_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["up", "--data-dir", str(tmp_path / "data"), *words]) == EXIT_USAGE
    told = capsys.readouterr().err
    assert told.startswith(f"penstock: {words[0]} must lie between") and told.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_host_that_is_no_address_here_is_named_and_not_the_port() -> None:
    for host in ("nonsense.invalid", "192.0.2.1"):
        with pytest.raises(CommandError, match=f"--host {host} is no address of this machine"):
            require_free(host, choose_port(set()))


def test_port_that_is_taken_is_said_to_be_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(CommandError, match="is taken by another program"):
            require_free("127.0.0.1", other.getsockname()[1])


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    installation = Installation(tmp_path / "data")
    installation.prepare()
    installation.settle_state(None, choose_port(set()), 3, 1)
    status: dict[str, Any] = {"started": False, "supervisor_pid": 1, "processes": []}
    monkeypatch.setattr(up, "take_lock", lambda _: None)
    monkeypatch.setattr(control, "ask", lambda *asked: status)
    return installation


@pytest.mark.parametrize(
    ("words", "told", "untold"),
    [
        (["--front-ends", "2"], "--front-ends 1", "--port"),
        (["--port", "9"], "--port ", "--front-ends"),
        (["--host", "0.0.0.0", "--front-ends", "2"], "--host 127.0.0.1, --front-ends 1", "--port"),
        (["--nodes", "5"], "has 3 storage nodes", "--port"),
        (["--front-ends", "999"], "--front-ends must lie between 1 and", "already runs"),
    ],
)
def test_option_that_differs_from_what_runs_is_the_one_that_is_named(
    running: Installation, capsys: pytest.CaptureFixture[str], words: list[str], told: str, untold: str
) -> None:
    assert main(["up", "--data-dir", str(running.data), *words]) != 0
    said = capsys.readouterr().err
    assert told in said and untold not in said


def test_options_of_what_runs_find_it(running: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    port = str(running.load_state().port)
    assert main(["up", "--data-dir", str(running.data), "--port", port, "--nodes", "3", "--front-ends", "1"]) == 0
    assert "is being started" in capsys.readouterr().err


def test_few_nodes_are_warned_of() -> None:
    assert "with 2 storage nodes none may be away" in up.few_nodes(2)
    assert "with one storage node none" in up.few_nodes(1)
