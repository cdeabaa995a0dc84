"""Billing over REST: usage, invoices and their documents, budgets, plans; each account sees its own."""

from __future__ import annotations

import csv
import io
import json
import struct
import uuid
import weakref
import zlib
from typing import Any

import pytest

from api.audit.actions import OPERATOR
from api.billing.actions.budgets import judge_budgets
from api.billing.actions.invoices import BILLING, correct_invoice, draft_invoice, issue_invoice
from api.billing.actions.plans import grant_credit
from api.billing.documents import content as documents
from api.billing.documents.invoice_pdf import invoice_pages, invoice_pdf, page_content, queue_sums
from api.billing.models import Invoice, InvoiceQueueLine
from api.billing.settling import OF_FRONT_ENDS
from api.people.models import AccountLife
from api.spreadsheets import plain
from tests.api.billing.test_budgets import spend
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import (
    MONTH_HOURS,
    NOW,
    PERIOD,
    QUEUE,
    make_queue,
    month_hour,
    row,
    settle_month,
    settle_rows,
)
from tests.support.control_plane import Caller, new_caller

pytestmark = pytest.mark.django_db
USAGE = f"/v1/billing/usage?period={PERIOD.name}"


@pytest.fixture
def invoice(account: str) -> Invoice:
    """Two queues of two teams, and one that is gone."""
    plan(account, taxes=[{"name": "VAT", "rate_ppm": 190_000}], base_fee_minor=500)
    grant_credit(OPERATOR, account, "Welcome", "USD", 300, None)
    orders, letters = make_queue(account, "orders", team="shop"), make_queue(account, "letters", team="post")
    units = {orders: 7_100, letters: 2_000, QUEUE: 1_000}
    rows = [row(account, queue_uuid=queue, sent_units=count) for queue, count in units.items()]
    settle_month(rows)
    made = issue_invoice(BILLING, account, PERIOD)
    assert made is not None
    return made


def refused(answer: Any) -> tuple[int, str]:
    assert answer["Content-Type"] == "application/problem+json", answer.content
    return answer.status_code, answer.json()["code"]


# --- usage ---


def test_usage_is_shown_per_queue_and_origin_with_how_far_it_is_settled(caller: Caller, account: str) -> None:
    orders = make_queue(account, "orders")
    settle_rows(
        [
            row(account, 0, queue_uuid=orders, messages_sent=3),
            row(account, 1, queue_uuid=orders, messages_sent=4),
            row(account, 1, queue_uuid=orders, origin="cron", messages_sent=1),
            row(account, 1, queue_uuid=orders, partition_id=OF_FRONT_ENDS, requests=9, empty_receives=2),
            row(account, 1, messages_sent=-1),
            row(account, -1, queue_uuid=orders, messages_sent=50),
        ],
        0,
        2,
    )
    shown = caller.request("GET", USAGE).json()
    assert shown["settled_up_to"] == month_hour(2).isoformat().replace("+00:00", "Z")
    usage = [(one["queue"], one["origin"], one["quantities"]) for one in shown["usage"]]
    assert [one[:2] for one in usage] == [("orders", "client"), ("orders", "cron")]
    assert [usage[0][2][name] for name in ("messages_sent", "requests", "empty_receives")] == [7, 9, 2]
    assert shown["quarantined"] == [{"reason": "negative_counter", "records": 1}]
    assert caller.request("GET", "/v1/billing/usage").json()["usage"] == []


def test_usage_comes_in_pages_of_queues(caller: Caller, account: str) -> None:
    settle_rows([row(account, queue_uuid=uuid.UUID(int=number), origin=origin, messages_sent=1)
                 for number in range(1, 6) for origin in ("client", "desk")])  # fmt: skip
    seen, target = [], f"{USAGE}&page_size=2"
    while target:
        page = caller.request("GET", target).json()
        seen.append([one["queue_uuid"] for one in page["usage"]])
        target = page["next_page_token"] and f"{USAGE}&page_size=2&page_token={page['next_page_token']}"
    assert [len(page) for page in seen] == [4, 4, 2] and len({one for page in seen for one in page}) == 5


# Zeros in front: the number behind them is the one that counts.
LONG_SIZES = [f"page_size={'1'.rjust(9, '0')}{'9' * digits}" for digits in (1, 9, 25, 4_000)]


@pytest.mark.parametrize(
    "query",
    ["period=2026-13", "period=x", "period=%00", "page_token=AAAA", "page_size=0", "page_size=0001001", *LONG_SIZES],
)
def test_usage_that_is_asked_for_wrongly_is_a_problem(caller: Caller, query: str) -> None:
    assert refused(caller.request("GET", f"/v1/billing/usage?{query}")) == (400, "invalid-request")


# --- invoices ---


def test_invoices_are_listed_by_month_in_pages(caller: Caller, account: str) -> None:
    plan(account)
    settle_month([row(account, sent_units=1)])
    draft_invoice(account, NOW)
    issue_invoice(BILLING, account, PERIOD)
    first = caller.request("GET", "/v1/billing/invoices?page_size=1").json()
    second = caller.request("GET", f"/v1/billing/invoices?page_size=1&page_token={first['next_page_token']}").json()
    listed = [(one["period"], one["state"]) for one in first["invoices"] + second["invoices"]]
    assert listed == [(NOW.name, "draft"), (PERIOD.name, "issued")] and second["next_page_token"] is None
    assert refused(caller.request("GET", "/v1/billing/invoices?page_token=AAAA"))[0] == 400


def test_invoice_sums_line_by_line_queue_by_queue_and_tag_by_tag(caller: Caller, invoice: Invoice) -> None:
    shown = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}?tag=team").json()
    assert (shown["charges_minor"], shown["credits_minor"], shown["tax_minor"]) == (1500, 300, 228)
    assert sum(line["amount_minor"] for line in shown["lines"]) == shown["total_minor"] == 1428
    texts = [line["text"] for line in shown["lines"]]
    assert texts == [
        "Sent, in units of 64 KiB, free", "Sent, in units of 64 KiB", "Base fee", "Credit: Welcome", "VAT (19 %)",
    ]  # fmt: skip
    assert shown["lines"][1]["price_text"] == "1000.00 per million"
    assert sum(one["amount_nanos"] for one in shown["queues"]) == 10 * 10**9
    assert sorted(one["queue"] for one in shown["queues"]) == ["", "letters", "orders"]
    assert {one["value"]: one["amount"] for one in shown["tags"]} == {
        "": "0.99009901", "post": "1.98019802", "shop": "7.02970297",
    }  # fmt: skip
    assert "tags" not in caller.request("GET", f"/v1/billing/invoices/{invoice.pk}").json()


def test_tags_of_an_invoice_are_those_of_its_day(caller: Caller, invoice: Invoice) -> None:
    from api.queues.models import Queue

    Queue.objects.filter(name="orders").update(tags={"team": "elsewhere"})
    shown = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}?tag=team").json()
    assert [one["value"] for one in shown["tags"]] == ["", "post", "shop"]


def test_correction_is_shown_beside_the_invoice(caller: Caller, account: str, invoice: Invoice) -> None:
    settle_rows([row(account, 5, sent_units=1_000)], 5, 1)
    correct_invoice(OPERATOR, account, invoice.pk, "late records")
    note = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}").json()["notes"][0]
    assert (note["kind"], note["total"], note["reason"]) == ("debit", "1.19", "late records")


def test_csv_has_every_line_and_every_queue(caller: Caller, invoice: Invoice) -> None:
    answer = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}.csv")
    assert answer["Content-Type"].startswith("text/csv")
    assert f'"invoice-{invoice.number}.csv"' in answer["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    lines = [one for one in rows if one["row"] == "line"]
    assert sum(int(one["amount_minor"]) for one in lines) == invoice.total_minor
    shares = [one for one in rows if one["row"] == "queue"]
    assert sum(int(one["amount_nanos"]) for one in shares) == 10 * 10**9
    assert {json.loads(one["tags"]).get("team") for one in shares} == {None, "post", "shop"}
    assert {one["account"] for one in rows} == {invoice.account_id}
    (total,), (due,) = ([one for one in rows if one["row"] == name] for name in ("total", "due"))
    assert int(total["amount_minor"]) == int(due["amount_minor"]) == invoice.total_minor


@pytest.mark.parametrize(
    ("text", "written"),
    [("=1+1", "'=1+1"), ("@x", "'@x"), ("orders", "orders"), ("-3", "'-3"), ("\n=1", "'\n=1"), ("\uff1d1", "'\uff1d1")],
)
def test_name_in_a_csv_is_no_formula(text: str, written: str) -> None:
    assert plain(text) == written


def test_pdf_is_a_pdf_and_the_same_each_time(caller: Caller, invoice: Invoice) -> None:
    first = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}.pdf")
    assert (first.status_code, first["Content-Type"], first.content[:5]) == (200, "application/pdf", b"%PDF-")
    assert caller.request("GET", f"/v1/billing/invoices/{invoice.pk}.pdf").content == first.content


HOSTILE = ['#panic("x")', "*bold* _it_ $x$", '"); #read("/etc/passwd")', "Größe 價格 <b>", "\\u{41}", "`raw", "/* x"]


@pytest.mark.parametrize("name", HOSTILE)
def test_name_in_a_pdf_is_no_markup(caller: Caller, invoice: Invoice, name: str) -> None:
    content = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}").json()
    content["account_title"] = content["queues"][0]["queue"] = content["lines"][2]["text"] = name
    assert invoice_pdf(content)[:5] == b"%PDF-"
    plain_content = {**content, "account_title": "Plain"}
    assert invoice_pages(content, 40) != invoice_pages(plain_content, 40), "the name is on the page"


def test_invoice_is_of_the_account_as_people_call_it(caller: Caller, account: str) -> None:
    """The name of an account that people opened is a random one. What it was called when it was issued stays."""
    plan(account)
    life = AccountLife.objects.create(account_id=account, title="Ann & Sons", state_since=NOW.start)
    settle_month([row(account, sent_units=1_100)])
    made = issue_invoice(BILLING, account, PERIOD)
    assert made is not None
    life.title = "Another"
    life.save()
    content = caller.request("GET", f"/v1/billing/invoices/{made.pk}").json()
    assert (content["account_title"], content["account_name"]) == ("Ann & Sons", made.account.name)


def test_long_name_covers_nothing_beside_it(caller: Caller, invoice: Invoice) -> None:
    """The right half of the first page's head has the number and the day of issue."""
    content = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}").json()

    def right_half(title: str) -> list[bytes]:
        lines = png_lines(invoice_pages({**content, "account_title": title}, 50)[0])
        return [line[len(line) * 52 // 100 :] for line in lines]

    assert right_half("A") == right_half("X" * 100)


def png_lines(page: bytes) -> list[bytes]:
    """The upper fifth, of eight bits a channel, four channels."""
    width, height, data, at = 0, 0, b"", 8
    while at < len(page):
        length, kind = struct.unpack(">I4s", page[at : at + 8])
        body = page[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    size, lines, raw = width * 4, [bytes(width * 4)], zlib.decompress(data)
    for begin in range(0, height // 5 * (size + 1), size + 1):
        lines.append(_unfiltered(raw[begin], raw[begin + 1 : begin + 1 + size], lines[-1]))
    return lines[1:]


def _unfiltered(kind: int, line: bytes, above: bytes) -> bytes:
    found = bytearray(line)
    for at in range(len(found)):
        left = found[at - 4] if at >= 4 else 0
        corner = above[at - 4] if at >= 4 else 0
        up, guess = above[at], left + above[at] - corner
        nearest = min((left, up, corner), key=lambda one: abs(guess - one))
        found[at] = (found[at] + (0, left, up, (left + up) // 2, nearest)[kind]) & 0xFF
    return bytes(found)


def test_pdf_of_many_queues_is_cut_and_says_so() -> None:
    lines = [{"queue": f"q{number:03}", "queue_uuid": "", "amount_nanos": 10**7 // 4} for number in range(400)]
    sums = queue_sums(lines, "USD")
    assert (len(sums["shown"]), sums["others"], sums["others_amount"]) == (200, 200, "0.00")
    assert sum(float(one["amount"]) for one in sums["shown"]) == pytest.approx(1.0)


def test_page_is_given_the_sums_of_queues_and_not_their_lines(caller: Caller, invoice: Invoice) -> None:
    """An account with 200,000 queues has half a million lines."""
    content = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}").json()
    given = page_content(content)
    assert content["queues"] and "queues" not in given and given["queue_sums"]["shown"]


def test_documents_hold_a_few_lines_of_queues_at_a_time(
    caller: Caller, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 200,000 queues all of them, as JSON has them, take two gigabytes of the process that all accounts share."""
    monkeypatch.setattr(documents, "LINES_AT_ONCE", 1)
    held, most = weakref.WeakSet[InvoiceQueueLine](), 0
    real = documents._queue_line

    def line(row: InvoiceQueueLine) -> dict[str, Any]:
        nonlocal most
        held.add(row)
        most = max(most, len(held))
        return real(row)

    monkeypatch.setattr(documents, "_queue_line", line)
    for ending in ("csv", "pdf"):
        assert caller.request("GET", f"/v1/billing/invoices/{invoice.pk}.{ending}").status_code == 200
    assert 0 < most <= 2 < invoice.queue_lines.count()


@pytest.mark.parametrize("ending", ["", ".csv", ".pdf"])
def test_invoice_of_another_account_is_not_found(caller: Caller, invoice: Invoice, ending: str) -> None:
    other = new_caller("another")
    path = f"/v1/billing/invoices/{invoice.pk}{ending}"
    assert refused(other.request("GET", path)) == (404, "not-found")
    assert refused(other.request("GET", f"/v1/billing/invoices/{uuid.uuid4()}{ending}")) == (404, "not-found")
    assert other.request("GET", "/v1/billing/invoices").json()["invoices"] == []
    assert other.request("GET", USAGE).json()["usage"] == []


# --- budgets ---

BUDGET = {"limit_minor": 1000, "alert_percents": [100, 50], "effect": "stop", "mail_to": ["a@example.com"]}


def test_budget_is_made_replaced_listed_and_deleted(caller: Caller, account: str) -> None:
    plan(account)
    assert caller.request("PUT", "/v1/billing/budgets/cap", {**BUDGET, "queue": ""}).status_code == 201
    made = caller.request("PUT", "/v1/billing/budgets/cap", {**BUDGET, "limit_minor": 900})
    assert (made.status_code, made.json()["alert_percents"]) == (200, [50, 100])
    spend(account, 900)
    judge_budgets(account)
    listed = caller.request("GET", "/v1/billing/budgets").json()
    assert listed["sending_stopped"] is True and [one["limit_minor"] for one in listed["budgets"]] == [900]
    events = caller.request("GET", "/v1/billing/budget-events").json()["events"]
    assert [(one["kind"], one["percent"], one["budget"]) for one in events] == [
        ("stop", 100, "cap"), ("alert", 100, "cap"), ("alert", 50, "cap"),
    ]  # fmt: skip
    assert caller.request("DELETE", "/v1/billing/budgets/cap").status_code == 204
    assert refused(caller.request("DELETE", "/v1/billing/budgets/cap")) == (404, "not-found")
    assert caller.request("GET", "/v1/billing/budgets").json() == {
        "sending_stopped": False, "in_force": [], "lifted": None, "budgets": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"limit_minor": -1}, {"limit_minor": "x"}, {"more": 1}, {"alert_percents": [0]}, {"mail_to": [1]}, {"queue": 5},
     {"mail_to": ["nobody"]}, {"limit_minor": 10**13}, {"alert_percents": list(range(1, 13))}],
)  # fmt: skip
def test_budget_that_is_asked_for_wrongly_is_a_problem(caller: Caller, change: dict[str, Any]) -> None:
    answer = caller.request("PUT", "/v1/billing/budgets/cap", {**BUDGET, **change})
    assert refused(answer) == (400, "invalid-request")
    assert caller.request("GET", "/v1/billing/budgets").json()["budgets"] == []


def test_budget_of_a_queue_that_is_not_there_is_not_found(caller: Caller) -> None:
    payload = {**BUDGET, "effect": "alert", "queue": "absent"}
    answer = caller.request("PUT", "/v1/billing/budgets/cap", payload)
    assert refused(answer) == (404, "not-found") and "There is no queue 'absent'" in answer.json()["detail"]


# --- plans and credits ---


def test_plans_and_credits_are_shown_to_their_account(caller: Caller, account: str) -> None:
    plan(account, since=month_hour(MONTH_HOURS // 2))
    grant_credit(OPERATOR, account, "Welcome", "USD", 300, None)
    plans = caller.request("GET", "/v1/billing/plans").json()["plans"]
    assert [one["plan"] for one in plans] == ["standard", "test"]
    assert plans[1]["versions"][0]["terms"]["prices"]["sent_units"]["free"] == 100
    credits = caller.request("GET", "/v1/billing/credits").json()["credits"]
    assert [(one["name"], one["amount_minor"], one["left_minor"]) for one in credits] == [("Welcome", 300, 300)]
    other = new_caller("another")
    assert [one["plan"] for one in other.request("GET", "/v1/billing/plans").json()["plans"]] == ["standard"]
    assert other.request("GET", "/v1/billing/credits").json() == {"credits": []}
