"""`penstock quotas`: what is handed to the management command, and what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from deploy import management
from deploy.__main__ import parser
from deploy.commands import quotas


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        (["list"], ["list"]),
        (["list", "--account", "shop"], ["list", "--account=shop"]),
        (["set", "--account", "-x", "queues=5"], None),
        (["set", "--account=-x", "queues=5", "polls=1"], ["set", "--account=-x", "--", "queues=5", "polls=1"]),
        (["list", "--account", "a", "--key", "AKPS"], ["list", "--account=a", "--key=AKPS"]),
        (["set", "--account=a", "--queue=q", "polls=1"], ["set", "--account=a", "--queue=q", "--", "polls=1"]),
        (["stop", "--account", "shop", "--reason", "late"], ["stop", "--account=shop", "--reason=late"]),
        (["stop", "--reason", "late"], None),
        (["resume", "--account", "shop"], ["resume", "--account=shop"]),
        (["requests"], ["requests"]),
        (["approve", "7", "--answer", "yes"], ["approve", "--answer=yes", "--", "7"]),
        (["refuse", "x"], None),
    ],
)
def test_line_is_handed_on_whole(line: list[str], arguments: list[str] | None) -> None:
    if arguments is None:
        with pytest.raises(SystemExit):
            parser().parse_args(["quotas", *line])
    else:
        assert quotas.arguments_of(parser().parse_args(["quotas", *line])) == arguments


def test_quotas_are_a_table_and_a_stop_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    shown = {"name": "queues", "unit": "count", "value": 7, "default": 100_000, "in_use": None}
    said = {"holder": "1", "quotas": [shown], "sending_stopped": "late", "sends_per_s": 3}
    monkeypatch.setattr(management, "operate", lambda *_: said)
    monkeypatch.setattr("deploy.installation.Installation.load_state", lambda _: None)
    assert quotas.run(parser().parse_args(["quotas", "list", "--data-dir", str(tmp_path)])) == 0
    out = capsys.readouterr().out
    assert out.split("\n")[1].split() == ["queues", "7", "100000", "-", "count"] and "sending is stopped: late" in out
    assert "messages a second that may be sent: 3" in out


def test_resumption_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    said: dict[str, Any] = {"holder": "1", "quotas": [], "sending_stopped": None, "sends_per_s": 1}
    lifted = {"budget": "cap", "until": "2026-12-01 00:00 UTC"}
    monkeypatch.setattr(management, "operate", lambda *_: said | {"lifted": lifted})
    monkeypatch.setattr("deploy.installation.Installation.load_state", lambda _: None)
    assert quotas.run(parser().parse_args(["quotas", "resume", "--account=shop", "--data-dir", str(tmp_path)])) == 0
    printed = capsys.readouterr()
    assert printed.out == "sending is resumed: shop may send\n"
    assert "budget cap is used up: it does not stop sending before 2026-12-01 00:00 UTC" in printed.err
    assert "may be sent: 1" in printed.err
