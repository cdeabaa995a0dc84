"""Which work of billing is due: drafts that settled usage made old, months to be issued, budgets of a new month, mails.

Each look is bounded; what is left is found by the next one. Reads only.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from api.accounts.models import Account
from api.billing import limits
from api.billing.models import AccountPlan, BudgetEvent, DailyUsage, Invoice, InvoiceState, SpendingEffect
from api.billing.pricing.periods import BillingPeriod, ceil_hour, period_before, period_of
from api.billing.selectors import merges_so_far
from api.people.models import AccountState

# Months that are looked back at for what is not issued yet.
MONTHS_BACK = 3


def stale_drafts(now: datetime) -> list[tuple[str, BillingPeriod]]:
    """Months with usage, or of accounts with a plan of their own, whose draft does not know of all merges."""
    merges = merges_so_far()
    if not merges:
        return []
    found: list[tuple[str, BillingPeriod]] = []
    for period in open_periods(now):
        fresh = Invoice.objects.filter(account_id=OuterRef("pk"), period_start=period.start).filter(
            Q(state=InvoiceState.ISSUED) | Q(merges=merges)
        )
        rows = _billed_in(period).exclude(Exists(fresh)).order_by("pk").values_list("pk", flat=True)
        found += [(account_id, period) for account_id in rows[: limits.INVOICES_AT_ONCE_MAX]]
    return found


def months_to_issue(now: datetime, settled: datetime | None) -> list[tuple[str, BillingPeriod]]:
    """Months that are over, and the last one of accounts that were closed; settled, and so long ago that hardly any
    record comes late."""
    if settled is None:
        return []
    found: list[tuple[str, BillingPeriod]] = []
    safe = settled - timedelta(hours=limits.CLOSE_AFTER_HOURS)
    for period in open_periods(now):
        issued = Invoice.objects.filter(account_id=OuterRef("pk"), period_start=period.start, state=InvoiceState.ISSUED)
        rows = _billed_in(period).exclude(Exists(issued)).order_by("pk").select_related("life")
        if period.end > safe:
            rows = rows.filter(life__state=AccountState.CLOSED)
        for account in rows[: limits.INVOICES_AT_ONCE_MAX]:
            if period.end <= safe or ceil_hour(account.life.state_since) <= safe:
                found.append((account.pk, period))
    return found


def effects_of_past_months(now: datetime) -> list[str]:
    """The accounts that are held for a month that is over."""
    rows = SpendingEffect.objects.filter(period_start__lt=period_of(now).start)
    return list(rows.values_list("account_id", flat=True).distinct()[: limits.INVOICES_AT_ONCE_MAX])


def unmailed_events() -> list[BudgetEvent]:
    return list(BudgetEvent.objects.filter(mailed_at=None).order_by("pk")[: limits.BUDGET_MAILS_AT_ONCE_MAX])


def open_periods(now: datetime) -> list[BillingPeriod]:
    """The oldest first."""
    periods = [period_of(now)]
    for _ in range(MONTHS_BACK):
        periods.insert(0, period_before(periods[0]))
    return periods


def _billed_in(period: BillingPeriod) -> QuerySet[Account]:
    usage = DailyUsage.objects.filter(account_id=OuterRef("pk"), day__gte=period.start, day__lt=period.end)
    plan = AccountPlan.objects.filter(account_id=OuterRef("pk"), effective_from__lt=period.end)
    rows = Account.objects.filter(created_at__lt=period.end).filter(Exists(usage) | Exists(plan))
    gone = Q(life__state=AccountState.CLOSED, life__state_since__lte=period.start)
    return rows.exclude(gone)
