"""`NAME` and `NAME_FILE` of the database and the broker, for every process that reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.settings.environment import environment
from api.settings.server_urls import BROKER_URL, DATABASE_URL, SettingsError, server_url

ROOT = Path(__file__).parents[2]
# What a process of its own prints of what it read.
READERS = {
    "worker": "from workers.application import app; print(app.conf.broker_url)",
    "schedule": "from workers.schedule import DATABASE_URL, server_url; print(server_url(DATABASE_URL))",
    "control plane": "from api.settings.project import _env; print(_env.database_url, _env.celery_broker_url)",
    "metadata": "from api.metadata.__main__ import _settings; print(_settings().database_url)",
}


@pytest.fixture(autouse=True)
def no_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (DATABASE_URL, BROKER_URL):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)


@pytest.mark.parametrize("name", [DATABASE_URL, BROKER_URL])
def test_url_is_taken_from_its_setting_else_from_its_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match=f"neither {name} nor {name}_FILE is set"):
        server_url(name)
    monkeypatch.setenv(f"{name}_FILE", str(tmp_path / "url"))
    with pytest.raises(SettingsError, match=f"{name}_FILE: cannot read .*No such file"):
        server_url(name)
    (tmp_path / "url").write_text(" \n")
    with pytest.raises(SettingsError, match="is empty"):
        server_url(name)
    (tmp_path / "url").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="not UTF-8"):
        server_url(name)
    (tmp_path / "url").write_text("scheme://of-the-file\n")
    assert server_url(name) == "scheme://of-the-file"
    assert name not in os.environ, "child processes would inherit it"
    monkeypatch.setenv(name, "scheme://of-the-setting")
    assert server_url(name) == "scheme://of-the-setting"


@pytest.mark.parametrize("reader", READERS)
def test_process_reads_urls_from_files(reader: str, tmp_path: Path) -> None:
    (tmp_path / "database").write_text("postgresql://me:word@db:5432/penstock\n")
    (tmp_path / "broker").write_text("redis://:word@broker:6379/0\n")
    (tmp_path / "django.key").write_text("0" * 64)
    settings = {
        "DATABASE_URL_FILE": str(tmp_path / "database"),
        "CELERY_BROKER_URL_FILE": str(tmp_path / "broker"),
        "PENSTOCK_SECRETS_DIR": str(tmp_path),
        "PENSTOCK_CLUSTER_ID": "pk-test",
        "PENSTOCK_INNER_TLS": "off",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-P", "-c", READERS[reader]]
    answer = subprocess.run(command, env=settings, capture_output=True, text=True, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    expected = {
        "worker": "redis://:word@broker",
        "control plane": "postgresql://me:word@db:5432/penstock redis://:word@",
    }
    assert answer.stdout.startswith(expected.get(reader, "postgresql://me:word@db:5432/penstock"))


def test_environment_names_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment.cache_clear()
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "absent"))
    try:
        with pytest.raises(SettingsError, match="DATABASE_URL_FILE: cannot read"):
            environment()
    finally:
        environment.cache_clear()
