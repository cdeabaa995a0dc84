"""docs/security.md names every attack of the catalogue, and no test that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
ATTACKS = 36


def test_every_attack_has_a_row() -> None:
    rows = re.findall(r"^\| S(\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == list(range(1, ATTACKS + 1))


def test_tests_that_are_named_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^\s*(?:async )?def (test_\w+)", tests, re.MULTILINE))
    assert not named - there, f"named in docs/security.md, and not there: {sorted(named - there)}"
