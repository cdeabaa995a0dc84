"""`billing`: what the management command says is shown, and files are named from where the operator stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy import management
from deploy.__main__ import main
from deploy.errors import EXIT_FAILED, EXIT_USAGE

PLANS = [
    {
        "code": "house", "name": "House", "currency": "USD", "accounts": 2,
        "versions": [
            {"number": 1, "effective_from": "2000-01-01T00:00:00Z"},
            {"number": 2, "effective_from": "2026-12-01T00:00:00Z"},
        ],
    },
    {
        "code": "standard", "name": "Standard", "currency": "USD", "accounts": 0,
        "versions": [{"number": 1, "effective_from": "2000-01-01T00:00:00Z"}],
    },
]  # fmt: skip

ANSWERS = {
    "plans": json.dumps(PLANS),
    "terms": '{"currency": "USD"}',
    "plan": "house@1 holds from the beginning",
    "credit": "credit 1: USD 50.00",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The management commands that were called; ANSWERS has what each verb says."""
    calls: list[list[str]] = []

    def answer(installation: Any, state: Any, arguments: list[str], deadline_s: float) -> str:
        calls.append(arguments)
        return ANSWERS[arguments[1]] + "\n"

    monkeypatch.setattr(management, "run_manage", answer)
    monkeypatch.setattr("deploy.installation.Installation.load_state", lambda _: None)
    monkeypatch.setenv("PENSTOCK_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return calls


def test_plans_are_a_table_or_json(asked: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["billing", "plans"]) == 0
    printed = capsys.readouterr()
    rows = [line.split("  ") for line in printed.out.splitlines()]
    assert [row[0] for row in rows] == ["CODE", "house", "standard"]
    assert "2026-12-01T00:00:00Z" in printed.out.splitlines()[1] and "the beginning" in printed.out.splitlines()[2]
    assert "the plan standard" in printed.err
    assert main(["billing", "plans", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == PLANS


def test_plans_of_an_account_have_its_taxes(
    asked: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taxes = [{"name": "VAT", "percent": "19"}, {"name": "City", "percent": "1.5"}]
    given = {"code": "house", "effective_from": "2026-12-01T00:00:00Z", "taxes": taxes}
    monkeypatch.setitem(ANSWERS, "plans", json.dumps([{**given, "code": "standard", "taxes": []}, given]))
    assert main(["billing", "plans", "--account", "shop"]) == 0
    assert asked == [["billing_admin", "plans", "--account=shop"]]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("-") and lines[2].endswith("VAT 19 %, City 1.5 %")


def test_terms_are_json_that_a_plan_takes(
    asked: list[list[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["billing", "terms"]) == 0
    (tmp_path / "terms.json").write_text(capsys.readouterr().out)
    assert main(["billing", "plan", "--code", "house", "--name", "House", "--terms", "terms.json"]) == 0
    assert asked == [
        ["billing_admin", "terms", "--code=standard"],
        ["billing_admin", "plan", "--code=house", "--name=House", f"--terms={tmp_path / 'terms.json'}"],
    ]
    assert capsys.readouterr().out == "house@1 holds from the beginning\n"


def test_file_of_terms_that_is_not_there_is_told(asked: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["billing", "plan", "--code", "house", "--name", "House", "--terms", "absent.json"]) == EXIT_FAILED
    assert "no file absent.json; ./penstock billing terms" in capsys.readouterr().err and asked == []


def test_version_that_is_to_come_is_withdrawn_by_its_code_alone(
    asked: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["billing", "plan", "--code", "house", "--withdraw"]) == 0
    assert asked == [["billing_admin", "plan", "--code=house", "--withdraw"]]
    assert main(["billing", "plan", "--code", "house", "--withdraw", "--from", "2026-12-01T00:00"]) == EXIT_FAILED
    assert main(["billing", "plan", "--code", "house"]) == EXIT_FAILED
    told = capsys.readouterr().err
    assert "with --code alone" in told and "(--terms FILE)" in told and len(asked) == 1


def test_plan_that_an_account_is_to_have_is_withdrawn(
    asked: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "assign", "done")
    assert main(["billing", "assign", "--account", "shop", "--withdraw"]) == 0
    assert asked == [["billing_admin", "assign", "--account=shop", "--withdraw"]]
    assert main(["billing", "assign", "--account", "shop", "--withdraw", "--code", "house"]) == EXIT_FAILED
    assert main(["billing", "assign", "--account", "shop"]) == EXIT_FAILED
    told = capsys.readouterr().err
    assert "with --account alone" in told and "(--code CODE)" in told and len(asked) == 1


def test_amount_is_a_whole_number(asked: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    line = ["billing", "credit", "--account", "shop", "--name", "Welcome", "--currency", "USD", "--amount-minor"]
    assert main([*line, "5000"]) == 0
    assert capsys.readouterr().out == "credit 1: USD 50.00\n"
    with pytest.raises(SystemExit) as ended:
        main([*line, "50.00"])
    assert ended.value.code == EXIT_USAGE and len(asked) == 1
    assert "in the smallest unit of the currency: 5000 for 50.00" in capsys.readouterr().err


def test_usage_of_a_file_is_settled_and_what_is_not_billed_is_told(
    asked: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"run": "r", "merged": 2, "removed": 0, "quarantined": 1}
    monkeypatch.setitem(ANSWERS, "--from=2026-11-01T00", json.dumps(answer))
    line = ["billing", "settle", "--from", "2026-11-01T00", "--to", "2026-11-01T01"]
    assert main([*line, "--recount"]) == 0
    assert asked == [["settle_usage", "--from=2026-11-01T00", "--to=2026-11-01T01", "--recount"]]
    printed = capsys.readouterr()
    assert printed.out == "merged 2, removed 0, quarantined 1\n" and "./penstock report quarantine" in printed.err
    monkeypatch.setitem(ANSWERS, "--from=2026-11-01T00", json.dumps({**answer, "quarantined": 0}))
    assert main(line) == 0 and "quarantine " not in capsys.readouterr().err


RECOUNT: dict[str, Any] = {
    "period": "2026-10", "invoices": 3, "equal": True, "differences": [], "not_invoiced": [], "is_partial": False,
    "left_out": [],
}  # fmt: skip
DIFFERENCE = {
    "account": "shop", "invoice": "PS-1", "billed": "11.90", "total": "-2.38", "currency": "USD", "note": "credit",
    "is_settled": True,
}  # fmt: skip


def test_recount_says_that_there_is_no_difference_or_lists_what_a_note_would_correct(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, given = dict(RECOUNT), list[list[str]]()

    def answer(installation: Any, state: Any, arguments: list[str]) -> dict[str, Any]:
        given.append(arguments)
        return found

    monkeypatch.setattr("deploy.usage_now.recount", answer)
    assert main(["billing", "recount", "--period", "2026-10"]) == 0
    assert "no difference: 3 invoices of 2026-10" in capsys.readouterr().out
    lacking = {"account": "new", "total": "1.00", "currency": "USD"}
    found |= {"equal": False, "differences": [DIFFERENCE, {**DIFFERENCE, "invoice": "PS-2", "is_settled": False}]}
    found |= {"not_invoiced": [lacking], "is_partial": True, "left_out": ["windows/a.parquet"]}
    assert main(["billing", "recount", "--period", "2026-10", "--account", "shop"]) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()]
    assert rows[1] == ["shop", "PS-1", "11.90", "-2.38", "USD", "credit", "note"] and rows[3][:2] == ["new", "-"]
    assert "PS-1: a note corrects it: ./penstock billing correct --account shop --period 2026-10" in printed.err
    assert "PS-2: the settled usage says something else" in printed.err and "windows/a.parquet" in printed.err
    assert "new has no invoice of 2026-10" in printed.err
    assert given == [["--period=2026-10"], ["--period=2026-10", "--account=shop"]] and asked == []


SELLER = {"name": "Queues Ltd", "address": ["Main Street 1", "1010 Vienna"], "tax_id": "VAT 1", "payment_days": 14}


def test_seller_is_named_whole_and_shown(
    asked: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "seller", json.dumps(SELLER))
    lines = ["--address", "Main Street 1", "--address", "1010 Vienna"]
    given = ["--name", "Queues Ltd", *lines, "--tax-id", "VAT 1", "--payment", "IBAN", "--payment-days", "14"]
    assert main(["billing", "seller", *given]) == 0
    named = ["--name=Queues Ltd", "--tax-id=VAT 1", "--payment-days=14"]
    repeated = ["--address=Main Street 1", "--address=1010 Vienna", "--payment=IBAN"]
    assert asked == [["billing_admin", "seller", *named, *repeated]]
    told = ["Queues Ltd", "Main Street 1", "1010 Vienna", "VAT 1", "to be paid within 14 days"]
    assert capsys.readouterr().out.splitlines() == told
    assert main(["billing", "seller", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == SELLER and asked[1] == ["billing_admin", "seller"]


def test_buyer_is_removed_and_nothing_else_goes_with_that(
    asked: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "buyer", "{}")
    buyer = ["billing", "buyer", "--account", "shop"]
    assert main([*buyer, "--remove"]) == 0
    assert asked == [["billing_admin", "buyer", "--account=shop", "--remove"]]
    assert main([*buyer, "--remove", "--name", "Ann"]) == EXIT_FAILED
    assert main([*buyer, "--tax-id", "VAT 1"]) == EXIT_FAILED
    told = capsys.readouterr().err
    assert "no buyer but the account" in told and "without the other options" in told and "(--name)" in told
    assert len(asked) == 1
