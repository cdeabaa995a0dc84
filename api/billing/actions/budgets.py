"""Budgets: made by customers, judged whenever the month's draft was made or the meter read more of the account's usage,
with an event for each level reached. What is spent is what the meter says: settled usage and what is not settled yet.

What one that is used up does to the account, or to its queue: `budget_effects.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from api import clock
from api.accounts.models import Account
from api.accounts.selectors import locked_account
from api.audit.actions import record
from api.billing import limits
from api.billing.actions.budget_effects import REFUSED, note_event, set_effects
from api.billing.actions.plans import ensure_standard_plan
from api.billing.errors import BillingError, invalid, not_found
from api.billing.meter import NOTHING_SPENT, MonthSpending, month_spending
from api.billing.models import (
    BudgetEffect,
    BudgetEvent,
    BudgetEventKind,
    SpendingBudget,
)
from api.billing.pricing.money import nanos_per_minor
from api.billing.pricing.periods import BillingPeriod, period_of
from api.limits import ABSENT_NAME_CHARACTERS_MAX
from api.people.errors import PeopleError
from api.people.mails import normal_email
from api.queues.models import GONE, Queue
from frontend.authn.principal import Principal

STOP_PERCENT = 100
_KIND_OF = {BudgetEffect.THROTTLE: BudgetEventKind.THROTTLE, BudgetEffect.STOP: BudgetEventKind.STOP}


class BudgetSpec(NamedTuple):
    """What a budget is made from, or changed to. `queue_name` empty: of the whole account."""

    limit_minor: int
    alert_percents: list[int]
    effect: str
    mail_to: list[str]
    queue_name: str = ""


@transaction.atomic
def put_budget(actor: Principal, account_id: str, name: str, spec: BudgetSpec) -> tuple[SpendingBudget, bool]:
    """Makes or replaces it; True where it is new. Its alerts come again after a change. Raises BillingError."""
    account = locked_account(account_id, not_found)
    queue_uuid = _check(account_id, name, spec)
    now = clock.now()
    budget = SpendingBudget.objects.select_for_update().filter(account=account, name=name).first()
    is_new, was = budget is None, {} if budget is None else {"before": _told(budget)}
    if budget is None:
        if SpendingBudget.objects.filter(account=account).count() >= limits.BUDGETS_PER_ACCOUNT_MAX:
            raise BillingError("over-limit", f"An account has at most {limits.BUDGETS_PER_ACCOUNT_MAX} budgets.")
        budget = SpendingBudget(account=account, name=name, created_at=now, generation=0)
    budget.queue_uuid, budget.limit_minor = queue_uuid, spec.limit_minor
    budget.alert_percents, budget.effect = sorted(set(spec.alert_percents)), spec.effect
    budget.mail_to = list(dict.fromkeys(map(normal_email, spec.mail_to)))
    budget.generation += 1
    budget.modified_at = now
    budget.save()
    record(actor, account_id, "budget.put", f"budget:{name}", **_told(budget), **was)
    judge(account, period_of(now))
    return budget, is_new


@transaction.atomic
def delete_budget(actor: Principal, account_id: str, name: str) -> bool:
    """What it stopped or throttled is free again. False where there is none of this name."""
    account = locked_account(account_id, not_found)
    budget = SpendingBudget.objects.select_for_update().filter(account=account, name=name).first()
    if budget is None:
        return False
    before = _told(budget)
    # Before the row of its effect goes with the budget's.
    budget.effect = BudgetEffect.ALERT
    budget.save(update_fields=["effect"])
    judge(account, period_of(clock.now()))
    budget.delete()
    record(actor, account_id, "budget.delete", f"budget:{name}", before=before)
    return True


def _told(budget: SpendingBudget) -> dict[str, object]:
    """What the trail keeps of a budget."""
    kept = {field: getattr(budget, field) for field in ("limit_minor", "alert_percents", "effect", "mail_to")}
    return {"queue_id": None if budget.queue_uuid is None else str(budget.queue_uuid), **kept}


@transaction.atomic
def judge_budgets(account_id: str) -> int:
    """Events for levels that the current month has reached, and the effects as they are to be; how many events."""
    return judge(locked_account(account_id, not_found), period_of(clock.now()))


def note_mailed(event_id: int) -> None:
    BudgetEvent.objects.filter(pk=event_id, mailed_at=None).update(mailed_at=clock.now())


def give_up_mail(event_id: int) -> None:
    """The mail server takes none of its addresses, and never will."""
    BudgetEvent.objects.filter(pk=event_id, mailed_at=None).update(mailed_at=clock.now(), not_mailed=REFUSED)


def judge(account: Account, period: BillingPeriod) -> int:
    """Part of the caller's transaction, with the account locked. How many events are new."""
    budgets = list(SpendingBudget.objects.select_for_update().filter(account=account).order_by("pk"))
    spending = NOTHING_SPENT
    if budgets:
        ensure_standard_plan()
        of_queues = [budget.queue_uuid for budget in budgets if budget.queue_uuid is not None]
        spending = month_spending(account, period, of_queues)
    made = 0
    used_up: list[SpendingBudget] = []
    just_used_up: list[SpendingBudget] = []
    for budget in budgets:
        spent = spending.nanos(budget.queue_uuid)
        per_minor = nanos_per_minor(spending.currency)
        for percent in levels_reached(budget.limit_minor, spent, per_minor, budget.alert_percents):
            made += note_event(budget, period, BudgetEventKind.ALERT, percent, spending)
        kind = _KIND_OF.get(BudgetEffect(budget.effect))
        if kind is not None and levels_reached(budget.limit_minor, spent, per_minor, [STOP_PERCENT]):
            used_up.append(budget)
            if note_event(budget, period, kind, STOP_PERCENT, spending):
                just_used_up.append(budget)
            _note_over(budget, period, kind, spending)
    made += len(just_used_up)
    return made + set_effects(account, period, used_up, just_used_up, spending.currency)


def levels_reached(limit_minor: int, spent_nanos: int, nanos_per_minor: int, percents: Iterable[int]) -> list[int]:
    """The percents of a budget that are reached, ascending. A limit of 0 is reached by the first expense."""
    if spent_nanos <= 0:
        return []
    spent = spent_nanos * 100
    return sorted(percent for percent in set(percents) if spent >= limit_minor * nanos_per_minor * percent)


def _note_over(budget: SpendingBudget, period: BillingPeriod, kind: BudgetEventKind, spending: MonthSpending) -> None:
    """How far the month went beyond the limit of a budget that stops or throttles. It never falls."""
    over = spending.nanos(budget.queue_uuid) // nanos_per_minor(spending.currency) - budget.limit_minor
    events = BudgetEvent.objects.filter(
        budget=budget, period_start=period.start, generation=budget.generation, kind=kind
    )
    over = min(over, limits.MINOR_HELD_MAX)
    events.filter(over_minor__lt=over).update(over_minor=over)


def _check(account_id: str, name: str, spec: BudgetSpec) -> UUID | None:
    """The queue's UUID where the budget is one's."""
    if not 1 <= len(name) <= limits.BUDGET_NAME_CHARACTERS_MAX or not name.isprintable() or "/" in name:
        raise invalid(f"a budget's name has 1 to {limits.BUDGET_NAME_CHARACTERS_MAX} printable characters, no slash")
    if not 0 <= spec.limit_minor <= limits.BUDGET_MINOR_MAX:
        raise invalid(f"limit_minor lies between 0 and {limits.BUDGET_MINOR_MAX}")
    if spec.effect not in BudgetEffect.values:
        raise invalid("effect is one of " + ", ".join(BudgetEffect.values))
    percents = spec.alert_percents
    if len(percents) > limits.ALERT_PERCENTS_MAX or not all(0 < one <= limits.ALERT_PERCENT_MAX for one in percents):
        raise invalid(
            f"alert_percents are up to {limits.ALERT_PERCENTS_MAX} numbers from 1 to {limits.ALERT_PERCENT_MAX}"
        )
    if len(spec.mail_to) > limits.BUDGET_MAILS_MAX:
        raise invalid(f"mail_to has at most {limits.BUDGET_MAILS_MAX} addresses")
    try:
        for address in spec.mail_to:
            normal_email(address)
    except PeopleError as error:
        raise invalid(error.detail) from None
    if not spec.queue_name:
        return None
    # Deleted queues of this name may be younger than the one that has it: a restored queue is older than they are.
    of_this_name = Queue.objects.filter(account_id=account_id, name=spec.queue_name)
    queue = of_this_name.exclude(state__in=GONE).first() or of_this_name.order_by("-deleted_at").first()
    if queue is None:
        raise BillingError("not-found", f"There is no queue {spec.queue_name[:ABSENT_NAME_CHARACTERS_MAX]!r}.")
    return queue.uuid
