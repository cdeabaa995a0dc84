"""Budgets and the spend cap: created, changed, deleted, and what they did."""

from __future__ import annotations

import re

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.accounts.models import Account
from api.billing import limits, selectors
from api.billing.actions.budgets import BudgetSpec, delete_budget, put_budget
from api.billing.actions.plans import ensure_standard_plan
from api.billing.errors import BillingError, invalid
from api.billing.meter import month_spending
from api.billing.models import BudgetEffect, SpendingBudget
from api.billing.pricing.money import format_minor, parse_minor
from api.billing.pricing.periods import period_of
from api.people.roles import Act
from console.error_notices import notice_of
from console.page_times import month_asked, months_since
from console.pages import account_page, told
from console.views.billing import budget_states, held_by_budgets
from console.visits import AccountVisit

FIELDS = ("name", "limit", "alerts", "effect", "mail", "queue")
_ALERTS = "50, 80, 100"
_EFFECTS = (
    (BudgetEffect.ALERT.value, "Alerts only"),
    (BudgetEffect.THROTTLE.value, "Throttle sending"),
    (BudgetEffect.STOP.value, "Stop sending"),
)


@account_page(Act.READ_BUDGETS, "GET")
def budgets(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    period = month_asked(request)
    account = Account.objects.get(pk=visit.account_id)
    ensure_standard_plan()
    found = selectors.budgets_of(visit.account_id)
    of_queues = [budget.queue_uuid for budget in found if budget.queue_uuid is not None]
    shown = {
        "budgets": budget_states(visit.account_id, month_spending(account, period_of(clock.now()), of_queues)),
        "held": held_by_budgets(visit.account_id),
        "lifted": selectors.lifted_stop(visit.account_id),
        "events": selectors.budget_events_of(visit.account_id, period),
        "period": period,
        "months": months_since(account.created_at),
        "room": limits.BUDGETS_PER_ACCOUNT_MAX,
        "tab": "budgets",
    }
    return render(request, "console/billing/budgets.html", shown)


@account_page(Act.MANAGE_BUDGETS, "GET", "POST")
def edit_budget(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """`?name=` is the budget to be changed; without it a new one is created."""
    name = request.GET.get("name", "")
    budget = selectors.budget_named(visit.account_id, name) if name and "\0" not in name else None
    if name and budget is None:
        raise Http404
    currency = _currency(visit.account_id)
    refusal = None
    given = _of_budget(visit.account_id, budget, currency)
    if request.method == "POST":
        given = {field: request.POST.get(field, "").replace("\0", "").strip() for field in FIELDS}
        given |= {"name": name} if budget else {}
        try:
            return _put(visit, given, currency, is_new=budget is None)
        except BillingError as error:
            refusal = notice_of(error)
    shown = {
        "given": given,
        "budget": budget,
        "currency": currency,
        "effects": _EFFECTS,
        "sends_per_s": limits.THROTTLED_SENDS_PER_S,
        "refusal": refusal,
        "tab": "budgets",
    }
    return render(request, "console/billing/budget.html", shown, status=refusal.status if refusal else 200)


@account_page(Act.DELETE_BUDGETS, "POST")
def remove_budget(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    name = request.POST.get("name", "").replace("\0", "")
    if not delete_budget(visit.actor, visit.account_id, name):
        raise Http404
    return told(_url(visit), f"The budget {name} is deleted. What it stopped or throttled is free again.")


def _put(visit: AccountVisit, given: dict[str, str], currency: str, is_new: bool) -> HttpResponse:
    """Raises BillingError."""
    if is_new and selectors.budget_named(visit.account_id, given["name"]) is not None:
        raise BillingError(
            "already-there", f"A budget {given['name']} exists already; change that budget or choose another name."
        )
    put_budget(visit.actor, visit.account_id, given["name"], _spec(given, currency))
    done = "created" if is_new else "changed: its alerts are sent again"
    return told(_url(visit), f"The budget {given['name']} is {done}.")


def _spec(given: dict[str, str], currency: str) -> BudgetSpec:
    """Raises BillingError."""
    return BudgetSpec(
        _minor(given["limit"], currency),
        [_percent(part) for part in re.split(r"[\s,;%]+", given["alerts"]) if part],
        given["effect"],
        [part for part in re.split(r"[\s,;]+", given["mail"]) if part],
        given["queue"],
    )


def _minor(text: str, currency: str) -> int:
    try:
        return parse_minor(text, currency)
    except ValueError as error:
        raise invalid(str(error)) from None


def _percent(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise invalid("alerts are percents, written like 50, 80, 100")
    return int(text)


def _of_budget(account_id: str, budget: SpendingBudget | None, currency: str) -> dict[str, str]:
    if budget is None:
        return dict.fromkeys(FIELDS, "") | {"alerts": _ALERTS, "effect": BudgetEffect.ALERT.value}
    queue = ""
    if budget.queue_uuid is not None:
        queue = next((one.name for one in selectors.queues_named(account_id, [budget.queue_uuid])), "")
    return {
        "name": budget.name,
        "limit": format_minor(budget.limit_minor, currency),
        "alerts": ", ".join(map(str, budget.alert_percents)),
        "effect": budget.effect,
        "mail": "\n".join(budget.mail_to),
        "queue": queue,
    }


def _currency(account_id: str) -> str:
    """Of the current month's plan."""
    ensure_standard_plan()
    return month_spending(Account.objects.get(pk=account_id), period_of(clock.now()), ()).currency


def _url(visit: AccountVisit) -> str:
    return f"/console/a/{visit.account_id}/billing/budgets"
