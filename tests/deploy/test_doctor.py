"""`doctor` on usage and invoices: the worker's last round counts; an invoice that is due and not issued is not ok."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.commands import doctor, usage_view
from deploy.commands.usage_view import UsageRoundNote
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.java import SparkFound

MISSING = SparkFound(False, "", ["Java is missing: install it"])
RUNS = {"period": "2026-11", "overdue": False, "reasons": ["it runs until 2026-12-01 00:00 UTC"]}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    installation = Installation(tmp_path)
    monkeypatch.setattr(Installation, "load_state", lambda self: None)
    installation.run.mkdir(parents=True)
    (installation.run / "control.sock").touch()
    return installation


def note_of(trouble: str, rounds: int, ended_at: float | None = 5.0) -> UsageRoundNote:
    return {"ended_at": ended_at, "troubled_rounds": rounds, "trouble": trouble}


def invoices_found(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, months: list[dict[str, Any]], trouble: str = ""
) -> tuple[bool, str]:
    report = {"months": months, "not_settled": trouble}
    monkeypatch.setattr(doctor.management, "run_manage_json", lambda *_: report)
    _, ok, text = doctor.check("invoices", lambda: doctor.invoices(installation))
    return ok, text


def test_what_spark_lacks_is_said_where_no_round_has_ended_and_is_no_problem(
    running: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(usage_view, "look_for_spark", lambda: MISSING)
    monkeypatch.setattr(usage_view, "last_round", lambda *_: note_of("", 0, ended_at=None))
    said = "Spark is not ready, so no usage is settled: Java is missing: install it"
    assert doctor.check("spark", lambda: doctor.spark(running)) == ("spark", True, said)
    monkeypatch.setattr(usage_view, "last_round", lambda *_: pytest.fail("the database of what does not run was asked"))
    assert doctor.spark(Installation(tmp_path / "stopped")) == said


@pytest.mark.parametrize(("trouble", "said"), [("", "went well"), ("ingest ended with 1", "said: ingest ended with 1")])
def test_last_round_of_the_worker_counts_whatever_this_shell_finds(
    running: Installation, monkeypatch: pytest.MonkeyPatch, trouble: str, said: str
) -> None:
    monkeypatch.setattr(usage_view, "look_for_spark", lambda: MISSING)
    monkeypatch.setattr(usage_view, "last_round", lambda *_: note_of(trouble, int(bool(trouble))))
    found = doctor.spark(running)
    assert said in found and "Java" not in found


def test_round_that_is_not_known_is_said_to_be_so(running: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_view, "look_for_spark", lambda: pytest.fail("this shell was looked at"))
    monkeypatch.setattr(usage_view, "last_round", lambda *_: None)
    assert doctor.spark(running) == usage_view.NOT_KNOWN


def test_month_that_runs_is_ok_in_words_that_say_so(running: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    ok, text = invoices_found(running, monkeypatch, [RUNS], "Java is missing")
    assert ok and text == "none is overdue; not issued yet: 2026-11 (it runs until 2026-12-01 00:00 UTC)"
    assert invoices_found(running, monkeypatch, []) == (True, "none is due")


def test_invoices_that_are_due_and_not_issued_are_a_problem(
    running: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {"period": "2026-10", "overdue": True, "reasons": ["no usage is settled yet"]}
    ok, text = invoices_found(running, monkeypatch, [late, RUNS], "Java is missing")
    assert not ok
    assert text.startswith("due and not issued: 2026-10 (no usage is settled yet). See ./penstock report months")
    assert text.endswith("and the check of spark") and "2026-11" not in text
    many = [{**late, "period": f"2025-{month:02}"} for month in range(1, 8)]
    assert f"and {7 - doctor.MONTHS_SHOWN} more" in invoices_found(running, monkeypatch, many)[1]


def test_invoices_are_not_said_to_be_well_where_nobody_can_tell(
    running: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def away(*_: object) -> None:
        raise CommandError("the database does not answer")

    monkeypatch.setattr(doctor.management, "run_manage_json", away)
    _, ok, text = doctor.check("invoices", lambda: doctor.invoices(running))
    assert not ok and text == "whether any are due is not known: the database does not answer"
    assert doctor.invoices(Installation(tmp_path / "stopped")) == "issued while the installation runs"
