"""Which work of billing is due: drafts that settled usage made old, months to be issued, budgets of a new month, mails.

Each look is bounded; what is left is found by the next one. Reads only.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import CharField, Exists, F, FilteredRelation, OuterRef, Q, QuerySet, Window
from django.db.models.functions import Cast, RowNumber

from api.accounts.models import Account
from api.billing import limits
from api.billing.models import (
    AccountPlan,
    BudgetEvent,
    DailyUsage,
    Invoice,
    InvoiceState,
    LateUsage,
    MonthLook,
    ProvisionalUsage,
    SpendingEffect,
    WorkFailure,
)
from api.billing.pricing.periods import BillingPeriod, Interval, ceil_hour, period_before, period_of
from api.billing.pricing.terms import STANDARD_CODE, parse_terms
from api.billing.selectors import first_account_opened, merges_so_far, versions_of
from api.people.models import AccountState

# Months whose drafts are kept up to date, beside the current one; all before are issued from what is settled then.
MONTHS_BACK = 3


class UnissuedMonth(NamedTuple):
    """`accounts`: INVOICES_AT_ONCE_MAX of those whose invoice is due, those that failed last; `failing`: how many of
    them did. `is_settled`: all of the month is, else only accounts that were closed are due."""

    period: BillingPeriod
    accounts: list[str]
    failing: int
    is_settled: bool


def stale_drafts(now: datetime) -> list[tuple[str, BillingPeriod]]:
    """Months that are billed and whose draft does not know of all merges, the drafts that were made first first. No
    merge changes a draft without usage: such a one is made again once a day (QUIET_DRAFT_HOURS)."""
    merges = merges_so_far()
    if not merges:
        return []
    found: list[tuple[str, BillingPeriod]] = []
    quiet = now - timedelta(hours=limits.QUIET_DRAFT_HOURS)
    for period in open_periods(now):
        draft = FilteredRelation("invoices", condition=Q(invoices__period_start=period.start))
        # What a draft charges may have gone since, with the last row of usage: that one is made again, too.
        charged = Q(draft__state=InvoiceState.DRAFT, draft__charges_minor__gt=0)
        rows = _open_in(period).annotate(draft=draft).filter(_owing(period) | charged)
        old = Q(draft__merges=None) | Q(draft__merges__lt=merges) | Q(draft__merges__gt=merges)
        is_due = Exists(_usage_in(period)) | Q(draft__made_at__lte=quiet)
        rows = rows.filter(Q(draft__pk=None) | Q(draft__state=InvoiceState.DRAFT) & old & is_due)
        rows = rows.order_by(F("draft__made_at").asc(nulls_first=True), "pk")
        accounts = rows.values_list("pk", flat=True)[: limits.INVOICES_AT_ONCE_MAX]
        found += [(account_id, period) for account_id in accounts]
    return found


def months_to_issue(now: datetime, settled: datetime | None) -> list[tuple[str, BillingPeriod]]:
    """Months that are over, and the last one of accounts that were closed; settled, and so long ago that hardly any
    record comes late. The oldest first."""
    return [(account_id, month.period) for month in unissued_months(now, settled) for account_id in month.accounts]


def unissued_months(now: datetime, settled: datetime | None) -> list[UnissuedMonth]:
    """What a round of closing looks at: the oldest months that may lack an invoice, and always the last ones."""
    if settled is None:
        return []
    return [unissued_month(period, settled) for period in [*older_open_periods(now), *open_periods(now)]]


def unissued_month(period: BillingPeriod, settled: datetime | None) -> UnissuedMonth:
    if settled is None:
        return UnissuedMonth(period, [], 0, False)
    safe = settled - timedelta(hours=limits.CLOSE_AFTER_HOURS)
    failure = WorkFailure.objects.filter(account_id=OuterRef("pk"), work="invoices", period_start=period.start)
    rows = _unissued_in(period).annotate(failed=Exists(failure)).order_by("failed", "pk")
    rows = rows.select_related("life")
    is_settled = period.end <= safe
    if not is_settled:
        rows = rows.filter(life__state=AccountState.CLOSED)
    found = [
        account
        for account in rows[: limits.INVOICES_AT_ONCE_MAX]
        if is_settled or ceil_hour(account.life.state_since) <= safe
    ]
    return UnissuedMonth(period, [row.pk for row in found], sum(row.failed for row in found), is_settled)


def late_months() -> list[tuple[str, BillingPeriod]]:
    """Months that are issued and whose usage changed: the ones that changed first first."""
    issued = Invoice.objects.filter(
        account_id=OuterRef("account_id"), period_start=OuterRef("period_start"), state=InvoiceState.ISSUED
    )
    rows = LateUsage.objects.filter(Exists(issued)).order_by("changed_at", "account_id", "period_start")
    found = rows.values_list("account_id", "period_start")[: limits.INVOICES_AT_ONCE_MAX]
    return [(account_id, period_of(start)) for account_id, start in found]


def effects_of_past_months(now: datetime) -> list[str]:
    """The accounts that are held for a month that is over."""
    rows = SpendingEffect.objects.filter(period_start__lt=period_of(now).start)
    return list(rows.values_list("account_id", flat=True).distinct()[: limits.INVOICES_AT_ONCE_MAX])


def unmailed_events() -> list[BudgetEvent]:
    """Those that failed when they were tried last come last; of the others each account's first one, then each one's
    second: many mails of one account, or such as no server takes, keep no other account's waiting."""
    failure = WorkFailure.objects.filter(work="mails", subject=Cast(OuterRef("pk"), CharField()))
    turn = Window(RowNumber(), partition_by=F("account_id"), order_by=[F("failed").asc(), F("pk").asc()])
    rows = BudgetEvent.objects.filter(mailed_at=None).annotate(failed=Exists(failure)).annotate(turn=turn)
    return list(rows.order_by("failed", "turn", "pk")[: limits.BUDGET_MAILS_AT_ONCE_MAX])


def open_periods(now: datetime) -> list[BillingPeriod]:
    """The current month and those before it that are always looked at, the oldest first."""
    periods = [period_of(now)]
    for _ in range(MONTHS_BACK):
        periods.insert(0, period_before(periods[0]))
    return periods


def older_open_periods(now: datetime) -> list[BillingPeriod]:
    """Months before these, since the first account was opened, that may lack an invoice: the oldest first,
    OLD_MONTHS_AT_ONCE_MAX of them. One that lacked none is looked at again once a day (usage may come late, or a plan
    be given), one that lacked none but those that fail once an hour."""
    opened, end = first_account_opened(), open_periods(now)[0].start
    if opened is None:
        return []
    rests = Q(to_issue=0, looked_at__gt=now - timedelta(hours=limits.CLOSED_MONTH_REST_HOURS))
    rests |= Q(to_issue=F("failing"), looked_at__gt=now - timedelta(hours=limits.FAILING_MONTH_REST_HOURS))
    resting = set(MonthLook.objects.filter(rests).values_list("period_start", flat=True))
    found: list[BillingPeriod] = []
    period = period_of(opened)
    while period.start < end and len(found) < limits.OLD_MONTHS_AT_ONCE_MAX:
        if period.start not in resting:
            found.append(period)
        period = period_of(period.end)
    return found


def is_billed(account_id: str, period: BillingPeriod) -> bool:
    """Will the account have an invoice of this month, as things stand?"""
    return _billed_in(period).filter(pk=account_id).exists()


def is_owed(period: BillingPeriod) -> bool:
    """Does an account lack an invoice of the month: by what is settled, or was used and is not settled yet?"""
    used = ProvisionalUsage.objects.filter(hour__gte=period.start, hour__lt=period.end)
    return _unissued_in(period).exists() or used.exists()


def _unissued_in(period: BillingPeriod) -> QuerySet[Account]:
    issued = Invoice.objects.filter(account_id=OuterRef("pk"), period_start=period.start, state=InvoiceState.ISSUED)
    return _billed_in(period).exclude(Exists(issued))


def _billed_in(period: BillingPeriod) -> QuerySet[Account]:
    """Accounts that were open in the month, and used something, or have a plan of their own, or owe what the standard
    plan takes of those that use nothing."""
    return _open_in(period).filter(_owing(period))


def _open_in(period: BillingPeriod) -> QuerySet[Account]:
    return Account.objects.filter(created_at__lt=period.end).exclude(_closed_by(period.start))


def _owing(period: BillingPeriod) -> Q:
    plan = AccountPlan.objects.filter(account_id=OuterRef("pk"), effective_from__lt=period.end)
    owing = Q(Exists(_usage_in(period))) | Q(Exists(plan))
    for span in _standard_fees(period):
        owing |= Q(created_at__lt=span.end) & ~_closed_by(span.start)
    return owing


def _usage_in(period: BillingPeriod) -> QuerySet[DailyUsage]:
    """Of the account that the query is about."""
    return DailyUsage.objects.filter(account_id=OuterRef("pk"), day__gte=period.start, day__lt=period.end)


def _closed_by(at: datetime) -> Q:
    return Q(life__state=AccountState.CLOSED, life__state_since__lte=at)


def _standard_fees(period: BillingPeriod) -> list[Interval]:
    """The parts of the month in which the standard plan has a base fee or a minimum."""
    versions = versions_of([STANDARD_CODE])
    found = []
    for place, version in enumerate(versions):
        until = versions[place + 1].effective_from if place + 1 < len(versions) else period.end
        part = Interval(max(version.effective_from, period.start), min(until, period.end))
        terms = parse_terms(version.terms)
        if part.hours and (terms.base_fee_minor or terms.minimum_minor):
            found.append(part)
    return found
