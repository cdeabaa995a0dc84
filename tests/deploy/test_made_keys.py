"""`keys create` prints the fields of the command contract; what else there is to say goes to the person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy import management
from deploy.__main__ import main
from tests.deploy.test_commands import KEY


def test_new_account_and_notes_on_the_policy_are_said_beside_the_fields(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: dict[str, Any] = {**KEY, "account_created": True, "notes": ["line 2 of the policy: no such action"]}
    monkeypatch.setattr(management, "run_manage", lambda *_: json.dumps(made))
    monkeypatch.setattr("deploy.installation.Installation.load_state", lambda _: None)
    monkeypatch.setattr("deploy.commands.keys.endpoint", lambda _: KEY["endpoint"])
    assert main(["keys", "create", "--account", "shop", "--json", "--data-dir", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == KEY
    assert "no account 'shop': it was made" in said.err and "no such action" in said.err
