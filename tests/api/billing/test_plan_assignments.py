"""Which plan an account has where the standard plan is an operator's own, or the account's holds from ever on."""

from __future__ import annotations

from typing import Any

import pytest

from api.audit.actions import OPERATOR
from api.billing.actions.invoices import BILLING, draft_invoice, issue_invoice
from api.billing.actions.plans import BEGINNING, add_plan_version, assign_plan, ensure_standard_plan
from api.billing.errors import BillingError
from api.billing.models import PricePlanVersion
from tests.api.billing.test_invoices import document, plan, units
from tests.api.billing.usage import MONTH_HOURS, PERIOD, month_hour, row, settle_month, settle_rows

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


@pytest.mark.parametrize("terms", [{"minimum_minor": 1000}, {"base_fee_minor": 999}])
def test_version_with_the_same_terms_within_a_month_changes_no_invoice(account: str, terms: dict[str, Any]) -> None:
    plan(account, **terms)
    settle_month([row(account, MONTH_HOURS - 1, sent_units=50_100)])
    before = draft_invoice(account, PERIOD)
    held = PricePlanVersion.objects.get(plan_id="test")
    PricePlanVersion.objects.create(
        plan_id="test", number=2, effective_from=month_hour(MONTH_HOURS // 2), terms=held.terms,
        created_at=held.created_at,
    )  # fmt: skip
    issued = issue_invoice(BILLING, account, PERIOD)
    assert before is not None and issued is not None
    assert issued.charges_minor == before.charges_minor == 5000 + terms.get("base_fee_minor", 0)
