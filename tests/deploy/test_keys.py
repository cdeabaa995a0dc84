"""`./penstock keys list`: a table for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy import management
from deploy.__main__ import main
from deploy.installation import Installation


def test_list_of_keys_says_in_words_which_are_restricted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = {
        "access_key_id": "AKPS1", "name": "sender", "state": "active", "restricted": True, "created_at": "2026-11-23",
        "expires_at": None, "last_used_at": None,
    }  # fmt: skip
    keys: list[dict[str, Any]] = [key, {**key, "access_key_id": "AKPS2", "restricted": False}]
    monkeypatch.setattr(Installation, "load_state", lambda _: None)
    monkeypatch.setattr(management, "operate", lambda *_: keys)
    assert main(["keys", "list", "--account", "demo", "--data-dir", str(tmp_path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows[0] == ["AKPS1", "sender", "active", "yes", "2026-11-23", "-", "-"] and rows[1][3] == "no"
