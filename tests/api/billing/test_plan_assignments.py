"""Which plan an account has where the standard plan is an operator's own, or the account's holds from ever on."""

from __future__ import annotations

import pytest

from api.audit.actions import OPERATOR
from api.billing.actions.invoices import draft_invoice
from api.billing.actions.plans import BEGINNING, add_plan_version, assign_plan, ensure_standard_plan
from api.billing.errors import BillingError
from tests.api.billing.test_invoices import document, units
from tests.api.billing.usage import PERIOD, month_hour, settle_rows

pytestmark = pytest.mark.django_db


def test_standard_plan_in_another_currency_is_not_left_within_a_month(account: str) -> None:
    """The first version of `standard` may be an operator's, added before any account was billed."""
    add_plan_version(OPERATOR, "standard", "Standard", document(currency="EUR"), None)
    add_plan_version(OPERATOR, "house", "House", document(currency="EUR"), None)
    add_plan_version(OPERATOR, "dollars", "Dollars", document(currency="USD"), None)
    settle_rows(units(account, 10_100))
    with pytest.raises(BillingError, match="begins with a month"):
        assign_plan(OPERATOR, account, "dollars", month_hour(100), ())
    assign_plan(OPERATOR, account, "house", month_hour(100), ())
    draft = draft_invoice(account, PERIOD)
    assert draft is not None and draft.currency == "EUR"


def test_own_plan_from_the_beginning_on_leaves_nothing_to_the_standard_plan(account: str) -> None:
    """Whichever of the two plans was made first."""
    add_plan_version(OPERATOR, "house", "House", document(), None)
    ensure_standard_plan()
    assign_plan(OPERATOR, account, "house", BEGINNING, ())
    settle_rows(units(account, 10_100))
    draft = draft_invoice(account, PERIOD)
    assert draft is not None and draft.charges_minor == 1000
