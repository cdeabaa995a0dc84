"""Notes that correct invoices: documents of their own, and marked in lists. Texts of the PDFs of both."""

from __future__ import annotations

import base64
import csv
import io
import json
import uuid
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from api.audit.actions import OPERATOR
from api.billing.actions.invoices import BILLING, correct_invoice, issue_invoice
from api.billing.actions.payments import record_payment
from api.billing.actions.plans import grant_credit
from api.billing.documents.content import invoice_content
from api.billing.documents.invoice_pdf import invoice_pdf
from api.billing.models import CreditNote, Invoice
from api.billing.selectors import notes_of
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import NOW, PERIOD, make_queue, row, settle_month, settle_rows
from tests.support.control_plane import Caller, new_caller
from tests.support.pdf_text import pdf_pages

pytestmark = pytest.mark.django_db
NARROW = "\u202f"


@pytest.fixture
def invoice(account: str) -> Invoice:
    """12,340.00 of usage, 5.00 of fees, 3.00 of credits, 19 % on the rest."""
    plan(account, taxes=[{"name": "VAT", "rate_ppm": 190_000}], base_fee_minor=500)
    grant_credit(OPERATOR, account, "Welcome", "USD", 300, None)
    orders = make_queue(account, "orders", team="shop")
    settle_month([row(account, queue_uuid=orders, sent_units=12_340_100), row(account, 5, sent_units=0)])
    made = issue_invoice(BILLING, account, PERIOD)
    assert made is not None
    return made


def correct(invoice: Invoice, units: int, reason: str = "late records") -> CreditNote:
    """The hour 5 had nothing when the invoice was issued."""
    settle_rows([row(invoice.account_id, 5, sent_units=units)], 5, 1)
    note = correct_invoice(OPERATOR, invoice.account_id, invoice.pk, reason)
    assert note is not None
    return note


@pytest.fixture
def debit(invoice: Invoice) -> CreditNote:
    return correct(invoice, 2_000)


@pytest.fixture
def credit(invoice: Invoice, debit: CreditNote) -> CreditNote:
    return correct(invoice, 500, "counted twice")


def report(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("billing_report", *arguments, stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def texts(document: bytes) -> list[str]:
    return "\n".join(pdf_pages(document)).split("\n")


def test_note_has_json_csv_and_pdf_that_name_the_invoice(
    caller: Caller, invoice: Invoice, debit: CreditNote, credit: CreditNote
) -> None:
    for note, title, file in ((debit, "Debit note", "debit-note"), (credit, "Credit note", "credit-note")):
        path = f"/v1/billing/notes/{note.pk}"
        shown = caller.request("GET", path).json()
        assert (shown["document"], shown["number"]) == (f"{note.kind}_note", note.number)
        assert (shown["invoice_number"], shown["invoice_id"]) == (invoice.number, str(invoice.pk))
        assert sum(line["amount_minor"] for line in shown["lines"]) == shown["total_minor"] == note.total_minor
        answer = caller.request("GET", f"{path}.csv")
        assert f'"{file}-{note.number}.csv"' in answer["Content-Disposition"]
        rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
        assert {(one["note"], one["kind"], one["corrects_invoice"]) for one in rows} == {
            (note.number, note.kind, invoice.number)
        }
        lines = [int(one["amount_minor"]) for one in rows if one["row"] == "line"]
        (total,) = (int(one["amount_minor"]) for one in rows if one["row"] == "total")
        assert sum(lines) == total == note.owed_minor
        document = caller.request("GET", f"{path}.pdf")
        assert f'"{file}-{note.number}.pdf"' in document["Content-Disposition"]
        found = texts(document.content)
        assert {title, note.number, invoice.number, note.reason, "Sent, in units of 64 KiB"} <= set(found)
        assert caller.request("GET", f"{path}.pdf").content == document.content, "the same each time"
    # 2,000 units of 0.1 cents were late, and then 1,500 of them were too many; 19 % on both.
    assert (debit.owed_minor, credit.owed_minor) == (238, -178)
    assert [one["quantity"] for one in caller.request("GET", f"/v1/billing/notes/{debit.pk}").json()["differences"]]


def test_pdf_of_a_note_has_its_lines_and_its_total(caller: Caller, credit: CreditNote) -> None:
    found = texts(caller.request("GET", f"/v1/billing/notes/{credit.pk}.pdf").content)
    at = found.index("Usage and fees")
    assert found[at : at + 2] == ["Usage and fees", "1.50"] and found[at + 2 : at + 4] == ["Tax", "0.28"]
    assert found[found.index("Credited, USD") + 1] == "1.78"


def test_credit_that_is_granted_again_is_no_part_of_what_a_note_gives_back(account: str, caller: Caller) -> None:
    plan(account)
    grant_credit(OPERATOR, account, "Welcome", "USD", 300, None)
    settle_month([row(account, sent_units=100 + 4_000)])
    invoice = issue_invoice(BILLING, account, PERIOD)
    assert invoice is not None and invoice.total_minor == 100
    settle_rows([row(account, sent_units=100 + 1_000)])
    note = correct_invoice(OPERATOR, account, invoice.pk, "counted twice")
    assert note is not None
    shown = caller.request("GET", f"/v1/billing/notes/{note.pk}").json()
    assert [(line["kind"], line["amount_minor"]) for line in shown["lines"]] == [("charges", 300), ("credit", -200)]
    assert (shown["total_minor"], shown["owed_minor"]) == (100, -100)


def test_lists_tell_notes_from_invoices(
    caller: Caller, invoice: Invoice, debit: CreditNote, credit: CreditNote
) -> None:
    (listed,) = caller.request("GET", "/v1/billing/invoices").json()["invoices"]
    assert listed["document"] == "invoice"
    told = [(one["document"], one["id"], one["number"], one["owed_minor"]) for one in listed["notes"]]
    assert told == [
        ("debit_note", str(debit.pk), debit.number, 238), ("credit_note", str(credit.pk), credit.number, -178),
    ]  # fmt: skip
    rows = report("invoices", "--account", invoice.account_id)["documents"]
    assert [(one["document"], one["number"], one["corrects"], one["total"]) for one in rows] == [
        ("invoice", invoice.number, None, f"{invoice.total_minor // 100}.{invoice.total_minor % 100:02}"),
        ("debit_note", debit.number, invoice.number, "2.38"),
        ("credit_note", credit.number, invoice.number, "-1.78"),
    ]


def test_report_has_a_note_as_a_document(invoice: Invoice, credit: CreditNote) -> None:
    asked = ("invoice", "--account", invoice.account_id, "--period", PERIOD.name, "--note")
    found = report(*asked, credit.number, "--file", "pdf")
    assert found["note"]["number"] == credit.number
    assert "Credit note" in texts(base64.b64decode(found["file"]))
    with pytest.raises(CommandError, match=f"has no note PN-1; its notes: .*{credit.number}"):
        report(*asked, "PN-1")


@pytest.mark.parametrize("ending", ["", ".csv", ".pdf"])
def test_note_of_another_account_is_not_found(caller: Caller, credit: CreditNote, ending: str) -> None:
    other = new_caller("another")
    for note in (credit.pk, uuid.uuid4()):
        assert other.request("GET", f"/v1/billing/notes/{note}{ending}").status_code == 404


# --- the PDF of an invoice ---


def test_pdf_of_an_invoice_has_each_line_with_its_amount_and_what_the_total_is_made_of(
    caller: Caller, invoice: Invoice
) -> None:
    found = texts(caller.request("GET", f"/v1/billing/invoices/{invoice.pk}.pdf").content)
    content = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}").json()
    assert {"Invoice", invoice.number, "Price, USD", "Amount, USD", "orders"} <= set(found)
    for line in content["lines"]:
        assert any(text.startswith(line["text"]) for text in found), line["text"]
        assert written(line["amount"]) in found, line
    assert f"12{NARROW}340{NARROW}000 " in found and f"1{NARROW}000.00 per million" in found
    at = found.index("Usage and fees")
    assert found[at : at + 8] == [
        "Usage and fees", f"12{NARROW}345.00", "Credits", "−3.00", "Tax", f"2{NARROW}344.98",
        "Total, USD", written(content["total"]),
    ]  # fmt: skip


def written(amount: str) -> str:
    """As a page has it: a true minus, narrow spaces between thousands."""
    whole, _, fraction = amount.removeprefix("-").partition(".")
    return ("−" if amount.startswith("-") else "") + f"{int(whole):,}.{fraction}".replace(",", NARROW)


def test_pdf_of_an_invoice_has_notes_and_payments_with_their_signs(invoice: Invoice, credit: CreditNote) -> None:
    record_payment(OPERATOR, invoice.account_id, invoice.pk, 500_000, NOW.start.date(), "Transfer 1")
    record_payment(OPERATOR, invoice.account_id, invoice.pk, -1_000, NOW.start.date(), "Back")
    content = invoice_content(invoice, notes_of(invoice.account_id, invoice.pk))
    found = texts(invoice_pdf(content))
    assert found[found.index("credit note") + 2] == "−1.78" and found[found.index("debit note") + 2] == "2.38"
    day = f"{NOW.start:%Y-%m-%d}"
    assert found[found.index(f"Paid on {day}") + 1] == f"−5{NARROW}000.00"
    assert found[found.index(f"Paid back on {day}") + 1] == "10.00"
    assert found[found.index("Due, USD") + 1] == written(content["due"])


def test_pdf_of_many_lines_has_a_head_on_each_page_and_cuts_no_text(invoice: Invoice) -> None:
    content = invoice_content(invoice, [])
    usage = next(line for line in content["lines"] if line["price_nanos"] and line["meter"])
    long = {**usage, "text": "Delivered, in units of 64 KiB, tier 20", "plan": "a-plan-with-a-very-long-code@12"}
    lines = [{**long, "amount": f"{number + 1000:,}000.25".replace(",", "")} for number in range(90)]
    pages = pdf_pages(invoice_pdf({**content, "lines": lines}))
    assert len(pages) >= 3
    for page in pages[:2]:
        assert page.count("Amount, USD") == 1 and "Page" in page
    everything = "\n".join(pages)
    for line in lines:
        assert written(line["amount"]) in everything
    assert everything.count("Delivered, in units of 64 KiB, tier 20") == 90
    assert everything.replace("\n", "").count("a-plan-with-a-very-long-code@12") == 90
