"""The launcher script: when it installs, what it says when it cannot, what it hands over."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with its environment in a temporary place."""
    monkeypatch.setenv("PENSTOCK_VENV", str(tmp_path / "venv"))
    loader = importlib.machinery.SourceFileLoader("penstock_launcher", str(ROOT / "penstock"))
    spec = importlib.util.spec_from_loader("penstock_launcher", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


def pretend_installed(launcher: ModuleType, *lock_names: str) -> None:
    launcher.VENV_PYTHON.parent.mkdir(parents=True)
    launcher.VENV_PYTHON.symlink_to(sys.executable)
    launcher.STAMP.write_text(json.dumps({name: launcher.fingerprint(name) for name in lock_names}))


def test_launcher_fresh_place_is_not_installed(launcher: ModuleType) -> None:
    assert not launcher.is_installed("base")


def test_launcher_same_lock_is_not_installed_twice(launcher: ModuleType) -> None:
    pretend_installed(launcher, "base")
    assert launcher.is_installed("base")
    assert not launcher.is_installed("test"), "the test requirements are more than the base"


def test_launcher_changed_lock_is_installed_again(launcher: ModuleType, tmp_path: Path) -> None:
    pretend_installed(launcher, "base")
    launcher.ROOT = tmp_path
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "base.txt").write_text("another==1.0 --hash=sha256:00\n")
    assert not launcher.is_installed("base")


def test_launcher_environment_whose_python_went_away_is_not_installed(launcher: ModuleType) -> None:
    pretend_installed(launcher, "base")
    launcher.VENV_PYTHON.unlink()
    assert not launcher.is_installed("base")
    assert launcher.environment_version() is None


def test_launcher_installing_for_tests_counts_for_the_base(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_installed(launcher)
    monkeypatch.setattr(launcher.shutil, "which", lambda name: None)
    monkeypatch.setattr(launcher, "install_with_pip", lambda lock_file, count: None)
    launcher.install("test")
    assert launcher.is_installed("test") and launcher.is_installed("base")


def test_launcher_pip_failure_shows_its_last_words(launcher: ModuleType, tmp_path: Path) -> None:
    launcher.VENV_PYTHON.parent.mkdir(parents=True)
    launcher.VENV_PYTHON.write_text("#!/bin/sh\necho Collecting penstock\necho no such thing\nexit 1\n")
    launcher.VENV_PYTHON.chmod(0o755)
    messages: list[str] = []
    launcher.say = messages.append
    with pytest.raises(SystemExit):
        launcher.install_with_pip(tmp_path / "base.txt", 1)
    assert "no such thing" in messages[0] and "run the command again" in messages[0]
    assert not launcher.STAMP.exists(), "a failed install must not count"


def test_launcher_without_venv_module_says_what_to_install(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    monkeypatch.setattr(launcher.shutil, "which", lambda name: None)
    messages: list[str] = []
    launcher.say = messages.append
    with pytest.raises(SystemExit):
        launcher.make_environment()
    assert "apt-get install -y python3-venv" in messages[-1]


def test_launcher_hands_over_from_any_directory(launcher: ModuleType, tmp_path: Path) -> None:
    """A folder named deploy in the caller's directory must not be taken for ours."""
    pretend_installed(launcher, "base")
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "__main__.py").write_text("print('taken in')")
    launcher.VENV_PYTHON.unlink()
    launcher.VENV_PYTHON.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    launcher.VENV_PYTHON.chmod(0o755)
    answer = subprocess.run(
        [sys.executable, str(ROOT / "penstock"), "--help"], cwd=tmp_path, capture_output=True, text=True,
        env={"PENSTOCK_VENV": str(launcher.VENV), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "usage: penstock" in answer.stdout


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--help"], 0, "usage: penstock"),
        (["--version"], 0, "penstock "),
        (["keys", "rotate", "--help"], 0, "--grace"),
        ([], 2, "COMMAND"),
        (["upp"], 2, "invalid choice: 'upp'"),
        (["up", "--prot", "1"], 2, "--prot"),
    ],
)
def test_launcher_answers_help_and_mistakes_without_installing(
    tmp_path: Path, words: list[str], status: int, told: str
) -> None:
    environment = {"PENSTOCK_VENV": str(tmp_path / "venv"), "PATH": "/usr/bin:/bin"}
    # As a fresh clone has it: an interpreter without any package.
    command = [sys.executable, "-S", str(ROOT / "penstock"), *words]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert answer.returncode == status and told in answer.stdout + answer.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    "words", [["status"], ["status", "--json"], ["node", "list"], ["keys", "list", "--account", "a"]]
)
def test_command_for_an_installation_that_is_not_there_is_refused_without_installing(
    tmp_path: Path, words: list[str]
) -> None:
    environment = {"PENSTOCK_VENV": str(tmp_path / "venv"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-S", str(ROOT / "penstock"), *words, "--data-dir", str(tmp_path / "data")]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert answer.returncode == 1 and answer.stdout == ""
    assert f"no installation in {tmp_path / 'data'} yet. Start one with: ./penstock up" in answer.stderr
    assert not (tmp_path / "venv").exists()


def test_launcher_installs_for_an_installation_that_is_there(launcher: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "state.json").touch()
    launcher.answer_without_environment(["status", "--data-dir", str(tmp_path)])
    for command in launcher.NEEDING_NONE:
        launcher.answer_without_environment(["spark", "install"] if command == "spark" else [command])


def test_version_is_that_of_the_project() -> None:
    answer = subprocess.run(
        [sys.executable, "-P", "-m", "deploy", "--version"], capture_output=True, text=True, cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    written = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version"))
    assert answer.stdout.strip().split()[1] == written.split('"')[1]
