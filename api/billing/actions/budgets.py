"""Budgets: made by customers, judged whenever the month's draft was made or the meter read more of the account's usage,
with an event for each level reached. What is spent is what the meter says: settled usage and what is not settled yet.

A stop is the state of the account: it stands while a budget that stops is used up in the current month. Each change
of it takes a new version of the account and is announced on the change feed; the account's record says it to front ends
as `sending_stopped`.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from api import clock
from api.accounts.models import Account
from api.accounts.selectors import locked_account
from api.audit.actions import Actor, record
from api.billing import limits
from api.billing.actions.plans import ensure_standard_plan
from api.billing.errors import BillingError, invalid, not_found
from api.billing.meter import NOTHING_SPENT, MonthSpending, month_spending
from api.billing.models import (
    BudgetEvent,
    BudgetEventKind,
    SpendingBudget,
    SpendingStop,
)
from api.billing.pricing.budget_levels import STOP_PERCENT, levels_reached
from api.billing.pricing.money import nanos_per_minor
from api.billing.pricing.periods import BillingPeriod, period_of
from api.people.email import normal_email
from api.people.errors import PeopleError
from api.queues.models import GONE, Queue
from api.quotas.actions import resume_sending, stop_sending
from api.quotas.selectors import holder_of

BUDGETS = Actor("budgets")


class BudgetSpec(NamedTuple):
    """What a budget is made from, or changed to. `queue_name` empty: of the whole account."""

    limit_minor: int
    alert_percents: list[int]
    stops_sending: bool
    mail_to: list[str]
    queue_name: str = ""


@transaction.atomic
def put_budget(actor: Actor, account_id: str, name: str, spec: BudgetSpec) -> tuple[SpendingBudget, bool]:
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
    budget.alert_percents, budget.stops_sending = sorted(set(spec.alert_percents)), spec.stops_sending
    budget.mail_to = [normal_email(address) for address in spec.mail_to]
    budget.generation += 1
    budget.modified_at = now
    budget.save()
    record(actor, account_id, "budget.put", f"budget:{name}", **_told(budget), **was)
    judge(account, period_of(now))
    return budget, is_new


@transaction.atomic
def delete_budget(actor: Actor, account_id: str, name: str) -> bool:
    """A stop that it made ends. False where there is none of this name."""
    account = locked_account(account_id, not_found)
    budget = SpendingBudget.objects.select_for_update().filter(account=account, name=name).first()
    if budget is None:
        return False
    before = _told(budget)
    # Before the row of the stop goes with the budget's.
    budget.stops_sending = False
    budget.save(update_fields=["stops_sending"])
    judge(account, period_of(clock.now()))
    budget.delete()
    record(actor, account_id, "budget.delete", f"budget:{name}", before=before)
    return True


def _told(budget: SpendingBudget) -> dict[str, object]:
    """What the trail keeps of a budget."""
    kept = {field: getattr(budget, field) for field in ("limit_minor", "alert_percents", "stops_sending", "mail_to")}
    return {"queue_id": None if budget.queue_uuid is None else str(budget.queue_uuid), **kept}


@transaction.atomic
def judge_budgets(account_id: str) -> int:
    """Events for levels that the current month has reached, and the stop as it is to be; how many events."""
    return judge(locked_account(account_id, not_found), period_of(clock.now()))


def note_mailed(event_id: int) -> None:
    BudgetEvent.objects.filter(pk=event_id, mailed_at=None).update(mailed_at=clock.now())


def judge(account: Account, period: BillingPeriod) -> int:
    """Part of the caller's transaction, with the account locked. How many events are new."""
    budgets = list(SpendingBudget.objects.select_for_update().filter(account=account).order_by("pk"))
    spending = NOTHING_SPENT
    if budgets:
        ensure_standard_plan()
        of_queues = any(budget.queue_uuid is not None for budget in budgets)
        spending = month_spending(account, period, by_queue=of_queues)
    made = 0
    used_up: list[SpendingBudget] = []
    for budget in budgets:
        spent = spending.nanos(budget.queue_uuid)
        per_minor = nanos_per_minor(spending.currency)
        for percent in levels_reached(budget.limit_minor, spent, per_minor, budget.alert_percents):
            made += _note(budget, period, BudgetEventKind.ALERT, percent, spending)
        if budget.stops_sending and levels_reached(budget.limit_minor, spent, per_minor, [STOP_PERCENT]):
            used_up.append(budget)
            made += _note(budget, period, BudgetEventKind.STOP, STOP_PERCENT, spending)
            _note_over(budget, period, spending)
    return made + _set_stop(account, period, used_up, spending.currency)


def _note(
    budget: SpendingBudget,
    period: BillingPeriod,
    kind: BudgetEventKind,
    percent: int,
    spending: MonthSpending,
) -> int:
    """1 where the event is new."""
    spent_minor = spending.nanos(budget.queue_uuid) // nanos_per_minor(spending.currency)
    _, is_new = BudgetEvent.objects.get_or_create(
        budget=budget, period_start=period.start, generation=budget.generation, kind=kind, percent=percent,
        defaults={
            "account_id": budget.account_id, "budget_name": budget.name, "spent_minor": spent_minor,
            "limit_minor": budget.limit_minor, "currency": spending.currency,
            "mail_to": budget.mail_to, "at": clock.now(),
            "mailed_at": None if budget.mail_to else clock.now(),
        },
    )  # fmt: skip
    return int(is_new)


def _note_over(budget: SpendingBudget, period: BillingPeriod, spending: MonthSpending) -> None:
    """How far the month went beyond the limit of a budget that stops. It never falls."""
    over = spending.charges_minor - budget.limit_minor
    stops = BudgetEvent.objects.filter(
        budget=budget, period_start=period.start, generation=budget.generation, kind=BudgetEventKind.STOP
    )
    stops.filter(over_minor__lt=over).update(over_minor=over)


def _set_stop(account: Account, period: BillingPeriod, used_up: list[SpendingBudget], currency: str) -> int:
    """Part of the caller's transaction, with the account locked. 1 where the account sends again.

    The stop names a budget that is used up: where that budget was raised or deleted, it passes to another one.
    """
    stop = SpendingStop.objects.filter(account=account).select_related("budget").first()
    if stop is not None and stop.budget in used_up:
        SpendingStop.objects.filter(account=account).update(period_start=period.start)
        return 0
    holder = holder_of(account.pk)
    reason = "" if holder is None else holder.sending_stopped
    is_ours = reason == ("" if stop is None else _reason(stop.budget))  # an operator's own stop stays
    if stop is not None:
        stop.delete()
    if used_up:
        SpendingStop.objects.create(account=account, budget=used_up[0], period_start=period.start, since=clock.now())
        record(BUDGETS, account.pk, "account.stop_sending", f"account:{account.pk}", budget=used_up[0].name)
        if is_ours:
            stop_sending(BUDGETS, account.pk, _reason(used_up[0]))
        return 0
    if stop is None:
        return 0
    record(BUDGETS, account.pk, "account.resume_sending", f"account:{account.pk}", budget=stop.budget.name)
    if is_ours:
        resume_sending(BUDGETS, account.pk)
    return _note(stop.budget, period, BudgetEventKind.RESUME, 0, NOTHING_SPENT._replace(currency=currency))


def _reason(budget: SpendingBudget) -> str:
    """What senders are told."""
    return f"The budget {budget.name} of this month is used up."


def _check(account_id: str, name: str, spec: BudgetSpec) -> UUID | None:
    """The queue's UUID where the budget is one's."""
    if not 1 <= len(name) <= limits.BUDGET_NAME_CHARACTERS_MAX or not name.isprintable() or "/" in name:
        raise invalid(f"a budget's name has 1 to {limits.BUDGET_NAME_CHARACTERS_MAX} printable characters, no slash")
    if not 0 <= spec.limit_minor <= limits.BUDGET_MINOR_MAX:
        raise invalid(f"limit_minor lies between 0 and {limits.BUDGET_MINOR_MAX}")
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
    if spec.stops_sending:
        raise invalid("a budget of one queue alerts; only a budget of the account stops sending")
    # Deleted queues of this name may be younger than the one that has it: a restored queue is older than they are.
    of_this_name = Queue.objects.filter(account_id=account_id, name=spec.queue_name)
    queue = of_this_name.exclude(state__in=GONE).first() or of_this_name.order_by("-deleted_at").first()
    if queue is None:
        raise not_found()
    return queue.uuid
