"""What an operator reads of the money of all accounts. Never called for a member."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import BigIntegerField, Case, Count, F, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce

from api.accounts.models import Account
from api.billing import due, limits
from api.billing.models import (
    AccountPlan,
    CreditNote,
    Invoice,
    InvoiceDifference,
    InvoicePayment,
    InvoiceState,
    NoteKind,
    PricePlan,
    PricePlanVersion,
    ProvisionalUsage,
    UsageRun,
)
from api.billing.open_months import months_with_reasons
from api.billing.pricing.periods import DAY, BillingPeriod, period_before

# Figures of counts that only say "many" stop here.
COUNTED_MAX = 10_000
TOP_ACCOUNTS = 50
UNPAID_LISTED_MAX = 100
DIFFERENCES_LISTED_MAX = 100
# A day counts as unusual from so many times the days before on, and so many units.
UNUSUAL_TIMES, UNUSUAL_UNITS_MIN, UNUSUAL_DAYS = 3, 1_000, 7


class MonthState(NamedTuple):
    """`sums`: (state, currency, invoices, charges_minor, total_minor). `stale` is cut at a bound. `why_open`: what
    keeps it open; empty: nothing is left to do."""

    period: BillingPeriod
    sums: list[tuple[str, str, int, int, int]]
    notes: int
    stale: int
    why_open: str


class TopAccount(NamedTuple):
    account_id: str
    title: str
    currency: str
    charges_minor: int
    before_minor: int | None

    @property
    def change_minor(self) -> int:
        return self.charges_minor - (self.before_minor or 0)


class UnusualDay(NamedTuple):
    """`units`: sent on that day; `before`: a day, of those before."""

    account_id: str
    day: datetime
    units: int
    before: int


class UnpaidInvoice(NamedTuple):
    """`due_minor`: what is left to pay, with corrections."""

    number: str
    account_id: str
    title: str | None
    period_start: datetime
    currency: str
    total_minor: int
    due_minor: int


def month_states(now: datetime) -> list[MonthState]:
    """The last months, and older ones that are open, the latest first."""
    stale = due.stale_drafts(now)
    return [
        MonthState(
            month.period,
            _sums(month.period),
            CreditNote.objects.filter(invoice__period_start=month.period.start).count(),
            sum(one == month.period for _, one in stale),
            "; ".join(month.reasons),
        )
        for month in reversed(months_with_reasons(now))
    ]


def _sums(period: BillingPeriod) -> list[tuple[str, str, int, int, int]]:
    rows = Invoice.objects.filter(period_start=period.start).values("state", "currency").order_by("state", "currency")
    sums = rows.annotate(invoices=Count("pk"), charges=Sum("charges_minor"), total=Sum("total_minor"))
    return [(row["state"], row["currency"], row["invoices"], row["charges"], row["total"]) for row in sums]


def unpaid_invoices() -> list[UnpaidInvoice]:
    """Of all months: the oldest first, UNPAID_LISTED_MAX at most."""
    owed = Case(When(kind=NoteKind.DEBIT, then=F("total_minor")), default=-F("total_minor"))
    notes = _sum_of(CreditNote.objects.all(), owed)
    rows = Invoice.objects.filter(state=InvoiceState.ISSUED).annotate(
        due=F("total_minor") + notes - _sum_of(InvoicePayment.objects.all(), F("amount_minor")),
        title=F("account__life__title"),
    )
    found = rows.filter(due__gt=0).order_by("period_start", "number")
    fields = ("number", "account_id", "title", "period_start", "currency", "total_minor", "due")
    return [UnpaidInvoice(*row) for row in found.values_list(*fields)[:UNPAID_LISTED_MAX]]


def invoice_differences() -> list[InvoiceDifference]:
    """Of all months, what was found first first: DIFFERENCES_LISTED_MAX at most."""
    rows = InvoiceDifference.objects.select_related("invoice__account__life").order_by("found_at", "pk")
    return list(rows[:DIFFERENCES_LISTED_MAX])


def _sum_of(rows: QuerySet[Any], amount: Any) -> Coalesce:
    """Of the rows of an invoice."""
    sums = rows.filter(invoice=OuterRef("pk")).order_by().values("invoice").annotate(all=Sum(amount)).values("all")
    return Coalesce(Subquery(sums, output_field=BigIntegerField()), Value(0))


def provisional_rows() -> int:
    """Up to COUNTED_MAX."""
    return ProvisionalUsage.objects.all()[:COUNTED_MAX].count()


def usage_runs(before: datetime | None) -> list[UsageRun]:
    """The latest first."""
    rows = UsageRun.objects.all() if before is None else UsageRun.objects.filter(started_at__lt=before)
    return list(rows.order_by("-started_at")[: limits.USAGE_RUNS_LISTED_MAX])


def top_accounts(period: BillingPeriod) -> list[TopAccount]:
    """By charges of the month, drafts and issued ones, with those of the month before."""
    earlier = Invoice.objects.filter(
        account=OuterRef("account"), period_start=period_before(period).start, currency=OuterRef("currency")
    )
    rows = Invoice.objects.filter(period_start=period.start).annotate(
        before=Subquery(earlier.values("charges_minor")[:1]), title=F("account__life__title")
    )
    fields = ("account_id", "title", "currency", "charges_minor", "before")
    found = rows.order_by("-charges_minor", "account_id").values(*fields)[:TOP_ACCOUNTS]
    return [
        TopAccount(row["account_id"], row["title"] or "", row["currency"], row["charges_minor"], row["before"])
        for row in found
    ]


_UNUSUAL = """
SELECT account_id, units, round(before) FROM (
    SELECT account_id, coalesce(sum(sent_units) FILTER (WHERE day = %(day)s), 0) AS units,
           coalesce(sum(sent_units) FILTER (WHERE day < %(day)s), 0) / %(days)s AS before
      FROM daily_usage WHERE day >= %(from)s AND day <= %(day)s GROUP BY account_id) d
 WHERE greatest(units, before) >= %(least)s AND (units > %(times)s * before OR before > %(times)s * units)
 ORDER BY greatest(units, before) DESC, account_id LIMIT %(limit)s
"""


def unusual_accounts(settled: datetime | None) -> list[UnusualDay]:
    """Accounts whose last settled day was far from the days before it, up or down."""
    if settled is None:
        return []
    day = settled.replace(hour=0, minute=0, second=0, microsecond=0) - DAY
    given: dict[str, datetime | int] = {
        "day": day, "from": day - UNUSUAL_DAYS * DAY, "days": UNUSUAL_DAYS, "least": UNUSUAL_UNITS_MIN,
        "times": UNUSUAL_TIMES, "limit": TOP_ACCOUNTS,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_UNUSUAL, given)
        return [UnusualDay(account_id, day, int(units), int(before)) for account_id, units, before in cursor.fetchall()]


# --- plans ---


class PlanRow(NamedTuple):
    plan: PricePlan
    versions: list[PricePlanVersion]
    accounts: int

    def had(self, version: PricePlanVersion) -> bool:
        """With other terms: it was replaced, and is no further one."""
        return version.number <= self.versions[-1].number


def price_plans() -> list[PlanRow]:
    """`accounts`: those that were given it once."""
    plans = PricePlan.objects.prefetch_related("versions").order_by("code")
    given = AccountPlan.objects.values("plan_id").annotate(accounts=Count("account_id", distinct=True))
    counts = {row["plan_id"]: int(row["accounts"]) for row in given}
    return [
        PlanRow(plan, sorted(plan.versions.all(), key=lambda one: one.number), counts.get(plan.pk, 0)) for plan in plans
    ]


def price_plan(code: str) -> PlanRow | None:
    return next((row for row in price_plans() if row.plan.pk == code), None)


def accounts_billed_most(period: BillingPeriod, text: str, limit: int) -> list[tuple[Account, Invoice]]:
    """With an invoice or draft of the month; `text` is an id, or the beginning of one."""
    rows = Invoice.objects.filter(Q(period_start=period.start)).select_related("account")
    if text:
        rows = rows.filter(account__id__startswith=text)
    return [(row.account, row) for row in rows.order_by("-charges_minor", "account_id")[:limit]]
