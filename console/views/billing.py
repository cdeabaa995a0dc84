"""What the month costs so far, what its prices are, which credits are left."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.accounts.models import Account
from api.billing import limits, selectors
from api.billing.actions.plans import ensure_standard_plan
from api.billing.meter import CostMeter, MonthSpending, cost_meter, spending_in
from api.billing.models import SpendingBudget
from api.billing.plan_reads import held_versions, plans_of
from api.billing.price_words import plan_words
from api.billing.pricing.money import nanos_per_minor
from api.billing.pricing.periods import DAY, period_before, period_of
from api.billing.pricing.priced_month import LineKind
from api.billing.usage_reports import UsageAsked, UsageCut, usage_parts
from api.people.roles import Act
from console.bars import BarChart, BarValue, bar_chart
from console.pages import account_page
from console.templatetags.money import nanos
from console.visits import AccountVisit

QUEUES_SHOWN = 8


class BudgetState(NamedTuple):
    """`percent` may be over 100."""

    budget: SpendingBudget
    queue: str
    spent_minor: int
    percent: int
    currency: str


class HeldSending(NamedTuple):
    """What a budget that is used up does now. `queue` empty: to the account."""

    effect: str
    queue: str
    budget: str
    sends_per_s: int = limits.THROTTLED_SENDS_PER_S


@account_page(Act.READ_METER, "GET")
def billing(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    return render(request, "console/billing/index.html", _shown(visit))


@account_page(Act.READ_METER, "GET")
def billing_now(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """Asked for again every half minute."""
    return render(request, "console/billing/now.html", _shown(visit))


@account_page(Act.READ_PLANS, "GET")
def prices(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    credits = selectors.credits_of(visit.account_id) if visit.may(Act.READ_CREDITS) else []
    found = plans_of(visit.account_id)
    plans = [(plan, [plan_words(one) for one in held]) for plan, held in zip(found, held_versions(found), strict=True)]
    return render(request, "console/billing/prices.html", {"plans": plans, "credits": credits, "tab": "prices"})


def budget_states(account_id: str, spending: MonthSpending) -> list[BudgetState]:
    budgets = selectors.budgets_of(account_id)
    uuids = [budget.queue_uuid for budget in budgets if budget.queue_uuid is not None]
    names = {queue.uuid: queue.name for queue in selectors.queues_named(account_id, uuids)}
    return [_state(budget, names, spending) for budget in budgets]


def held_by_budgets(account_id: str) -> list[HeldSending]:
    found = selectors.effects_in_force(account_id)
    uuids = [one.queue_uuid for one in found if one.queue_uuid is not None]
    names = {queue.uuid: queue.name for queue in selectors.queues_named(account_id, uuids)}
    return [
        HeldSending(
            one.effect, names.get(one.queue_uuid, str(one.queue_uuid)) if one.queue_uuid else "", one.budget.name
        )
        for one in found
    ]


def _state(budget: SpendingBudget, names: dict[UUID, str], spending: MonthSpending) -> BudgetState:
    nanos, minor = spending.nanos(budget.queue_uuid), nanos_per_minor(spending.currency)
    spent = (nanos + minor // 2) // minor  # as the table of queues rounds it
    percent = nanos // minor * 100 // budget.limit_minor if budget.limit_minor else 100 * bool(nanos // minor)
    queue = "" if budget.queue_uuid is None else names.get(budget.queue_uuid, str(budget.queue_uuid))
    return BudgetState(budget, queue, spent, percent, spending.currency)


def _shown(visit: AccountVisit) -> dict[str, object]:
    ensure_standard_plan()
    now = clock.now()
    period = period_of(now)
    meter = cost_meter(Account.objects.get(pk=visit.account_id), period, now)
    shown: dict[str, object] = {"meter": meter, "period": period, "tab": "overview"}
    if meter is None:
        return shown
    spending = spending_in(meter.month)
    return shown | {
        "last": selectors.invoice_for(visit.account_id, period_before(period)) if visit.lists_invoices else None,
        "lines": [line for line in meter.month.priced.lines if line.kind is LineKind.USAGE and line.amount_minor],
        "fees": [line for line in meter.month.priced.lines if line.kind in (LineKind.FEE, LineKind.MINIMUM)],
        "queues": _dearest(visit.account_id, spending),
        "chart": _by_day(meter),
        "budgets": budget_states(visit.account_id, spending) if visit.may(Act.READ_BUDGETS) else [],
        "held": held_by_budgets(visit.account_id),
    }


def _dearest(account_id: str, spending: MonthSpending) -> list[tuple[UUID, str, int]]:
    found = sorted(spending.queues.items(), key=lambda one: (-one[1], one[0]))[:QUEUES_SHOWN]
    names = {queue.uuid: queue.name for queue in selectors.queues_named(account_id, [uuid for uuid, _ in found])}
    return [(uuid, names.get(uuid, ""), amount) for uuid, amount in found if amount]


def _by_day(meter: CostMeter) -> BarChart | None:
    month, currency = meter.month, meter.currency
    parts = {part.key: part for part in usage_parts(month, UsageAsked(UsageCut.DAY))}
    values = []
    day = month.period.start
    while day < month.period.end:
        part = parts.get(day)
        amount, open_amount = (0, 0) if part is None else (part.amount_nanos, part.provisional_nanos)
        values.append(BarValue(f"{day:%-d %b}", amount - open_amount, open_amount, nanos(amount, currency)))
        day += DAY
    return bar_chart(values)
