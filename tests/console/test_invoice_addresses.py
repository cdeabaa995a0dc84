"""Who sells and who buys, on the pages of invoices: whose address it is, and that its own account alone sees it."""

from __future__ import annotations

import pytest

from tests.console.browsing import Browser, person
from tests.console.test_billing import invoice_of, shop, text_of

__all__ = ["shop"]

pytestmark = pytest.mark.django_db


def test_invoice_names_seller_buyer_and_the_day_by_which_to_pay(ann: Browser, request: pytest.FixtureRequest) -> None:
    from api.audit.actions import OPERATOR
    from api.billing.actions.parties import Party, name_buyer, name_seller

    name_seller(OPERATOR, Party("Queues <b>Ltd", ["Main Street 1"], "VAT 1", ["IBAN AT00"], 14))
    name_buyer(OPERATOR, ann.account_id, Party("Ann & Sons", ["Harbour 7"]))
    shop: Browser = request.getfixturevalue("shop")
    text = text_of(shop, f"billing/invoices/{invoice_of(shop).pk}")
    told = [
        "Queues &lt;b&gt;Ltd",
        "Main Street 1",
        "VAT 1",
        "IBAN AT00",
        "Ann &amp; Sons",
        "Harbour 7",
        "To be paid by",
    ]
    assert [line for line in told if line not in text] == []
    assert "To be paid by" not in text_of(shop, f"billing/invoices/{invoice_of(shop, 'draft').pk}")


def test_address_is_given_changed_and_removed_and_stands_above_the_invoices(shop: Browser) -> None:
    from api.billing.parties import buyer_of

    assert "Add an address" in text_of(shop, "billing/invoices")
    form = {"name": "Ann & Sons", "address": " Harbour 7\r\n\r\n 20457 Hamburg ", "tax_id": "VAT DE1"}
    assert shop.post(shop.at("billing/buyer"), form).status_code == 302
    expected = {"name": "Ann & Sons", "address": ["Harbour 7", "20457 Hamburg"], "tax_id": "VAT DE1"}
    assert buyer_of(shop.account_id) == expected
    text = text_of(shop, "billing/invoices")
    assert "Ann &amp; Sons" in text and "20457 Hamburg" in text and "Add an address" not in text
    assert "Harbour 7\n20457 Hamburg</textarea>" in text_of(shop, "billing/buyer")
    refused = shop.post(shop.at("billing/buyer"), {**form, "address": "\n".join("1234567"), "tax_id": "kept"})
    assert (
        refused.status_code == 400
        and "up to 6 lines" in refused.content.decode()
        and "kept" in refused.content.decode()
    )
    assert buyer_of(shop.account_id) == expected
    assert shop.post(shop.at("billing/buyer/delete"), {}).status_code == 302
    assert buyer_of(shop.account_id) == {}
    assert shop.post(shop.at("billing/buyer/delete"), {}).status_code == 404


def test_address_of_another_account_is_not_here(shop: Browser) -> None:
    from api.audit.actions import OPERATOR
    from api.billing.actions.parties import Party, name_buyer
    from api.billing.parties import buyer_of

    name_buyer(OPERATOR, shop.account_id, Party("Ann & Sons"))
    bob = person("bob@example.com")
    for page in ("billing/invoices", "billing/buyer"):
        assert "Ann &amp; Sons" not in text_of(bob, page)
        assert bob.get(shop.at(page)).status_code == 404
    assert bob.post(bob.at("billing/buyer/delete"), {}).status_code == 404
    assert buyer_of(shop.account_id) == {"name": "Ann & Sons"}


def test_invoice_without_them_names_neither(shop: Browser) -> None:
    text = text_of(shop, f"billing/invoices/{invoice_of(shop).pk}")
    assert "<h2>From</h2>" not in text and "<h2>To</h2>" not in text and "To be paid by" not in text
