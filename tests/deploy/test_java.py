"""Java for Spark: found, installed where that is possible, and never in the way of anything else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy import java
from deploy.__main__ import main
from deploy.commands import spark
from deploy.errors import CommandError
from deploy.java import SparkFound
from workers.spark_jobs import java as search

MISSING = SparkFound(False, "", ["Java is missing: install it"])
READY = SparkFound(True, "17 (/usr/bin/java)", [])


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(search, "JAVA_PLACES", str(tmp_path / "jvm/*/bin/java"))


@pytest.mark.usefixtures("nowhere")
def test_java_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert search.find_java() is None
    assert search.INSTALL_JAVA in search.missing_parts()
    old = fake_java(tmp_path / "old", "1.8.0_400")
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    assert search.find_java() is None
    new = fake_java(tmp_path / "jvm" / "new", "21.0.2")
    found = search.find_java()
    assert found is not None and (found.path, found.version) == (str(new), 21)


def test_install_asks_the_package_manager_and_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([MISSING, READY])
    asked: list[list[str]] = []
    monkeypatch.setattr(spark, "look_for_spark", lambda: next(looks))
    monkeypatch.setattr(java.os, "geteuid", lambda: 0)
    monkeypatch.setattr(java.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(java.subprocess, "run", lambda command, **_: asked.append(command))
    assert main(["spark", "install"]) == 0
    assert [command[1] for command in asked] == ["update", "install"] and asked[1][-1] == java.JAVA_PACKAGE


def test_install_that_is_not_possible_says_why_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(spark, "look_for_spark", lambda: MISSING)
    monkeypatch.setattr(java.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(java.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(java.subprocess, "run", refuse)
    assert main(["spark", "install"]) != 0
    told = capfd.readouterr().err
    assert "apt-get update failed" in told and "Java is missing: install it" in told


def test_look_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java.sys, "executable", "/bin/false")
    with pytest.raises(CommandError, match="cannot tell"):
        java.look_for_spark()
