"""A version of a plan that is still to come is replaced or withdrawn; one that has begun never changes."""

from __future__ import annotations

import io
import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.billing.actions.plans import add_plan_version, withdraw_plan_version
from api.billing.errors import BillingError
from api.billing.models import PricePlanVersion
from api.billing.pricing.periods import period_of
from tests.api.billing.test_invoices import document
from tests.api.billing.usage import MONTH, month_hour

pytestmark = pytest.mark.django_db

COMING = period_of(datetime.now(MONTH.tzinfo)).end


def add(price_nanos: int, since: datetime | None) -> PricePlanVersion:
    return add_plan_version(OPERATOR, "house", "House", document(price_nanos), since)


def terms_of(number: int) -> dict[str, object]:
    found: dict[str, object] = PricePlanVersion.objects.get(plan_id="house", number=number).terms
    return found


def test_version_that_is_to_come_is_replaced_by_one_of_the_same_hour() -> None:
    add(1, None)
    add(2, COMING)
    assert str(add(3, COMING)) == "house@2"
    assert (terms_of(1), terms_of(2)) == (document(1), document(3))
    assert AuditEntry.objects.filter(action="plan.replace_version", subject="plan:house@2").count() == 1


def test_version_before_one_that_is_to_come_is_refused_with_what_to_do() -> None:
    add(1, None)
    add(2, COMING + timedelta(days=40))
    with pytest.raises(
        BillingError, match=r"house@2 begins later, on .* UTC: give that hour .*--code house --withdraw"
    ):
        add(3, COMING)


def test_last_version_is_withdrawn_until_it_begins() -> None:
    add(1, None)
    add(2, COMING)
    add(3, COMING + timedelta(days=40))
    assert [str(withdraw_plan_version(OPERATOR, "house")) for _ in range(2)] == ["house@3", "house@2"]
    assert AuditEntry.objects.filter(action="plan.withdraw_version").count() == 2
    with pytest.raises(BillingError, match="house@1 has begun"):
        withdraw_plan_version(OPERATOR, "house")
    with pytest.raises(BillingError, match="no plan"):
        withdraw_plan_version(OPERATOR, "absent")
    PricePlanVersion.objects.create(
        plan_id="house", number=2, effective_from=month_hour(5), terms=document(2), created_at=MONTH
    )
    with pytest.raises(BillingError, match="house@2 has begun"):
        withdraw_plan_version(OPERATOR, "house")
    with pytest.raises(BillingError, match="still to come"):
        add(3, month_hour(5))
    assert terms_of(2) == document(2)


def test_command_says_which_prices_were_understood_and_takes_no_other_name(tmp_path: Path) -> None:
    terms = tmp_path / "terms.json"

    def admin(*arguments: str, **given: object) -> list[str]:
        terms.write_text(json.dumps(document(**given)))
        out = io.StringIO()
        named = () if "--withdraw" in arguments else ("--terms", str(terms))
        call_command("billing_admin", "plan", "--code", "house", *named, *arguments, stdout=out)
        return out.getvalue().splitlines()

    with pytest.raises(CommandError, match="--name"):
        admin()
    assert admin("--name", "House", base_fee_minor=500)[:3] == [
        "house@1 holds from the beginning",
        "  base fee a month: 5.00 USD",
        "  Sent, in units of 64 KiB: 100 units a month are free, then 1000.00 USD per million units",
    ]
    since = ("--from", f"{COMING:%Y-%m-%dT%H:%M}")
    assert admin(*since)[0] == f"house@2 holds from {COMING:%Y-%m-%d} 00:00 UTC on"
    assert admin(*since, price_nanos=2_000_000)[0].startswith("house@2 is replaced: it holds from")
    with pytest.raises(CommandError, match="called 'House' already"):
        admin(*since, "--name", "Home")
    assert admin("--withdraw")[0].startswith("house@2 is withdrawn")
