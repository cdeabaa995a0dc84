"""Operators' commands: reports say what is settled and what is not, plans and credits are made and corrected."""

from __future__ import annotations

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from api import clock
from api.accounts.models import AccessKey
from api.audit.actions import OPERATOR
from api.billing.actions.differences import look_at_late_usage
from api.billing.actions.invoices import BILLING, correct_invoice, draft_invoice, issue_invoice
from api.billing.actions.plans import grant_credit
from api.billing.management.commands import billing_report
from api.billing.management.commands.billing_report import usage_report
from api.billing.models import (
    AccountPlan,
    BillingCredit,
    HourlyUsage,
    Invoice,
    KeyUsage,
    MeterReading,
    UsageRun,
    UsageRunState,
)
from api.billing.pricing.meters import UsageMeter
from api.billing.provisional import ProvisionalRow, answer_now, drop_settled, merge_provisional, note_reading
from api.billing.work_notes import FailureSubject, Work, note_failure, note_round
from api.queues.models import Queue
from tests.api.billing.test_invoices import document, plan
from tests.api.billing.usage import (
    MONTH_HOURS,
    PERIOD,
    QUEUE,
    hours,
    make_queue,
    month_hour,
    open_since,
    row,
    settle_month,
    settle_rows,
)
from tests.support.control_plane import new_caller

pytestmark = pytest.mark.django_db


def report(what: str, *arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("billing_report", what, "--period", PERIOD.name, *arguments, stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def admin(*arguments: str) -> str:
    out = io.StringIO()
    call_command("billing_admin", *arguments, stdout=out)
    return out.getvalue()


def test_usage_report_has_quantities_per_queue_and_kind(account: str) -> None:
    orders = make_queue(account, "orders")
    rows = [
        row(account, queue_uuid=orders, messages_sent=3),
        row(account, queue_uuid=orders, origin="push", messages_sent=4),
    ]
    settle_rows([*rows, row(account, messages_sent=-1)], 0, 9)
    found = report("usage", "--account", "tests", "--now")
    assert (found["account_id"], found["period"]) == (account, PERIOD.name)
    assert found["settled_up_to"] == month_hour(9).isoformat().replace("+00:00", "Z")
    (queue,) = found["queues"]
    assert (queue["queue"], queue["quantities"]["messages_sent"]) == ("orders", 7)
    assert queue["by_origin"]["push"]["messages_sent"] == 4 and found["totals"]["messages_sent"] == 7
    assert found["quarantined"] == [{"reason": "negative_counter", "records": 1}]
    assert found["now"]["complete"] is False and found["now"]["missing_from"] == found["settled_up_to"]
    assert "windows were not read" in found["now"]["reason"]


def test_look_that_ends_while_the_figures_are_read_makes_no_report_complete(
    account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_beside(*given: Any) -> dict[str, Any]:
        now = clock.now()
        note_reading(now, 20, now, "")
        return usage_report(*given)

    monkeypatch.setattr(billing_report, "usage_report", read_beside)
    assert report("usage", "--account", "tests", "--now")["now"]["complete"] is False


def test_report_of_now_has_both_together_and_the_lines_that_the_invoice_would_have(account: str) -> None:
    plan(account)
    orders = make_queue(account, "orders")
    settle_rows([row(account, queue_uuid=orders, sent_units=600)], 0, 9)
    counters = [500 if meter is UsageMeter.SENT_UNITS else 0 for meter in UsageMeter]
    rows = [ProvisionalRow(month_hour(10), account, queue, "one/12", "client", counters) for queue in (orders, QUEUE)]
    merge_provisional("one/3", 1, rows)
    usage = report("usage", "--account", "tests", "--now")
    assert {one["queue"]: one["quantities"]["sent_units"] for one in usage["together"]["queues"]} == {
        "orders": 1_100, "": 500,
    }  # fmt: skip
    assert usage["together"]["totals"]["sent_units"] == 1_600
    invoice = report("invoice", "--account", "tests", "--now")
    lines = [(line["text"], line["quantity"], line["amount"]) for line in invoice["provisional"]["lines"]]
    sent = "Sent, in units of 64 KiB"
    assert lines == [(f"{sent}, free", 100, "0.00"), (sent, 1_500, "1.50")]
    assert invoice["invoice"]["total"] == "0.50" and invoice["provisional"]["total"]["text"] == "1.50"


@pytest.mark.django_db(transaction=True)
def test_hour_that_is_settled_while_a_report_is_made_is_in_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    account = new_caller().account_id
    open_since(account)
    counters = [5 if meter is UsageMeter.MESSAGES_SENT else 0 for meter in UsageMeter]
    merge_provisional("one/3", 1, [ProvisionalRow(month_hour(0), account, QUEUE, "one/12", "client", counters)])

    def settle_behind(*given: Any) -> dict[str, Any]:
        made = usage_report(*given)
        with ThreadPoolExecutor(1) as beside:
            beside.submit(settle_and_leave, account).result()
        return made

    monkeypatch.setattr(billing_report, "usage_report", settle_behind)
    assert report("usage", "--account", "tests", "--now")["together"]["totals"]["messages_sent"] == 5
    monkeypatch.setattr(billing_report, "usage_report", usage_report)
    found = report("usage", "--account", "tests", "--now")
    assert (found["totals"]["messages_sent"], found["provisional"]["totals"]["messages_sent"]) == (5, 0)


def settle_and_leave(account: str) -> None:
    """In a thread of its own, with a connection of its own."""
    settle_rows([row(account, messages_sent=5)])
    drop_settled()
    connection.close()


def test_invoice_report_has_the_draft_then_the_invoice_priced_again(account: str) -> None:
    plan(account)
    settle_month([row(account, sent_units=10_100)])
    draft = report("invoice", "--account", "tests")
    assert (draft["invoice"]["state"], draft["invoice"]["total"]) == ("draft", "10.00") and "recomputed" not in draft
    issue_invoice(BILLING, account, PERIOD)
    issued = report("invoice", "--account", "tests", "--now")
    assert issued["invoice"]["number"] and issued["recomputed"] == {"total_minor": 1000, "equal": True}
    assert issued["now"]["complete"] is True
    settle_rows([row(account, 3, sent_units=1_000)], 3, 1)
    assert report("invoice", "--account", "tests")["recomputed"] == {"total_minor": 1100, "equal": False}


def test_report_leaves_no_draft_of_a_month_that_is_not_billed(account: str) -> None:
    settle_month([])
    shown = report("invoice", "--account", "tests", "--period", PERIOD.name)
    assert shown["invoice"]["state"] == "draft" and not Invoice.objects.exists()
    settle_rows([row(account, sent_units=1)], 0, 1)
    report("invoice", "--account", "tests", "--period", PERIOD.name)
    assert Invoice.objects.count() == 1


def test_invoice_that_was_corrected_needs_no_correction_any_more(account: str) -> None:
    plan(account)
    grant_credit(OPERATOR, account, "Welcome", "USD", 5_000, None)
    settle_month([row(account, sent_units=10_100)])
    invoice = issue_invoice(BILLING, account, PERIOD)
    assert invoice is not None
    settle_rows([row(account, 3, sent_units=1_000)], 3, 1)
    # The credit covers the late usage as well; a note takes no more of it than the invoice did.
    assert report("invoice", "--account", "tests")["recomputed"] == {"total_minor": 0, "equal": False}
    assert correct_invoice(OPERATOR, account, invoice.pk, "late") is not None
    assert report("invoice", "--account", "tests")["recomputed"] == {"total_minor": 0, "equal": True}
    settle_rows([row(account, 4, sent_units=2_000)], 4, 1)
    assert report("invoice", "--account", "tests")["recomputed"]["equal"] is False
    assert correct_invoice(OPERATOR, account, invoice.pk, "later") is not None
    settle_month([row(account, sent_units=3_100)])
    assert correct_invoice(OPERATOR, account, invoice.pk, "counted twice") is not None
    assert report("invoice", "--account", "tests")["recomputed"]["equal"] is True


def test_quarantine_report_shows_records_of_unknown_accounts_and_of_the_future(account: str) -> None:
    settle_rows([row("999999999999", messages_sent=5), row(account, hour=20_000_000)])
    found = report("quarantine")
    assert sorted(one["reason"] for one in found["records"]) == ["hour_in_future", "unknown_account"]
    record = next(one for one in found["records"] if one["reason"] == "unknown_account")
    assert (record["account_id"], record["record"]["messages_sent"]) == ("999999999999", 5)


def test_report_of_what_is_not_there_is_refused(account: str) -> None:
    with pytest.raises(CommandError, match="no account"):
        report("usage", "--account", "absent")
    with pytest.raises(CommandError, match="a month"):
        call_command("billing_report", "usage", "--account", "tests", "--period", "2026-13", stdout=io.StringIO())


def test_now_is_complete_where_nothing_can_be_missing() -> None:
    month, never = hours(0, MONTH_HOURS), MeterReading()
    assert answer_now(month, month_hour(MONTH_HOURS), never, month_hour(MONTH_HOURS + 3)).complete
    assert answer_now(month, None, never, month_hour(-1)).complete, "the month has not begun"
    partly = answer_now(month, month_hour(5), never, month_hour(7))
    assert not partly.complete and partly.missing_from == month_hour(5)
    assert answer_now(month, None, never, month_hour(7)).missing_from == month.start


def test_operator_makes_a_plan_assigns_it_grants_a_credit_and_corrects(account: str, tmp_path: Path) -> None:
    terms = tmp_path / "terms.json"
    terms.write_text(json.dumps(document()))
    assert "house@1" in admin("plan", "--code", "house", "--name", "House", "--terms", str(terms))
    assert json.loads(admin("terms", "--code", "house")) == document()
    assert "house from" in admin("assign", "--account", account, "--code", "house", "--tax", "VAT=19")
    (mine,) = json.loads(admin("plans", "--account", "tests"))
    assert (mine["code"], mine["taxes"]) == ("house", [{"name": "VAT", "percent": "19"}])
    every = {one["code"]: one for one in json.loads(admin("plans"))}
    assert (every["house"]["accounts"], every["house"]["currency"], every["standard"]["accounts"]) == (1, "USD", 0)
    assert AccountPlan.objects.get().taxes == [{"name": "VAT", "rate_ppm": 190_000}]
    given = (
        "--account",
        "tests",
        "--name",
        "Welcome",
        "--currency",
        "USD",
        "--amount-minor",
        "5",
        "--ends",
        "2030-01-01",
    )
    assert admin("credit", *given).strip().endswith("USD 0.05")
    assert BillingCredit.objects.get().ends_at is not None
    settle_month([row(account, sent_units=10_100)])
    issue_invoice(BILLING, account, PERIOD)
    asked = ("correct", "--account", "tests", "--period", PERIOD.name, "--reason", "late")
    assert "nothing to correct" in admin(*asked)
    settle_rows([row(account, 3, sent_units=1_000)], 3, 1)
    assert "debit note, USD 1.19" in admin(*asked)
    assert Invoice.objects.get().total_minor == 1184


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("assign --account absent --code standard", "./penstock accounts list"),
        ("assign --account tests --code absent", "./penstock billing plans"),
        ("assign --account tests --code standard --tax VAT", "like VAT=19"),
        ("assign --account tests --code standard --from tomorrow", "'tomorrow' is not a time like 2026-12-01T06:30"),
        ("credit --account tests --name x --currency XXX --amount-minor 1", "has a currency"),
        ("credit --account tests --name x --currency USD --amount-minor 0", "a positive amount"),
        ("credit --account tests --name x --currency USD --amount-minor 1 --ends 2020-01-01", "still to come"),
        ("correct --account tests --period 2019-10 --reason x", "no invoice of 2019-10"),
        ("correct --account tests --period {period} --reason x", "is a draft.*./penstock report months"),
        ("correct --account tests --period {period} --reason " + "x" * 201, "1 to 200 printable"),
        ("pay --account tests --period {period} --received 3.12.2026 --reference x", "a day is written like"),
        ("pay --account tests --period {period} --received 2026-12-03 --reference x", "is a draft"),
        ("terms --code absent", "./penstock billing plans"),
        ("plan --code X --name x --terms /nonexistent", "No such file"),
        ("plan --code x --name x --terms /dev/null", "/dev/null is no JSON"),
        ("plan --code new --name x --terms {terms} --from 2999-12-01", "leave out --from"),
        ("plan --code standard --name x --terms {terms}", "from which its next version holds"),
    ],
)
def test_operator_is_told_what_is_wrong_and_what_to_do(account: str, tmp_path: Path, line: str, told: str) -> None:
    terms = tmp_path / "terms.json"
    terms.write_text(json.dumps(document()))
    plan(account)
    assert draft_invoice(account, PERIOD) is not None
    with pytest.raises(CommandError, match=told):
        admin(*line.format(terms=terms, period=PERIOD.name).split())


def test_credit_in_a_currency_that_no_plan_has_is_told(account: str) -> None:
    given = ("credit", "--account", "tests", "--name", "x", "--amount-minor", "1", "--currency")
    assert "no invoice uses it" in admin(*given, "EUR") and "no invoice" not in admin(*given, "USD")


def test_report_has_the_invoice_as_a_file(account: str) -> None:
    plan(account)
    settle_month([row(account, sent_units=600)])
    found = report("invoice", "--account", account, "--file", "csv")
    assert b"Sent, in units of 64 KiB" in base64.b64decode(found["file"])
    assert base64.b64decode(report("invoice", "--account", "tests", "--file", "pdf")["file"]).startswith(b"%PDF")
    assert "file" not in report("invoice", "--account", "tests")


def test_assignment_says_which_one_it_does_not_end(account: str) -> None:
    plan(account, code="house")
    assigned = ("assign", "--account", account, "--code")
    assert "follows" not in admin(*assigned, "house", "--from", "8000-12-01T00:00")
    assert "; house follows from 8000-12-01 00:00 UTC" in admin(*assigned, "standard", "--from", "8000-11-01T00:00")


def test_usage_in_parts_has_what_each_costs_settled_or_not(account: str) -> None:
    plan(account)
    orders, mails = make_queue(account, "orders"), make_queue(account, "mails")
    Queue.objects.filter(uuid=orders).update(tags={"team": "shop"})
    settle_rows([row(account, queue_uuid=orders, sent_units=1_100)], 0, 9)
    counters = [100 if meter is UsageMeter.SENT_UNITS else 0 for meter in UsageMeter]
    merge_provisional("one/3", 1, [ProvisionalRow(month_hour(10), account, mails, "one/12", "client", counters)])

    def parts(*arguments: str) -> dict[str, tuple[int, str]]:
        found = report("usage", "--account", "tests", *arguments)["parts"]
        return {one["part"]: (one["quantities"]["sent_units"], one["amount"]) for one in found}

    assert parts("--by", "origin") == {"client": (1_200, "1.10")}
    assert sum(units for units, _ in parts("--by", "tag", "--tag", "team").values()) == 1_200
    assert list(parts("--by", "day")) == [f"{month_hour(0):%Y-%m-%d}"]
    with pytest.raises(CommandError, match="--tag KEY"):
        report("usage", "--account", "tests", "--by", "tag")


def test_requests_by_key_have_the_names_of_the_keys(account: str) -> None:
    key = AccessKey.objects.filter(account_id=account).first()
    assert key is not None
    KeyUsage.objects.create(
        account_id=account, day=month_hour(0), access_key_id=key.access_key_id, requests=5, empty_receives=1
    )
    (found,) = report("usage", "--account", "tests", "--by", "key")["parts"]
    assert (found["part"], found["name"], found["requests"], found["empty_receives"]) == (
        key.access_key_id, key.name, 5, 1,
    )  # fmt: skip


def test_quarantine_of_one_account_has_no_other_ones_records(account: str) -> None:
    settle_rows([row(account, messages_sent=-1), row("999999999999", messages_sent=1)], 0, 9)
    assert {one["reason"] for one in report("quarantine")["records"]} == {"negative_counter", "unknown_account"}
    found = report("quarantine", "--account", "tests")
    assert [one["reason"] for one in found["records"]] == ["negative_counter"]
    assert found["counts"] == [{"reason": "negative_counter", "records": 1}]


# --- usage from a file ---

HEADER = "account_id,hour,queue_uuid,partition_id,origin,messages_sent"


def settle_file(text: str) -> dict[str, Any]:
    out = io.StringIO()
    interval = hours(0, 1)
    times = ("--from", interval.start.isoformat(), "--to", interval.end.isoformat())
    call_command("settle_usage", *times, rows=io.StringIO(text), stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def test_usage_of_a_file_is_settled_once(account: str) -> None:
    text = f"{HEADER}\n{account},{month_hour(0).isoformat()},{QUEUE},3,client,5\n"
    assert settle_file(text)["merged"] == 1 and settle_file(text)["merged"] == 0
    assert report("usage", "--account", "tests")["totals"]["messages_sent"] == 5


def test_hours_of_a_file_may_have_any_offset(account: str) -> None:
    far_east = month_hour(0).astimezone(timezone(timedelta(hours=20))).isoformat()
    assert settle_file(f"{HEADER}\n{account},{far_east},{QUEUE},3,client,5\n")["merged"] == 1
    with pytest.raises(CommandError, match="line 2 is no row"):
        settle_file(f"{HEADER}\n{account},9999-12-31T23:00:00-23:00,{QUEUE},3,client,5\n")


@pytest.mark.parametrize(
    "line",
    [
        "x,y,z,1,client,5",
        "{a},{h},{q},1,client,many",
        "{a},{h},{q}",
        "{a},{h},{q},1,client,5,6",
        "{a},{h},{q},1,client,1_000",
        "{a},{h},{q},1,client, 5 ",
        "{a},2026-10-05T10:00:00,{q},1,client,5",
    ],
)
def test_file_with_a_line_that_is_no_row_settles_nothing(account: str, line: str) -> None:
    good = f"{account},{month_hour(0).isoformat()},{QUEUE},3,client,5"
    bad = line.format(a=account, h=month_hour(0).isoformat(), q=QUEUE)
    with pytest.raises(CommandError, match="line 3 is no row"):
        settle_file(f"{HEADER}\n{good}\n{bad}\n")
    with pytest.raises(CommandError, match="header"):
        settle_file(f"{HEADER},more\n")
    assert HourlyUsage.objects.count() == 0


def test_file_with_a_row_of_an_hour_that_is_not_settled_settles_nothing(account: str) -> None:
    rows = [f"{account},{month_hour(hour).isoformat()},{QUEUE},3,client,5" for hour in (0, 1)]
    with pytest.raises(CommandError, match="which is not from"):
        settle_file("\n".join([HEADER, *rows]))
    assert HourlyUsage.objects.count() == 0
    run = UsageRun.objects.get()
    assert (run.state, "which is not from" in run.note, run.ended_at is None) == (UsageRunState.FAILED, True, False)
    with pytest.raises(CommandError, match="--from and --to are each a time like"):
        call_command("settle_usage", "--from", "yesterday", "--to", "today", rows=io.StringIO(HEADER))


def test_report_of_months_names_those_that_are_open(account: str) -> None:
    settle_month([row(account, sent_units=1)])
    out = io.StringIO()
    call_command("billing_report", "months", stdout=out)
    answer = json.loads(out.getvalue())
    found = {one["period"]: one for one in answer["months"]}
    assert (found[PERIOD.name]["to_issue"], found[PERIOD.name]["failing"]) == (1, 0)
    assert found[PERIOD.name]["reasons"] == ["1 to be issued by the next rounds"]
    assert {period: one["overdue"] for period, one in found.items() if one["overdue"]} == {PERIOD.name: True}
    assert answer["settled_up_to"] is not None and answer["differences"] == []
    assert (answer["failed"], answer["last_round"], answer["not_settled"]) == ([], None, "")


def test_report_of_months_has_why_invoices_failed_and_usage_was_not_settled(account: str) -> None:
    note_failure(Work.INVOICES, FailureSubject("x", account, PERIOD.start), "the moon is full")
    note_failure(Work.MAILS, FailureSubject("y", account), "no mail server")
    note_round(Work.USAGE, 5, 0, "Java is missing")
    out = io.StringIO()
    call_command("billing_report", "months", stdout=out)
    answer = json.loads(out.getvalue())
    (one,) = answer["failed"]
    assert (one["account_id"], one["period"], one["error"]) == (account, PERIOD.name, "the moon is full")
    assert answer["not_settled"] == "Java is missing" and answer["last_round"]


def test_report_of_months_names_invoices_that_later_usage_disagrees_with(account: str) -> None:
    plan(account)
    settle_month([row(account, sent_units=2_100)])
    invoice = issue_invoice(BILLING, account, PERIOD)
    settle_rows([row(account, 5, sent_units=500)], 5, 1)
    assert look_at_late_usage(account, PERIOD) is not None and invoice is not None
    out = io.StringIO()
    call_command("billing_report", "months", stdout=out)
    (one,) = json.loads(out.getvalue())["differences"]
    assert (one["invoice"], one["account_id"], one["period"]) == (invoice.number, account, PERIOD.name)
    assert (one["charges_minor"], one["total_minor"], one["total"]) == (50, 50, "0.50")
