"""Which plan an account has where the standard plan is an operator's own, or the account's holds from ever on."""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.billing.actions.invoices import BILLING, draft_invoice, issue_invoice
from api.billing.actions.plans import BEGINNING, add_plan_version, assign_plan, ensure_standard_plan
from api.billing.errors import BillingError
from api.billing.models import AccountPlan, PricePlanVersion
from api.billing.plan_reads import held_versions, plans_of
from api.billing.pricing.periods import period_of
from tests.api.billing.test_invoices import document, plan, units
from tests.api.billing.usage import MONTH, MONTH_HOURS, PERIOD, month_hour, row, settle_month, settle_rows

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


def test_assignment_that_is_to_come_is_told_with_its_taxes_and_withdrawn(account: str) -> None:
    plan(account, "house")
    ensure_standard_plan()
    coming = period_of(datetime.now(MONTH.tzinfo)).end
    assign_plan(OPERATOR, account, "standard", coming, ())

    def assign(*arguments: str) -> str:
        out = io.StringIO()
        call_command("billing_admin", "assign", "--account", account, *arguments, stdout=out)
        return out.getvalue()

    told = assign("--code", "house", "--tax", "VAT=19")
    assert "VAT 19 %; standard follows from" in told and told.strip().endswith("UTC on, without a tax")
    assert "house goes on, VAT 19 %" in assign("--withdraw")
    assert AuditEntry.objects.filter(action="plan.withdraw", account_id=account).count() == 1
    with pytest.raises(CommandError, match="no plan that is still to come"):
        assign("--withdraw")
    assert AccountPlan.objects.filter(account_id=account, plan_id="house").exists()


def test_versions_that_an_account_has_are_those_of_the_time_in_which_it_has_the_plan(account: str) -> None:
    plan(account, "house", since=month_hour(10))
    plan(account, "other", since=month_hour(20))
    assign_plan(OPERATOR, account, "house", month_hour(40), ())
    for number, hour in ((2, 5), (3, 15), (4, 30), (5, 50)):
        PricePlanVersion.objects.create(
            plan_id="house", number=number, effective_from=month_hour(hour), terms=document(), created_at=MONTH
        )
    held = [[str(version) for version in versions] for versions in held_versions(plans_of(account))]
    assert held == [["standard@1"], ["house@2", "house@3"], ["other@1"], ["house@4", "house@5"]]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--tax", "VAT=119"), "between 0 and 50 percent"),
        (("--tax", "VAT=19", "--tax", "VAT=7"), "'VAT' is given twice"),
        (("--from", "2999-12-01T00:30"), "a whole hour, like 2999-12-01T00:00"),
    ],
)
def test_tax_and_hour_that_make_no_sense_are_told(account: str, arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        call_command("billing_admin", "assign", "--account", account, "--code", "standard", *arguments)
    assert not AccountPlan.objects.exists()


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
