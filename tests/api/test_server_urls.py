"""`NAME` and `NAME_FILE` of the database and the broker. Each process that reads them is started in
`tests/deploy/test_file_settings.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from api.settings.environment import environment
from api.settings.server_urls import BROKER_URL, DATABASE_URL, SettingsError, server_url


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


def test_environment_names_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment.cache_clear()
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "absent"))
    try:
        with pytest.raises(SettingsError, match="DATABASE_URL_FILE: cannot read"):
            environment()
    finally:
        environment.cache_clear()
