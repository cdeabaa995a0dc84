"""Who sells and who buys: named by operators, on every document that is made from then on, and on none before."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError
from django.db import IntegrityError, transaction

from api import clock
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.billing.actions.invoices import BILLING, correct_invoice, draft_invoice, issue_invoice
from api.billing.actions.parties import Party, name_buyer, name_seller, remove_party
from api.billing.documents.content import invoice_content
from api.billing.documents.invoice_pdf import invoice_pdf, note_pdf
from api.billing.documents.note_content import note_document
from api.billing.errors import BillingError
from api.billing.limits import PARTY_LINE_CHARACTERS_MAX, PARTY_LINES_MAX, PAYMENT_DAYS_MAX
from api.billing.models import BillingParty, Invoice
from tests.api.billing.test_commands import admin
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import PERIOD, row, settle_month, settle_rows
from tests.support.control_plane import Caller, new_caller
from tests.support.pdf_text import pdf_pages

pytestmark = pytest.mark.django_db
SELLER = Party("Queues Ltd", ["Main Street 1", "1010 Vienna"], "VAT ATU12345678", ["IBAN AT00 1234"], 14)
BUYER = Party("Ann & Sons", ["Harbour 7"], "VAT DE111")
WRITTEN_SELLER = {
    "name": "Queues Ltd", "address": ["Main Street 1", "1010 Vienna"], "tax_id": "VAT ATU12345678",
    "payment": ["IBAN AT00 1234"], "payment_days": 14,
}  # fmt: skip
WRITTEN_BUYER = {"name": "Ann & Sons", "address": ["Harbour 7"], "tax_id": "VAT DE111"}


def issued(account: str) -> Invoice:
    plan(account)
    settle_month([row(account, 5, sent_units=20_100)])
    made = issue_invoice(BILLING, account, PERIOD)
    assert made is not None
    return made


def text_of(pdf: bytes) -> str:
    return "\n".join(pdf_pages(pdf))


def test_invoice_and_note_name_both_as_they_were_when_each_was_made(caller: Caller, account: str) -> None:
    name_seller(OPERATOR, SELLER)
    name_buyer(OPERATOR, account, BUYER)
    invoice = issued(account)
    name_seller(OPERATOR, Party("Another GmbH"))
    assert remove_party(OPERATOR, account)
    settle_rows([row(account, 5, sent_units=1_000)], 5, 1)
    note = correct_invoice(OPERATOR, account, invoice.pk, "late records")
    assert note is not None and invoice.issued_at is not None
    content = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}").json()
    assert (content["seller"], content["buyer"]) == (WRITTEN_SELLER, WRITTEN_BUYER)
    assert content["pay_by"] == (invoice.issued_at.date() + timedelta(days=14)).isoformat()
    of_note = caller.request("GET", f"/v1/billing/notes/{note.pk}").json()
    assert (of_note["seller"], of_note["buyer"]) == ({"name": "Another GmbH"}, None)


def test_pdfs_have_their_lines(account: str) -> None:
    name_seller(OPERATOR, SELLER)
    name_buyer(OPERATOR, account, BUYER)
    invoice = issued(account)
    told = text_of(invoice_pdf(invoice_content(invoice, ())))
    assert invoice.pay_by is not None
    lines = [*SELLER.address, *SELLER.payment, SELLER.name, SELLER.tax_id, *BUYER.address, BUYER.name, BUYER.tax_id]
    assert [line for line in [*lines, invoice.pay_by.isoformat()] if line not in told] == []
    settle_rows([row(account, 5, sent_units=1_000)], 5, 1)
    note = correct_invoice(OPERATOR, account, invoice.pk, "late records")
    assert note is not None
    told = text_of(note_pdf(note_document(note)))
    assert [line for line in (*SELLER.address, SELLER.tax_id, BUYER.name) if line not in told] == []


def test_documents_are_as_before_where_nobody_is_named(caller: Caller, account: str) -> None:
    invoice = issued(account)
    content = caller.request("GET", f"/v1/billing/invoices/{invoice.pk}").json()
    assert (content["seller"], content["buyer"], content["pay_by"]) == (None, None, None)
    told = text_of(invoice_pdf(invoice_content(invoice, ())))
    assert "Penstock" in told and "Pay by" not in told


def test_text_of_a_party_is_no_markup(account: str) -> None:
    name_seller(OPERATOR, Party('#panic("x")', ["*bold* _it_ $x$"], "`raw", ['"); #read("/etc/passwd")']))
    told = text_of(invoice_pdf(invoice_content(issued(account), ())))
    assert "*bold* _it_ $x$" in told


def test_draft_names_the_seller_of_now_and_no_day(account: str) -> None:
    plan(account)
    settle_rows([row(account, 5, sent_units=20_100)], 0, 9)
    for party in (Party("First", payment_days=3), Party("Second", payment_days=3)):
        name_seller(OPERATOR, party)
        draft = draft_invoice(account, PERIOD)
        assert draft is not None and draft.seller["name"] == party.name and draft.pay_by is None


def test_buyer_is_of_its_account_alone(account: str) -> None:
    name_buyer(OPERATOR, new_caller("others").account_id, BUYER)
    assert issued(account).buyer == {}


def test_there_is_one_seller_and_one_buyer_of_an_account(account: str) -> None:
    name_seller(OPERATOR, SELLER)
    name_buyer(OPERATOR, account, BUYER)
    for account_id in (None, account):
        with pytest.raises(IntegrityError), transaction.atomic():
            BillingParty.objects.create(account_id=account_id, name="twice", updated_at=clock.now())


@pytest.mark.parametrize(
    "party",
    [
        Party(""),
        Party("x" * (PARTY_LINE_CHARACTERS_MAX + 1)),
        Party("two\nlines"),
        Party("n", ["line"] * (PARTY_LINES_MAX + 1)),
        Party("n", [""]),
        Party("n", ["a\0b"]),
        Party("n", payment=["x" * (PARTY_LINE_CHARACTERS_MAX + 1)]),
        Party("n", tax_id="\u202e"),
        Party("n", payment_days=-1),
        Party("n", payment_days=PAYMENT_DAYS_MAX + 1),
    ],
)
def test_party_that_no_document_can_name_is_refused(party: Party) -> None:
    with pytest.raises(BillingError) as told:
        name_seller(OPERATOR, party)
    assert told.value.code == "invalid-request" and not BillingParty.objects.exists()


def test_buyer_does_not_say_how_to_pay(account: str) -> None:
    for party in (Party("n", payment=["IBAN"]), Party("n", payment_days=3)):
        with pytest.raises(BillingError, match="seller"):
            name_buyer(OPERATOR, account, party)


def test_commands_show_name_and_remove(account: str) -> None:
    assert json.loads(admin("seller")) == {}
    lines = ["--address=Main Street 1", "--address=1010 Vienna", "--payment=IBAN AT00 1234"]
    said = admin("seller", "--name=Queues Ltd", *lines, "--tax-id=VAT ATU12345678", "--payment-days=14")
    assert json.loads(said) == json.loads(admin("seller")) == WRITTEN_SELLER
    named = ("buyer", "--account=tests")
    assert json.loads(admin(*named, "--name=Ann & Sons", "--address=Harbour 7", "--tax-id=VAT DE111")) == WRITTEN_BUYER
    assert json.loads(admin(*named)) == WRITTEN_BUYER
    assert json.loads(admin(*named, "--remove")) == {} == json.loads(admin(*named))
    with pytest.raises(CommandError, match="has a name"):
        admin("seller", "--tax-id=T")
    assert json.loads(admin("seller")) == WRITTEN_SELLER
    trail = AuditEntry.objects.filter(action__startswith="billing_party").order_by("pk")
    assert [(one.action, one.subject) for one in trail] == [
        ("billing_party.put", "party:seller"),
        ("billing_party.put", f"party:{account}"),
        ("billing_party.remove", f"party:{account}"),
    ]


def test_customer_gives_its_own_address_over_rest(caller: Caller, account: str) -> None:
    path, content = "/v1/billing/buyer", {"name": "Ann & Sons", "address": ["Harbour 7"], "tax_id": "VAT DE111"}
    assert caller.request("GET", path).status_code == 404
    made = caller.request("PUT", path, content)
    assert made.status_code == 201 and {**content, "updated_at": made.json()["updated_at"]} == made.json()
    assert caller.request("GET", path).json() == made.json()
    assert new_caller("others").request("GET", path).status_code == 404
    assert issued(account).buyer == WRITTEN_BUYER
    changed = caller.request("PUT", path, {"name": "Ann"})
    assert changed.status_code == 200 and (changed.json()["address"], changed.json()["tax_id"]) == ([], "")
    assert caller.request("DELETE", path).status_code == 204
    assert caller.request("DELETE", path).status_code == 404 == caller.request("GET", path).status_code


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"name": ""},
        {"name": 7},
        {"name": "n", "address": "Harbour 7"},
        {"name": "n", "address": [7]},
        {"name": "n", "address": ["x"] * (PARTY_LINES_MAX + 1)},
        {"name": "n", "address": [""]},
        {"name": "x" * (PARTY_LINE_CHARACTERS_MAX + 1)},
        {"name": "n", "tax_id": "a\u0000b"},
        {"name": "n", "payment": ["IBAN"]},
        {"name": "n", "payment_days": 3},
    ],
)
def test_address_that_no_invoice_can_have_is_refused(caller: Caller, content: object) -> None:
    answer = caller.request("PUT", "/v1/billing/buyer", content)
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert not BillingParty.objects.exists()
