"""What counts as passed; that the locks are whole; that the document speaks of the clients there are."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import psutil
import pytest

from tests.clients import document
from tests.clients.environments import JAVASCRIPT, LOCKS, Environments, NotInstallable, run_installer
from tests.clients.outcome import CheckResult, Outcome, read_outcome, run_program
from tests.clients.registry import CLIENTS

ANNOUNCED = json.dumps({"client": "a client", "version": "1", "checks": ["one", "two"]})
ONE = json.dumps({"check": "one", "passed": True, "detail": "", "seconds": 0.1})
TWO = json.dumps({"check": "two", "passed": True, "detail": "", "seconds": 0.1})
TWO_FAILED = json.dumps({"check": "two", "passed": False, "detail": "why", "seconds": 0.1})


def test_program_all_checks_passed_is_passed() -> None:
    outcome = read_outcome("x", "\n".join(["a library's own line", ANNOUNCED, ONE, TWO]), 0, "ended")
    assert outcome.passed and outcome.client == "a client"


@pytest.mark.parametrize(
    ("lines", "exit_code", "failed"),
    [
        ([ANNOUNCED, ONE, TWO_FAILED], 1, ["two"]),
        ([ANNOUNCED, ONE], -9, ["two"]),
        ([ANNOUNCED, ONE], 0, ["two"]),
        ([ANNOUNCED, ONE, TWO], 1, ["the program ends well"]),
        ([], 0, ["the program starts"]),
        ([ONE, TWO], 0, ["the program starts"]),
    ],
    ids=["failed", "killed", "silent", "bad-exit", "nothing", "unannounced"],
)
def test_program_anything_missing_is_failed(lines: list[str], exit_code: int, failed: list[str]) -> None:
    outcome = read_outcome("x", "\n".join(lines), exit_code, "ended")
    assert [result.title for result in outcome.failures] == failed and not outcome.passed


def test_program_hanging_is_killed_with_children_and_failed(tmp_path: Path) -> None:
    program = (
        "import pathlib, subprocess, sys, time\n"
        "quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL, 'start_new_session': True}\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], **quiet)\n"
        f"pathlib.Path('child').write_text(str(child.pid))\nprint({ANNOUNCED!r})\nprint({ONE!r}, flush=True)\n"
        "time.sleep(60)\n"
    )
    outcome = run_program("x", [sys.executable, "-c", program], {}, tmp_path, 2)
    assert [result.title for result in outcome.failures] == ["two"]
    assert "not done after 2 s" in outcome.failures[0].detail
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_client_not_installable_is_not_run_and_not_passed(tmp_path: Path) -> None:
    with pytest.raises(NotInstallable, match="exit") as caught:
        run_installer([sys.executable, "-c", "import sys; sys.exit('exit with words')"], tmp_path)
    outcome = Outcome("x", not_run=str(caught.value))
    assert not outcome.passed and "not run" in document.table([outcome])


def test_environment_half_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def install(environments: Environments, target: Path, lock: Path) -> None:
        made.append(target)
        (target / "left").touch()
        if len(made) == 1:
            raise NotInstallable("no registry")

    monkeypatch.setattr(Environments, "_install_python", install)
    environments = Environments(tmp_path, lambda text: None)
    with pytest.raises(NotInstallable):
        environments.python("node")
    first = environments.python("node")
    assert environments.python("node") == first and len(made) == 2


def test_table_shows_failures_and_counts() -> None:
    outcome = Outcome("x", "1", (CheckResult("good", True), CheckResult("bad", False, "why")))
    assert "| x | 1 | 1 of 2 | FAILED |" in document.table([outcome])
    assert "why" in document.failures([outcome])


@pytest.mark.parametrize("lock", sorted(LOCKS.glob("*.txt")), ids=lambda path: path.stem)
def test_lock_is_hashed_and_names_no_registry(lock: Path) -> None:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", lock.read_text())
    bare = [block.split()[0] for block in blocks if "==" in block.split("\n")[0] and "--hash=sha256:" not in block]
    options = "--generate-hashes --no-header --python-version 3.11"
    advice = f"uv pip compile {options} tests/clients/locks/{lock.stem}.in -o tests/clients/locks/{lock.name}"
    assert not bare, f"{bare} have no hash: {advice}"
    assert not re.search(r"https?://|--index|--find|--extra", lock.read_text()), advice
    wanted = [line for line in lock.with_suffix(".in").read_text().splitlines() if line and not line.startswith("#")]
    pins = {re.sub(r"\[.*\]", "", line) for line in wanted}
    missing = [pin for pin in pins if f"{pin} \\" not in lock.read_text()]
    assert not missing, f"{missing} not in the lock: {advice}"


def test_package_lock_has_hashes_and_no_addresses() -> None:
    lock = json.loads((JAVASCRIPT / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages and all(package["integrity"].startswith("sha512-") for package in packages.values())
    advice = "npm install --package-lock-only --omit-lockfile-registry-resolved"
    assert not any("resolved" in package for package in packages.values()), advice
    assert "://" not in (JAVASCRIPT / "package-lock.json").read_text(), advice


def test_document_has_a_row_for_every_client() -> None:
    written = document.PATH.read_text()
    missing = [client.title for client in CLIENTS if f"| {client.title} |" not in written]
    assert not missing, f"run: python -m tests.clients; not in {document.PATH.name}: {missing}"
