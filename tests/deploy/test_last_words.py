"""The end of a log is shown without secrets, whatever writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy import limits
from deploy.last_words import last_words, secrets_in


def test_secrets_of_the_installation_are_hidden_wherever_they_stand(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "master.key").write_text("aa" * 32 + "\n")
    key = {"access_key_id": "AKPS1", "secret_access_key": "s/e+c", "bearer_token": "pstk_1"}
    (secrets / "demo-key.json").write_text(json.dumps(key))
    log = tmp_path / "x.log"
    log.write_text(f"key {'aa' * 32}\nby AKPS1 with s/e+c\n\nand (pstk_1)\n")
    assert last_words(log, secrets_in(secrets)) == ["key ***", "by AKPS1 with ***", "and (***)"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("postgresql://penstock:hunter2@db:5432/x", "postgresql://penstock:***@db:5432/x"),
        ("redis://:hunter2@127.0.0.1:1/0 is away", "redis://:***@127.0.0.1:1/0 is away"),
        ("FATAL: requirepass hunter2", "FATAL: requirepass ***"),
        ('{"password": "hunter2", "event": "x"}', '{"password": "***", "event": "x"}'),
        ("PASSWORD=hunter2", "PASSWORD=***"),
    ],
)
def test_secrets_of_outside_servers_are_hidden_by_where_they_stand(tmp_path: Path, line: str, shown: str) -> None:
    log = tmp_path / "x.log"
    log.write_text(line)
    assert last_words(log, []) == [shown]


def test_words_of_an_earlier_life_are_not_taken_for_the_last_ones(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("of long ago\n")
    began = log.stat().st_size
    assert last_words(log, [], since_bytes=began) == []
    log.write_text("of long ago\nown\n")
    assert last_words(log, [], since_bytes=began) == ["own"]


def test_warnings_and_worse_are_shown_instead_of_what_is_routine(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    end = "[supervisor 2026-11-29T03:43:30Z] ended with signal SIGKILL; will be started again"
    changes = [json.dumps({"event": f"leader changed {number}", "level": "info"}) for number in range(9)]
    slow = json.dumps({"event": "slow disk", "level": "warning"})
    log.write_text("\n".join([slow, "Traceback", *changes, end]))
    assert last_words(log, [], 6) == [slow, "Traceback", end]
    log.write_text("\n".join([*changes, end]))
    assert last_words(log, [], 3) == [*changes[-2:], end], "there is nothing else"
    log.write_text("\n".join([*changes, changes[0][:-5]]))
    assert last_words(log, [], 3) == [changes[0][:-5]]


def test_long_logs_and_long_lines_are_cut(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"{number}\n" for number in range(50_000)) + "y" * 5_000)
    words = last_words(log, [], 3)
    assert words[:2] == ["49998", "49999"] and len(words[2]) < limits.LOG_LINE_CHARACTERS_MAX + 10
    assert last_words(tmp_path / "absent", []) == []
