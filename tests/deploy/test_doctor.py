"""`doctor` on usage, invoices, processes and storage: what is not as it should be is a problem, whatever hides it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.commands import doctor, usage_view
from deploy.commands.usage_view import UsageRoundNote
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.java import SparkFound
from storage_nodes.ids import make_node_id

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


def test_node_that_was_stopped_by_hand_is_a_problem(running: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check from cron would never ring where half of the nodes were left stopped."""
    up = {"role": "storage-node", "id": make_node_id(7, 1), "health": "healthy", "not_up": None}
    rows = [up, {**up, "id": make_node_id(7, 2), "health": "stopped"}]
    monkeypatch.setattr(doctor.control, "ask", lambda *_: {"processes": rows})
    said = "storage-node 7.2 is stopped. Start it: ./penstock node start 7.2"
    assert doctor.check("processes", lambda: doctor.processes(running)) == ("processes", False, said)
    rows.pop()
    assert doctor.processes(running) == "1 are up"


FULL_NODE = {
    "node_id": make_node_id(1, 1), "alive": True, "read_only": True, "disk_free_bytes": 2**30, "slow_disk": False,
    "damage_unrepaired": 0, "fed_again": [], "disk_closed": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "ok", "said"),
    [
        ({}, True, "each of 2 partitions has a leader"),
        ({"partitions": [{"leader": 1}, {"leader": 0}]}, False, "without a leader, so that nothing is sent to"),
        ({"quarantined": [{}]}, False, "with a stopped replica: 1 partitions. See ./penstock status"),
        ({"nodes": [FULL_NODE]}, False, "node 1: DISK NEARLY FULL, 1.0 GiB free"),
        ({"nodes": [{**FULL_NODE, "disk_closed": True}]}, False, "node 1: DISK FULL, 1.0 GiB free"),
        ({"cluster_error": "no answer"}, False, "no storage node answers: no answer"),
    ],
)
def test_what_the_storage_nodes_cannot_do_is_a_problem(
    running: Installation, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], ok: bool, said: str
) -> None:
    status = {"partitions": [{"leader": 1}, {"leader": 2}], "quarantined": [], "nodes": [], **found}
    monkeypatch.setattr(doctor, "status_of", lambda *_: status)
    _, is_ok, text = doctor.check("storage", lambda: doctor.storage(running))
    assert is_ok is ok and text.startswith(said)


def test_storage_of_what_does_not_run_is_not_looked_at(tmp_path: Path) -> None:
    assert doctor.storage(Installation(tmp_path / "stopped")) == "not running"
