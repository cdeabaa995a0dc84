"""What budgets that are used up do: the account, or a queue of it, is stopped or held to a low rate.

An effect is the state of the account or queue: it stands while a budget of this effect is used up in the current month.
Of a queue the strongest holds. An account is stopped and throttled side by side: an operator may lift its stop, and a
throttle that is due still holds then. Each change is a new version of the account or queue, announced on the change
feed; the record says it to front ends as `sending_stopped` or `sends_per_s`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from api import clock
from api.accounts.models import Account
from api.accounts.selectors import locked_account
from api.audit.actions import record
from api.billing import limits
from api.billing.limits import THROTTLED_SENDS_PER_S
from api.billing.meter import NOTHING_SPENT, MonthSpending
from api.billing.models import BudgetEffect, BudgetEvent, BudgetEventKind, SpendingBudget, SpendingEffect
from api.billing.pricing.money import nanos_per_minor
from api.billing.pricing.periods import BillingPeriod, period_of
from api.quotas.actions import hold_queue, hold_sends, resume_sending, stop_sending
from api.quotas.errors import no_such_account
from api.quotas.models import QuotaHolder
from api.quotas.selectors import holder_of
from frontend.authn.principal import Principal, service

BUDGETS = service("budgets")
TOO_MANY, REFUSED = "too many mails", "refused by the mail server"


def set_effects(
    account: Account,
    period: BillingPeriod,
    used_up: Sequence[SpendingBudget],
    just_used_up: Collection[SpendingBudget],
    currency: str,
) -> int:
    """Part of the caller's transaction, with the account locked. How many of the account and its queues send again.
    `just_used_up`: those of `used_up` that were not, as they are now, when this month was judged before."""
    rows = SpendingEffect.objects.filter(account=account).select_related("budget")
    now = {_scope_of(one): one for one in rows}
    due: dict[EffectScope, list[SpendingBudget]] = {}
    for budget in used_up:
        due.setdefault(_scope_of(budget), []).append(budget)
    ended: dict[UUID | None, SpendingBudget] = {}
    # The account's stop before its throttle: where both end at once, the event is the stop's.
    for scope in sorted({**now, **due}, key=lambda one: one.effect != BudgetEffect.STOP):
        was = _set_effect(account, scope, period, now.get(scope), _strongest(due.get(scope, ())), just_used_up)
        if was is not None:
            ended.setdefault(scope.queue_uuid, was)
    held = set(SpendingEffect.objects.filter(account=account).values_list("queue_uuid", flat=True))
    nothing = NOTHING_SPENT._replace(currency=currency)
    return sum(
        note_event(was, period, BudgetEventKind.RESUME, 0, nothing)
        for queue_uuid, was in ended.items()
        if queue_uuid not in held
    )


@transaction.atomic
def lift_stop(operator: Principal, account_id: str) -> QuotaHolder:
    """The account sends again. Where a budget had stopped it, its customer reads so among the budget's events. Raises
    QuotaProblem."""
    locked_account(account_id, no_such_account)
    holder = holder_of(account_id)
    was_stopped = holder is not None and bool(holder.sending_stopped)
    resumed = resume_sending(operator, account_id)
    rows = SpendingEffect.objects.filter(account_id=account_id, queue_uuid=None, effect=BudgetEffect.STOP)
    lifted = rows.select_related("budget").first()
    if was_stopped and lifted is not None:
        stops = BudgetEvent.objects.filter(budget=lifted.budget, kind=BudgetEventKind.STOP).order_by("-id")
        currency = stops.values_list("currency", flat=True).first() or NOTHING_SPENT.currency
        nothing = NOTHING_SPENT._replace(currency=currency)
        note_event(lifted.budget, period_of(lifted.period_start), BudgetEventKind.LIFT, 0, nothing)
    return resumed


class EffectScope(NamedTuple):
    """What has one effect at most: a queue, or the account for each of the two. `effect` empty: any."""

    queue_uuid: UUID | None
    effect: str


def _scope_of(one: SpendingEffect | SpendingBudget) -> EffectScope:
    return EffectScope(one.queue_uuid, one.effect if one.queue_uuid is None else "")


def note_event(
    budget: SpendingBudget,
    period: BillingPeriod,
    kind: BudgetEventKind,
    percent: int,
    spending: MonthSpending,
) -> int:
    """1 where the event is new. The account is locked."""
    of_level = {"period_start": period.start, "generation": budget.generation, "kind": kind, "percent": percent}
    if BudgetEvent.objects.filter(budget=budget, **of_level).exists():
        return 0
    now = clock.now()
    too_many = _mails_of_hour(budget.account_id, now) + len(budget.mail_to) > limits.BUDGET_MAILS_PER_HOUR_MAX
    why_not = TOO_MANY if budget.mail_to and too_many else ""
    BudgetEvent.objects.create(
        budget=budget, account_id=budget.account_id, budget_name=budget.name, limit_minor=budget.limit_minor,
        # A budget is used up also where a row cannot hold what was spent.
        spent_minor=min(spending.nanos(budget.queue_uuid) // nanos_per_minor(spending.currency), limits.MINOR_HELD_MAX),
        currency=spending.currency, mail_to=budget.mail_to, at=now, not_mailed=why_not,
        mailed_at=None if budget.mail_to and not why_not else now, **of_level,
    )  # fmt: skip
    return 1


def _mails_of_hour(account_id: str, now: datetime) -> int:
    rows = BudgetEvent.objects.filter(account_id=account_id, at__gt=now - timedelta(hours=1), not_mailed="")
    return sum(len(mail_to) for mail_to in rows.values_list("mail_to", flat=True))


def _strongest(used_up: Sequence[SpendingBudget]) -> list[SpendingBudget]:
    """Those of one effect: a stop is stronger."""
    return [budget for budget in used_up if budget.effect == BudgetEffect.STOP] or list(used_up)


def _set_effect(
    account: Account,
    scope: EffectScope,
    period: BillingPeriod,
    now: SpendingEffect | None,
    used_up: Sequence[SpendingBudget],
    just_used_up: Collection[SpendingBudget],
) -> SpendingBudget | None:
    """The budget whose effect has ended, where no other one's takes its place.

    The effect names a budget that is used up: where that budget was raised or deleted, it passes to another one. An
    operator who lifts a stop lifts it for the budgets that were used up by then: one that is used up later stops again.
    """
    later = [budget for budget in used_up if budget in just_used_up]
    if now is not None and later and _is_lifted(now):
        now.delete()
        now, used_up = None, later
    if now is not None and any(one.pk == now.budget_id and one.effect == now.effect for one in used_up):
        SpendingEffect.objects.filter(pk=now.pk).update(period_start=period.start)
        return None
    if now is None and not used_up:
        return None
    was = None if now is None else now.budget
    reason_before = _reason(was) if was is not None and now is not None and now.effect == BudgetEffect.STOP else ""
    if now is not None:
        now.delete()
    budget = used_up[0] if used_up else None
    if budget is not None:
        values = {"effect": budget.effect, "budget": budget, "period_start": period.start, "since": clock.now()}
        SpendingEffect.objects.create(account=account, queue_uuid=scope.queue_uuid, **values)
    if scope.queue_uuid is not None:
        hold_queue(BUDGETS, account.pk, scope.queue_uuid, _stop_reason(budget), *_held_to(budget))
        return was if budget is None else None
    named = budget or was
    assert named is not None
    verb = "resume" if budget is None else budget.effect
    record(BUDGETS, account.pk, f"account.{verb}_sending", f"account:{account.pk}", budget=named.name)
    if scope.effect == BudgetEffect.STOP:
        _stop_account(account, _stop_reason(budget), reason_before)
    else:
        hold_sends(BUDGETS, account.pk, *_held_to(budget))
    return was if budget is None else None


def _is_lifted(effect: SpendingEffect) -> bool:
    """Did an operator let the account send again?"""
    holder = holder_of(effect.account_id)
    may_send = holder is None or not holder.sending_stopped
    return may_send and effect.queue_uuid is None and effect.effect == BudgetEffect.STOP


def _stop_account(account: Account, reason: str, reason_before: str) -> None:
    """An operator's own stop stays."""
    holder = holder_of(account.pk)
    if reason_before != ("" if holder is None else holder.sending_stopped):
        return
    if reason:
        stop_sending(BUDGETS, account.pk, reason)
    elif reason_before:
        resume_sending(BUDGETS, account.pk)


def _stop_reason(budget: SpendingBudget | None) -> str:
    return "" if budget is None or budget.effect != BudgetEffect.STOP else _reason(budget)


def _held_to(budget: SpendingBudget | None) -> tuple[int, str]:
    """So many sends a second, and why."""
    if budget is None or budget.effect != BudgetEffect.THROTTLE:
        return 0, ""
    return THROTTLED_SENDS_PER_S, _reason(budget)


def _reason(budget: SpendingBudget) -> str:
    """What senders are told."""
    return f"The budget {budget.name} of this month is used up."
