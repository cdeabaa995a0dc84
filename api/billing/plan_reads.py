"""The plans of an account, as it sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from api.accounts.models import Account
from api.billing.actions.plans import ensure_standard_plan
from api.billing.models import PricePlanVersion
from api.billing.pricing.terms import STANDARD_CODE
from api.billing.selectors import account_plans, versions_of


def plans_of(account_id: str) -> list[dict[str, Any]]:
    """The oldest first: the standard plan, where the account had it, and those that it was given."""
    ensure_standard_plan()
    opened = Account.objects.values_list("created_at", flat=True).get(pk=account_id)
    found = [(row.plan_id, row.effective_from, row.taxes) for row in account_plans(account_id)]
    if not found or found[0][1] > opened:
        found.insert(0, (STANDARD_CODE, opened, []))
    versions = versions_of([code for code, _, _ in found])
    return [
        {
            "plan": code,
            "effective_from": since,
            "taxes": taxes,
            "versions": [version for version in versions if version.plan_id == code],
        }
        for code, since, taxes in found
    ]


def held_versions(plans: Sequence[dict[str, Any]]) -> list[list[PricePlanVersion]]:
    """Of each of `plans_of` the versions whose terms the account has while it has the plan."""
    held: list[list[PricePlanVersion]] = []
    for place, one in enumerate(plans):
        until = plans[place + 1]["effective_from"] if place + 1 < len(plans) else None
        begun = [version for version in one["versions"] if version.effective_from <= one["effective_from"]]
        later = [version for version in one["versions"] if version.effective_from > one["effective_from"]]
        held.append([*begun[-1:], *(version for version in later if until is None or version.effective_from < until)])
    return held


def why_unused(account_id: str, currency: str) -> str:
    """Of a credit in this currency: empty where a plan of the account is in it."""
    billed_in = {str(version.terms["currency"]) for one in plans_of(account_id) for version in one["versions"]}
    if currency in billed_in:
        return ""
    return f"No plan of the account is in {currency}, but in {', '.join(sorted(billed_in))}: no invoice uses it."
