"""Programs of the system that tests need: installed where that is allowed, named where it is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deploy import system_packages
from deploy.system_packages import SystemPackage, ensure

WANTED = SystemPackage(("penstock-no-such-program",), ("no-such-package",), "tests")


def test_what_is_there_is_not_installed() -> None:
    assert ensure([SystemPackage(("sh",), ("dash",), "tests")], lambda command: pytest.fail(f"ran {command}")) == []


def test_what_is_missing_is_installed_after_a_look_at_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(system_packages, "_as_root", list)
    monkeypatch.setattr(system_packages.shutil, "which", lambda name: "/x" if name == "apt-get" else None)
    assert ensure([WANTED], lambda command: bool(ran.append(command)) or command[1] == "update") == [WANTED]
    assert [command[1] for command in ran] == ["install", "update", "install"] and "no-such-package" in ran[0]


def test_user_who_may_not_install_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system_packages, "_as_root", lambda: None)
    assert ensure([WANTED], lambda command: pytest.fail(f"ran {command}")) == [WANTED]
    told = capsys.readouterr()
    assert "apt-get install -y no-such-package" in told.out + told.err
