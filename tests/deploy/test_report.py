"""Reports for people: the figures on stdout, what they do not hold on stderr."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from deploy.__main__ import main
from deploy.commands import report
from deploy.errors import EXIT_FAILED, EXIT_USAGE
from deploy.java import SparkFound


def test_usage_is_a_table_and_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    quantities = defaultdict(int, messages_sent=1234, delivered_units=7)
    queue = {"queue": "orders", "queue_uuid": "u", "quantities": quantities}
    now = {"complete": False, "missing_from": "2026-11-01T05:00:00Z", "reason": "windows are open"}
    found: dict[str, Any] = {
        "queues": [queue], "totals": quantities, "settled_up_to": "2026-11-01T05:00:00Z", "now": now,
        "quarantined": [{"reason": "negative_counter", "records": 2}],
        "period": "2026-11", "account_id": "000000000001",
    }  # fmt: skip
    report.show_usage(found)
    report.show_settled(found)
    printed = capsys.readouterr()
    assert "sent units  delivered units" in printed.out.splitlines()[0]
    assert printed.out.splitlines()[1].split() == ["orders", "1,234", "0", "0", "0", "7", "0"]
    for said in ("settled up to 2026-11-01T05", "2 records, negative_counter", "missing from 2026-11-01T05"):
        assert said in printed.err
    assert "./penstock report quarantine --period 2026-11 --account 000000000001" in printed.err


def test_requests_of_no_queue_are_named_and_hours_that_are_not_settled_are_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quantities: dict[str, int] = defaultdict(int)
    queue = {"queue": "", "queue_uuid": "00000000-0000-0000-0000-000000000000", "quantities": quantities}
    deleted = {"queue": None, "queue_uuid": "0d6f5c1e-0000-4000-8000-000000000001", "quantities": quantities}
    some = {"queues": [queue, deleted], "totals": quantities}
    found: dict[str, Any] = {**some, "settled_up_to": None, "provisional": some, "now": {"complete": True}}
    report.show_usage(found)
    report.show_settled(found)
    printed = capsys.readouterr()
    names = [line.split("  ")[0] for line in printed.out.splitlines()[1:]]
    assert names[:2] == ["requests of no queue", "0d6f5c1e-0000-4000-8000-000000000001"]
    assert names[3:5] == [f"{name} (provisional)" for name in names[:2]]
    assert "nothing is settled yet" in printed.err and "--now" not in printed.err
    report.show_settled({"queues": [], "settled_up_to": None})
    assert "nothing is settled yet: --now" in capsys.readouterr().err
    report.show_settled({"records": [], "settled_up_to": None})
    assert "--now" not in capsys.readouterr().err


def test_invoice_that_is_priced_otherwise_now_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    line = {"text": "Storage", "quantity_text": "1.500", "unit": "GiB-hours", "amount": "0.10"}
    note = {"number": "PN-1", "kind": "credit", "total": "0.05", "reason": "counted twice"}
    paid = {"paid_minor": 0, "due_minor": -5, "minor_digits": 2}
    invoice = {"number": "PS-1", "currency": "USD", "lines": [line], "total": "0.10", "notes": [note], **paid}
    found = {"account": "a", "period": "2026-11", "invoice": invoice, "recomputed": {"equal": False}}
    report.show_invoice(found)
    printed = capsys.readouterr()
    assert "Storage  1.500 GiB-hours  0.10" in printed.out and "PN-1: credit note, USD 0.05" in printed.out
    assert [line.split() for line in printed.out.splitlines()[-3:-1]] == [["paid", "0.00"], ["due", "-0.05"]]
    assert "./penstock billing correct --account a --period 2026-11" in printed.err
    report.show_invoice({**found, "recomputed": {"equal": True}})
    assert "correct" not in capsys.readouterr().err
    report.show_invoice({**found, "invoice": None})
    assert "was not open" in capsys.readouterr().out


def test_record_that_is_not_billed_is_shown_by_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"account_id": "1", "hour": "h", "messages_sent": -1, "requests": 0}
    one = {"reason": "negative_counter", "account_id": "", "hour": None, "detail": "", "record": record}
    report.show_quarantine({"records": [one]})
    assert capsys.readouterr().out.splitlines()[1].split() == ["negative_counter", "-", "-", "messages_sent", "-1"]


def test_report_of_an_account_needs_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "usage", "--period", "2026-11"]) == EXIT_USAGE
    assert "--account NAME" in capsys.readouterr().err


def test_open_months_are_a_table_with_the_reasons(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reasons = ["1 to be issued", "usage is settled up to 2026-05-01 00:00 UTC"]
    months = [{"period": "2026-05", "to_issue": 2, "failing": 1, "reasons": reasons}]
    failed = [{"account_id": "1", "period": "2026-05", "at": "2026-06-01T06:05:00Z", "error": "the moon is full"}]
    last: list[Any] = [None, ""]
    late = {"invoice": "PS-1", "account": "a", "period": "2026-04", "currency": "USD", "total": "-1.00"}
    asked: list[list[str]] = []

    def answer(installation: object, state: object, arguments: list[str], deadline_s: float) -> dict[str, Any]:
        asked.append(arguments)
        return {
            "months": months,
            "differences": [late],
            "settled_up_to": None,
            "failed": failed,
            "last_round": last[0],
            "not_settled": last[1],
        }

    monkeypatch.setattr(report.management, "run_manage_json", answer)
    monkeypatch.setattr(report.Installation, "load_state", lambda self: None)
    monkeypatch.setattr(report, "look_for_spark", lambda: SparkFound(False, "", ["Java 17 or newer is missing"]))
    assert main(["report", "months", "--data-dir", str(tmp_path)]) == 0
    assert asked == [["billing_report", "months"]]
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split("  ")[0] == "2026-05" and "1 to be issued; usage is" in printed.out
    assert "PS-1, a, 2026-04: usage that came later makes a difference of USD -1.00" in printed.err
    assert re.search(r"\./penstock billing correct --data-dir \S+ --account a --period 2026-04", printed.err)
    assert "nothing is settled yet" in printed.err
    assert "usage is not settled, and no invoice issued: Java 17 or newer is missing" in printed.err
    assert "1, 2026-05: the invoice failed at 2026-06-01T06:05:00Z: the moon is full" in printed.err
    last[:] = ["2026-06-01T06:05:00Z", "settle ended with 1: no space left"]
    assert main(["report", "months", "--data-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "no invoice issued: settle ended with 1: no space left" in said and "Java" not in said
    last[1] = ""
    assert main(["report", "months", "--data-dir", str(tmp_path)]) == 0
    assert "Java" not in capsys.readouterr().err, "the worker has what this shell lacks"
    last[0] = None
    reasons.pop()
    assert main(["report", "months", "--data-dir", str(tmp_path)]) == 0
    assert "Java" not in capsys.readouterr().err, "no month waits for usage"


def test_invoice_is_written_into_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []
    found: dict[str, Any] = {"account": "a", "period": "2026-11", "invoice": {"number": None}, "file": "JVBERg=="}

    def answer(installation: object, state: object, arguments: list[str], deadline_s: float) -> dict[str, Any]:
        asked.append(arguments)
        return {**found, "settled_up_to": "2026-11-05T00:00:00Z"}

    monkeypatch.setattr(report.management, "run_manage_json", answer)
    monkeypatch.setattr(report.Installation, "load_state", lambda self: None)
    line = ["report", "invoice", "--account", "a", "--period", "2026-11", "--data-dir", str(tmp_path), "--pdf"]
    assert main([*line, str(tmp_path / "a.pdf")]) == 0
    assert (tmp_path / "a.pdf").read_bytes() == b"%PDF" and asked[0][-1] == "--file=pdf"
    printed = capsys.readouterr()
    assert printed.out == "" and "a.pdf: a draft, 4 bytes" in printed.err and "settled up to" in printed.err
    assert "settled usage alone" not in printed.err
    found["now"] = {"complete": True}
    assert main([*line, str(tmp_path / "a.pdf")]) == 0 and "settled usage alone" in capsys.readouterr().err
    assert main([*line, str(tmp_path / "absent" / "a.pdf")]) == EXIT_FAILED
    assert "a.pdf cannot be written: No such file" in capsys.readouterr().err
    found["invoice"] = None
    assert main([*line, str(tmp_path / "b.pdf")]) == EXIT_FAILED
    assert "was not open" in capsys.readouterr().err and not (tmp_path / "b.pdf").exists()


def test_invoices_and_their_notes_are_a_table_that_tells_them_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []
    common = {"period": "2026-11", "currency": "USD", "state": "issued"}
    invoice = {**common, "document": "invoice", "number": "PS-1", "corrects": None, "total": "9.00", "due": "8.00"}
    note = {**common, "document": "credit_note", "number": "PN-1", "corrects": "PS-1", "total": "-1.00", "due": ""}

    def answer(installation: object, state: object, arguments: list[str], deadline_s: float) -> dict[str, Any]:
        asked.append(arguments)
        return {"account": "a", "documents": [invoice, note]}

    monkeypatch.setattr(report.management, "run_manage_json", answer)
    monkeypatch.setattr(report.Installation, "load_state", lambda self: None)
    assert main(["report", "invoices", "--account", "a", "--data-dir", str(tmp_path)]) == 0
    assert asked == [["billing_report", "invoices", "--account=a"]]
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines[1:]] == ["invoice", "credit note"] and "PS-1" in lines[2]
    assert main(["report", "invoices", "--data-dir", str(tmp_path)]) == EXIT_USAGE


def test_note_of_an_invoice_is_shown_or_written_into_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []
    note = {
        "number": "PN-1", "kind": "credit", "invoice_number": "PS-1", "reason": "twice", "currency": "USD",
        "lines": [{"text": "Usage and fees", "amount": "1.00"}], "total": "1.00",
        "differences": [{"meter_name": "Requests", "quantity_text": "-3", "unit": "requests"}],
    }  # fmt: skip

    def answer(installation: object, state: object, arguments: list[str], deadline_s: float) -> dict[str, Any]:
        asked.append(arguments)
        return {"invoice": {"number": "PS-1"}, "note": note, "file": "JVBERg==", "settled_up_to": None}

    monkeypatch.setattr(report.management, "run_manage_json", answer)
    monkeypatch.setattr(report.Installation, "load_state", lambda self: None)
    line = ["report", "invoice", "--account", "a", "--period", "2026-11", "--note", "PN-1", "--data-dir", str(tmp_path)]
    assert main(line) == 0 and "--note=PN-1" in asked[0]
    printed = capsys.readouterr().out
    assert "PN-1, credit note, corrects PS-1: twice" in printed and "credited" in printed and "-3 requests" in printed
    assert main([*line, "--pdf", str(tmp_path / "a.pdf")]) == 0
    assert (tmp_path / "a.pdf").read_bytes() == b"%PDF" and "a.pdf: PN-1, 4 bytes" in capsys.readouterr().err


def test_parts_of_usage_are_a_table_with_what_they_cost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quantities: dict[str, int] = defaultdict(int, messages_sent=1234)
    rows = [{"part": part, "quantities": quantities, "currency": "USD", "amount": "0.5"} for part in ("a", "")]
    parts: list[dict[str, Any]] = rows
    asked: list[list[str]] = []

    def answer(installation: object, state: object, arguments: list[str], deadline_s: float) -> dict[str, Any]:
        asked.append(arguments)
        by = next(one for one in arguments if one.startswith("--by="))
        return {"by": by.removeprefix("--by="), "parts": parts, "settled_up_to": "2026-11-05T00:00:00Z"}

    monkeypatch.setattr(report.management, "run_manage_json", answer)
    monkeypatch.setattr(report.Installation, "load_state", lambda self: None)
    line = ["report", "usage", "--account", "a", "--period", "2026-11", "--data-dir", str(tmp_path), "--by"]
    assert main([*line, "tag", "--tag", "team"]) == 0
    assert asked[-1][-2:] == ["--by=tag", "--tag=team"]
    printed = capsys.readouterr()
    assert [line.split("  ")[0] for line in printed.out.splitlines()] == ["part", "a", "without the tag"]
    assert printed.out.splitlines()[1].split() == ["a", "1,234", "0", "0", "0", "0", "0", "0.5"]
    assert "not settled yet is in it" in printed.err
    parts = [{"part": "AKPS1", "name": "admin", "requests": 1234, "empty_receives": 1}]
    assert main([*line, "key"]) == 0
    assert asked[-1][-1] == "--by=key"
    assert capsys.readouterr().out.splitlines()[1].split() == ["AKPS1", "admin", "1,234", "1"]
    parts = []
    assert main([*line, "key"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split() == ["access", "key", "id", "name", "requests", "empty", "receives"]
    assert "no request was counted" in printed.err
