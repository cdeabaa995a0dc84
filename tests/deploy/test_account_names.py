"""A name of an account may begin with a dash: it reaches the management command as a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy import management
from deploy.__main__ import main


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("keys create --account=-x", ["create_key", "--account=-x", "--json"]),
        (
            "keys create --account=-x --name=-n --expires=-e",
            ["create_key", "--account=-x", "--json", "--key-name=-n", "--expires=-e"],
        ),
        ("accounts create -- -x", ["operate_accounts", "--", "create", "-x"]),
        ("keys list --account=-x", ["operate_keys", "list", "--", "-x"]),
        ("accounts suspend --reason late -- -x", ["operate_accounts", "--reason=late", "--", "suspend", "-x"]),
        (
            "queues restore --account=-x --as=-y -- -z",
            ["operate_queues", "--account=-x", "--as=-y", "--", "restore", "-z"],
        ),
        (
            "accounts configure --deletion-protection=on --deletion-grace-days=3 -- -x",
            ["operate_accounts", "--deletion-protection=on", "--deletion-grace-days=3", "--", "configure", "-x"],
        ),
        ("policies list --account=-x", ["review_policies", "--account=-x"]),
        ("console-link --account=-x", ["console_link", "--account=-x", "--json"]),
        (
            "billing pay --account=-x --period p --received=-d --reference=-r --amount-minor=-5",
            [
                "billing_admin",
                "pay",
                "--account=-x",
                "--amount-minor=-5",
                "--period=p",
                "--received=-d",
                "--reference=-r",
            ],
        ),
        (
            "billing assign --account=-x --code=c --from=-h --tax=-t=19",
            ["billing_admin", "assign", "--account=-x", "--code=c", "--from=-h", "--tax=-t=19"],
        ),
        ("billing plans --account=-x", ["billing_admin", "plans", "--account=-x"]),
        ("report usage --account=-x --period p", ["billing_report", "usage", "--period", "p", "--account=-x"]),
    ],
)
def test_name_with_a_dash_is_handed_on_as_a_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, arguments: list[str]
) -> None:
    asked: list[list[str]] = []

    class Asked(Exception):
        pass

    def note(installation: Any, state: Any, given: list[str], deadline_s: float) -> str:
        asked.append(given)
        raise Asked

    monkeypatch.setattr(management, "run_manage", note)
    monkeypatch.setattr("deploy.installation.Installation.load_state", lambda _: None)
    command, *rest = line.split()
    verb = [] if command == "console-link" else [rest.pop(0)]
    with pytest.raises(Asked):
        main([command, *verb, "--data-dir", str(tmp_path), *rest])
    assert asked == [arguments]
