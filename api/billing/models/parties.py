"""Who sells and who buys, as invoices and notes name them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from api.accounts.models import Account
from api.billing import limits


class BillingParty(models.Model):
    """The seller (`account` is null), or the buyer that an account is. What an invoice names is copied into it when it
    is made: a change here changes no issued one."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    name = models.CharField(max_length=limits.PARTY_LINE_CHARACTERS_MAX)
    # Lines of text, as are those of `payment`.
    address = models.JSONField(default=list)
    tax_id = models.CharField(max_length=limits.PARTY_LINE_CHARACTERS_MAX, default="")
    # Of the seller alone: how to pay, and within how many days of the day of issue; null: no day is named.
    payment = models.JSONField(default=list)
    payment_days = models.IntegerField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "billing_party"
        constraints = (
            # NULLs are equal here: there is one seller.
            models.UniqueConstraint(fields=["account"], name="billing_party_once", nulls_distinct=False),
            models.CheckConstraint(
                condition=Q(account=None) | Q(payment=[], payment_days=None), name="billing_party_payment_of_seller"
            ),
        )

    def __str__(self) -> str:
        return self.account_id or "seller"
