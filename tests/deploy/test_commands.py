"""The command line: every command of the contract parses, refusals are sentences with exit codes."""

from __future__ import annotations

import argparse
import json
from datetime import datetime, tzinfo
from pathlib import Path

import pytest

from deploy.__main__ import main, parser
from deploy.commands import doctor, node
from deploy.commands.logs import run as show_logs
from deploy.commands.logs import show_end, show_new
from deploy.demo import boto3_lines, curl_line, interpreter
from deploy.errors import EXIT_NOT_RUNNING, EXIT_USAGE, CommandError
from deploy.installation import ROOT, Installation
from deploy.limits import POLICY_FILE_BYTES_MAX
from deploy.ports import choose_port
from storage_nodes.ids import make_node_id

KEY = {
    "account_id": "000000000001",
    "access_key_id": "AKPSAAAAAAAAAAAAAAAA",
    "secret_access_key": "s" * 40,
    "bearer_token": "pstk_x",
    "endpoint": "http://127.0.0.1:9324",
    "region": "us-east-1",
}


@pytest.mark.parametrize(
    "line",
    [
        "up --data-dir d --port 1 --nodes 3 --detach",
        "down --data-dir d",
        "status --data-dir d --json",
        "keys create --account a --json --data-dir d",
        "keys create --account a --policy p.json --json",
        "keys create --account a --name sender --expires 2026-12-01T06:30",
        "keys list --account a --json",
        "keys disable AKPSAAAAAAAAAAAAAAAA",
        "keys enable AKPSAAAAAAAAAAAAAAAA",
        "keys revoke AKPSAAAAAAAAAAAAAAAA",
        "keys rotate AKPSAAAAAAAAAAAAAAAA --grace 60 --json",
        "accounts list --json",
        "accounts create a",
        "accounts suspend a --reason unpaid",
        "accounts resume a",
        "accounts close a --reason left",
        "accounts reopen a",
        "policies list --account a",
        "policies review --json",
        "node start 1 --data-dir d",
        "node stop 1",
        "node list --json",
        "node add --data-dir d",
        "node drain 2 --undo",
        "node decommission 2 --dead",
        "node move 7 --from 1 --to 4",
        "node move 7 --cancel",
        "send q",
        "receive q --max 5 --idle 1",
        "logs -f frontend",
        "doctor --json",
        "report usage --account a --period 2026-11 --now --json --data-dir d",
        "report invoice --account a --period 2026-11 --json",
        "report quarantine --period 2026-11",
    ],
)
def test_command_of_the_contract_parses(line: str) -> None:
    assert parser().parse_args(line.split()).module


def test_command_nothing_there_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--data-dir", str(tmp_path)]) == 1
    assert "there is no installation" in capsys.readouterr().err


def test_status_of_a_stopped_installation_has_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    installation = Installation(tmp_path)
    installation.prepare()
    installation.settle_state(None, choose_port(set()), 3)
    assert main(["status", "--json", "--data-dir", str(tmp_path)]) == EXIT_NOT_RUNNING
    assert json.loads(capsys.readouterr().out)["running"] is False
    assert main(["node", "stop", "1", "--data-dir", str(tmp_path)]) == EXIT_NOT_RUNNING


@pytest.mark.parametrize("content", [None, b"\xff", b"x" * (POLICY_FILE_BYTES_MAX + 1)])
def test_policy_file_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    path = tmp_path / "p.json"
    if content is not None:
        path.write_bytes(content)
    arguments = ["keys", "create", "--account", "a", "--policy", str(path), "--data-dir", str(tmp_path)]
    assert main(arguments) == EXIT_USAGE
    assert "policy" in capsys.readouterr().err


def test_bench_unknown_name_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "nothing"]) == EXIT_USAGE
    assert "idle" in capsys.readouterr().err


def test_doctor_finds_both_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json", "--data-dir", str(tmp_path)])
    findings = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert findings["database"]["ok"] and findings["broker"]["ok"]


def test_doctor_finds_a_clock_that_says_a_time_before_the_program_was_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert doctor.clock()

    class In1970(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(5, tz)

    monkeypatch.setattr(doctor, "datetime", In1970)
    with pytest.raises(CommandError, match=r"before this program was installed.*NTP"):
        doctor.clock()


def test_introduction_lines_are_complete_programs() -> None:
    compile(boto3_lines(KEY), "printed", "exec")
    assert KEY["secret_access_key"] in boto3_lines(KEY)
    assert curl_line(KEY).endswith("http://127.0.0.1:9324/v1/queues/hello/messages")


def test_introduction_names_the_python_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(ROOT / ".venv/bin/python"))
    assert interpreter() == ".venv/bin/python"
    monkeypatch.setattr("sys.executable", "/srv/environment/bin/python")
    assert interpreter() == "/srv/environment/bin/python"


def test_log_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    logs = Installation(tmp_path).logs
    logs.mkdir(parents=True)
    for name in ("node-1", "frontend"):
        (logs / f"{name}.log").touch()
    with pytest.raises(CommandError, match=r"no log of nope in .*; there are: frontend, node-1"):
        show_logs(argparse.Namespace(data_dir=tmp_path, name=["nope"], follow=False))


def test_logs_follow_shows_whole_lines_across_rotation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "frontend.log"
    path.write_bytes(b"one\n")
    position = show_end(path, "frontend")
    with open(path, "ab") as file:
        file.write(b"two\nhal")
    position = show_new(path, "frontend", position)
    assert capsys.readouterr().out == "frontend | one\nfrontend | two\n"
    path.write_bytes(b"new\n")
    show_new(path, "frontend", position)
    assert capsys.readouterr().out == "frontend | new\n"


@pytest.mark.parametrize("who", [[], ["--account", "shop", "--operator"]])
def test_console_link_is_for_an_account_or_for_the_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], who: list[str]
) -> None:
    assert main(["console-link", *who, "--data-dir", str(tmp_path)]) == EXIT_USAGE
    assert "give either --account NAME or --operator" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "healths", "refused"),
    [
        (["stop", "2.3"], ["healthy", "healthy", "stopped"], "1 of 3 storage nodes would be up without 2.3"),
        (["stop", "2.3"], ["healthy"], "0 of 1 storage nodes would be up without 2.3"),
        (["stop", "2.3"], ["healthy", "healthy", "healthy"], ""),
        (["stop", "2.3"], ["unhealthy", "healthy", "stopped"], ""),
        (["stop", "2.3", "--force"], ["healthy", "healthy", "stopped"], ""),
        (["start", "2.3"], ["stopped", "healthy", "stopped"], ""),
    ],
)
def test_stop_of_a_node_that_the_majority_needs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: list[str], healths: list[str], refused: str,
) -> None:  # fmt: skip
    numbers = [make_node_id(2, number) for number in (3, 1, 2)]
    rows = [
        {"role": "storage-node", "id": number, "health": health}
        for number, health in zip(numbers, healths, strict=False)
    ]
    answers = {f"node {words[0]}": {"id": numbers[0], "health": "turned"}, "status": {"processes": rows}}
    asked = []

    def ask(run: Path, request: dict[str, object], timeout_s: float = 0) -> object:
        asked.append(request["command"])
        return answers[str(request["command"])]

    monkeypatch.setattr(node.control, "ask", ask)
    assert main(["node", *words, "--data-dir", str(tmp_path)]) == (1 if refused else 0)
    said = capsys.readouterr().err
    assert refused in said and ("--force" in said) is bool(refused)
    assert (f"node {words[0]}" in asked) is not bool(refused)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x", "'x' names no node: a node is NUMBER or CLUSTER.NUMBER"),
        ("1.0", "nodes of a cluster are numbered 1 to 65535, not 0"),
        ("65536", "nodes of a cluster are numbered 1 to 65535, not 65536"),
        ("8193.1", "clusters are numbered 1 to 8192, not 8193"),
    ],
)
def test_what_names_no_node_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    with pytest.raises(SystemExit):
        main(["node", "stop", name, "--data-dir", str(tmp_path)])
    assert said in capsys.readouterr().err
