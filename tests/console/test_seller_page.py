"""Operators name the seller of invoices on a page; for others it is not there."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.console.browsing import Browser
from tests.console.test_operator_billing import operator, text_of

__all__ = ["operator"]

pytestmark = pytest.mark.django_db
PAGE = "/console/operators/billing/seller"
FORM = {
    "what": "save", "name": "Queues & Co", "address": " Main Street 1\r\n\r\n1010 Vienna ", "tax_id": "VAT ATU1",
    "payment": "IBAN AT00", "payment_days": "14",
}  # fmt: skip
NAMED = {
    "name": "Queues & Co", "address": ["Main Street 1", "1010 Vienna"], "tax_id": "VAT ATU1", "payment": ["IBAN AT00"],
    "payment_days": 14,
}  # fmt: skip


def test_seller_is_named_changed_and_removed(operator: Browser) -> None:
    from api.audit.models import AuditEntry
    from api.billing.parties import seller

    assert "No seller is named yet" in text_of(operator, PAGE) and "Remove the seller" not in text_of(operator, PAGE)
    assert operator.post(PAGE, FORM).status_code == 302
    assert seller() == NAMED
    shown = text_of(operator, PAGE)
    assert 'value="Queues &amp; Co"' in shown and "Main Street 1\n1010 Vienna</textarea>" in shown
    assert 'value="14"' in shown and "Remove the seller" in shown
    assert operator.post(PAGE, {**FORM, "payment_days": "", "tax_id": ""}).status_code == 302
    assert seller() == {key: value for key, value in NAMED.items() if key not in ("payment_days", "tax_id")}
    assert operator.post(PAGE, {"what": "remove"}).status_code == 302
    assert seller() == {}
    written = AuditEntry.objects.filter(subject="party:seller").order_by("pk")
    assert [entry.action for entry in written] == ["billing_party.put"] * 2 + ["billing_party.remove"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": ""}, "has a name"),
        ({"address": "\n".join("1234567")}, "up to 6 lines"),
        ({"payment_days": "366"}, "within 0 to 365 days"),
        ({"payment_days": "-1"}, "within 0 to 365 days"),
        ({"payment_days": "9" * 400}, "within 0 to 365 days"),
        ({"payment_days": "१४"}, "within 0 to 365 days"),
        ({"tax_id": "x" * 101}, "up to 100 printable"),
    ],
)
def test_what_is_wrong_is_told_and_what_was_typed_stays(operator: Browser, wrong: dict[str, str], told: str) -> None:
    from api.billing.parties import seller

    assert operator.post(PAGE, FORM).status_code == 302
    answer = operator.post(PAGE, {**FORM, "payment": "typed", **wrong})
    assert answer.status_code == 400
    assert told in answer.content.decode() and "typed" in answer.content.decode()
    assert seller() == NAMED


def test_change_of_the_seller_wants_a_recent_sign_in(operator: Browser) -> None:
    from api import clock
    from api.billing.parties import seller
    from api.people.models import PersonSession

    assert operator.post(PAGE, FORM).status_code == 302
    PersonSession.objects.update(authenticated_at=clock.now() - timedelta(hours=1))
    for form in ({**FORM, "name": "Another"}, {"what": "remove"}):
        assert operator.post(PAGE, form)["Location"].startswith("/console/again")
    assert seller() == NAMED


def test_page_is_not_there_for_owners(ann: Browser) -> None:
    from api.billing.parties import seller

    assert ann.get(PAGE).status_code == 404
    assert ann.post(PAGE, FORM).status_code == 404
    assert seller() == {}
