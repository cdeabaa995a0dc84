"""Spending budgets, the levels that were reached, and what is held because a budget is used up."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from api.accounts.models import Account
from api.billing import limits
from api.limits import ACCOUNT_ID_DIGITS


class BudgetEffect(models.TextChoices):
    """What happens at 100 %, until the month ends or the budget is changed: only its alerts; sends are held to a low
    rate; sends are refused."""

    ALERT = "alert"
    THROTTLE = "throttle"
    STOP = "stop"


class SpendingBudget(models.Model):
    """A sum for each month's charges (before credits and tax) of an account, or of one of its queues."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="budgets", db_index=False)
    name = models.CharField(max_length=limits.BUDGET_NAME_CHARACTERS_MAX)
    queue_uuid = models.UUIDField(null=True)
    limit_minor = models.BigIntegerField()
    alert_percents = models.JSONField(default=list)
    effect = models.CharField(default=BudgetEffect.ALERT, choices=BudgetEffect.choices, max_length=8)
    mail_to = models.JSONField(default=list)
    # Raised by each change: its alerts come again.
    generation = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    modified_at = models.DateTimeField()

    class Meta:
        db_table = "spending_budget"
        constraints = (
            models.UniqueConstraint(fields=["account", "name"], name="spending_budget_name"),
            models.CheckConstraint(condition=Q(effect__in=BudgetEffect.values), name="spending_budget_effect"),
        )

    def __str__(self) -> str:
        return f"{self.account_id} {self.name}"


class BudgetEventKind(models.TextChoices):
    ALERT = "alert"
    THROTTLE = "throttle"
    STOP = "stop"
    RESUME = "resume"
    # An operator lifted the stop, for the rest of the month.
    LIFT = "lift"


class BudgetEvent(models.Model):
    """A level that was reached. `mailed_at` is null until its mail was handed over, or given up (`not_mailed`).

    `over_minor`, of a stop or throttle: how far the month went beyond the limit, as far as it is counted. It grows
    while that stands: by what was sent until front ends heard of it, and by what deliveries and storage cost since.
    """

    budget = models.ForeignKey(SpendingBudget, on_delete=models.SET_NULL, null=True, related_name="events")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    budget_name = models.CharField(max_length=limits.BUDGET_NAME_CHARACTERS_MAX)
    generation = models.IntegerField()
    period_start = models.DateTimeField()
    kind = models.CharField(max_length=8, choices=BudgetEventKind.choices)
    percent = models.IntegerField()
    spent_minor = models.BigIntegerField()
    limit_minor = models.BigIntegerField()
    over_minor = models.BigIntegerField(default=0)
    currency = models.CharField(max_length=3)
    mail_to = models.JSONField(default=list)
    at = models.DateTimeField()
    mailed_at = models.DateTimeField(null=True)
    # Why no mail was sent; empty: one was, or will be, or there is no address.
    not_mailed = models.CharField(max_length=40, default="")

    class Meta:
        db_table = "budget_event"
        constraints = (
            models.UniqueConstraint(
                fields=["budget", "period_start", "generation", "kind", "percent"], name="budget_event_once"
            ),
        )
        indexes = (
            models.Index(fields=["account_id", "-id"], name="budget_event_by_account"),
            models.Index(fields=["id"], condition=Q(mailed_at=None), name="budget_event_unmailed"),
        )

    def __str__(self) -> str:
        return f"{self.budget_name} {self.kind} {self.percent}"


class SpendingEffect(models.Model):
    """What a budget that is used up does to the account (`queue_uuid` None), or to a queue of it, now. A queue has one;
    the account may have a throttle beside a stop, which an operator may lift. The records of the account and of the
    queue say so in the change feed (`sending_stopped`, `sends_per_s`)."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="spending_effects", db_index=False)
    queue_uuid = models.UUIDField(null=True)
    effect = models.CharField(choices=BudgetEffect.choices, max_length=8)
    budget = models.ForeignKey(SpendingBudget, on_delete=models.CASCADE, related_name="+")
    period_start = models.DateTimeField()
    since = models.DateTimeField()

    class Meta:
        db_table = "spending_effect"
        constraints = (
            models.UniqueConstraint(
                fields=["account", "queue_uuid"], condition=Q(queue_uuid__isnull=False), name="spending_effect_of_queue"
            ),
            models.UniqueConstraint(
                fields=["account", "effect"], condition=Q(queue_uuid=None), name="spending_effect_of_account"
            ),
            models.CheckConstraint(
                condition=Q(effect__in=[BudgetEffect.THROTTLE, BudgetEffect.STOP]), name="spending_effect_holds"
            ),
        )

    def __str__(self) -> str:
        return f"{self.account_id} {self.queue_uuid or ''} {self.effect}"
