"""Price plans in versions, which plan an account has from when on, and credits."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from api.accounts.models import Account
from api.billing import limits


class PricePlan(models.Model):
    code = models.CharField(primary_key=True, max_length=limits.PLAN_CODE_CHARACTERS_MAX)
    name = models.CharField(max_length=limits.PLAN_NAME_CHARACTERS_MAX)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "price_plan"

    def __str__(self) -> str:
        return self.code


class PricePlanVersion(models.Model):
    """Terms, from an hour on. Before that hour the version may be withdrawn; from then on nothing changes it."""

    plan = models.ForeignKey(PricePlan, on_delete=models.PROTECT, related_name="versions", db_index=False)
    number = models.IntegerField()
    effective_from = models.DateTimeField()
    terms = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "price_plan_version"
        constraints = (
            models.UniqueConstraint(fields=["plan", "number"], name="plan_version_number"),
            models.UniqueConstraint(fields=["plan", "effective_from"], name="plan_version_since"),
        )

    def __str__(self) -> str:
        return f"{self.plan_id}@{self.number}"


class AccountPlan(models.Model):
    """The plan and the taxes of an account, from an hour on. Taxes: `[{"name", "rate_ppm"}]`."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="plans", db_index=False)
    plan = models.ForeignKey(PricePlan, on_delete=models.PROTECT, related_name="+")
    effective_from = models.DateTimeField()
    taxes = models.JSONField(default=list)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "account_plan"
        constraints = (models.UniqueConstraint(fields=["account", "effective_from"], name="account_plan_since"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.plan_id} {self.effective_from}"


class BillingCredit(models.Model):
    """What is left of it: `amount_minor` less the credit lines of issued invoices that name it."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="billing_credits")
    name = models.CharField(max_length=limits.CREDIT_NAME_CHARACTERS_MAX)
    currency = models.CharField(max_length=3)
    amount_minor = models.BigIntegerField()
    granted_at = models.DateTimeField()
    # Months that begin at or after this get nothing of it.
    ends_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "credit"
        constraints = (models.CheckConstraint(condition=Q(amount_minor__gt=0), name="credit_positive"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.name}"
