"""An account's month from the rows: its plans, its usage, its credits and taxes, priced. Reads only.

All that it reads stays as it was once the month is closed: versions in effect and assignments of the past do not
change, credits count as they were when the invoice was issued. So a closed month is priced again to the same cents.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import NamedTuple

from api.accounts.models import Account
from api.billing.actions.plans import BEGINNING
from api.billing.models import AccountPlan, Invoice, PricePlanVersion
from api.billing.pricing.periods import (
    BillingPeriod,
    Interval,
    PlanChange,
    PlanSpan,
    open_interval,
    period_of,
    plan_spans,
)
from api.billing.pricing.priced_month import (
    CreditLeft,
    PricedMonth,
    QueueQuantities,
    SpanUsage,
    TaxRate,
    price_month,
)
from api.billing.pricing.terms import STANDARD_CODE, parse_terms
from api.billing.provisional import quantities_so_far
from api.billing.selectors import QueuesAsked, account_plans, closed_at, credits_left, quantities_of, versions_of


class AccountMonth(NamedTuple):
    """`is_closing`: the account was closed within the month, at the end of `interval`. `spans` make up `interval`."""

    account: Account
    period: BillingPeriod
    interval: Interval
    is_closing: bool
    priced: PricedMonth
    spans: list[SpanUsage]


class Terms(NamedTuple):
    """Which version holds from when on, and the taxes at the end."""

    changes: list[PlanChange]
    versions: dict[int, PricePlanVersion]
    taxes: list[TaxRate]


def open_within(account: Account, period: BillingPeriod) -> Interval:
    """The part of the period in which it was open; without hours: none."""
    return open_interval(period, account.created_at, closed_at(account.pk))


def month_of(
    account: Account,
    period: BillingPeriod,
    made_by: datetime | None = None,
    credits: list[CreditLeft] | None = None,
    is_provisional: bool = False,
    queues: QueuesAsked = None,
) -> AccountMonth | None:
    """None where the account was not open in the month. `made_by`: as it was when the invoice was issued; `credits`:
    these, and not the account's; `is_provisional`: with the hours that are not settled, as far as they are known.
    `queues`: there are shares of these alone; the database sums the others up. Lines and totals are the same, a share
    may differ by one nano for each meter."""
    closed = closed_at(account.pk)
    interval = open_interval(period, account.created_at, closed)
    if not interval.hours:
        return None
    terms = terms_of(account.pk, interval)
    read = partial(quantities_so_far if is_provisional else quantities_of, queues=queues)
    spans = [
        _span_usage(account.pk, span, terms, interval, period, read) for span in plan_spans(interval, terms.changes)
    ]
    if credits is None:
        credits = credits_left(account.pk, spans[0].terms.currency, period, made_by)
    is_closing = closed is not None and closed < period.end
    return AccountMonth(account, period, interval, is_closing, price_month(spans, credits, terms.taxes), spans)


def terms_of(account_id: str, interval: Interval) -> Terms:
    """Every account has the standard plan until it is given another."""
    held: list[tuple[datetime, str, AccountPlan | None]] = [(BEGINNING, STANDARD_CODE, None)]
    held += [(row.effective_from, row.plan_id, row) for row in account_plans(account_id)]
    versions = versions_of([code for _, code, _ in held])
    changes: list[PlanChange] = []
    taxes: list[TaxRate] = []
    for place, (since, code, row) in enumerate(held):
        until = held[place + 1][0] if place + 1 < len(held) else interval.end
        if since >= interval.end:
            break
        if until <= since:
            continue  # an account's own plan from BEGINNING on: the standard plan never held
        of_plan = [version for version in versions if version.plan_id == code]
        in_force = [version for version in of_plan if version.effective_from <= since]
        changes.append(PlanChange(since, in_force[-1].pk))
        changes += [
            PlanChange(version.effective_from, version.pk)
            for version in of_plan
            if since < version.effective_from < until
        ]
        taxes = [] if row is None else [TaxRate(tax["name"], tax["rate_ppm"]) for tax in row.taxes]
    return Terms(changes, {version.pk: version for version in versions}, taxes)


def _span_usage(
    account_id: str,
    span: PlanSpan,
    terms: Terms,
    interval: Interval,
    period: BillingPeriod,
    read: Callable[[str, Interval], list[QueueQuantities]],
) -> SpanUsage:
    version = terms.versions[span.version_id]
    return SpanUsage(
        version.plan_id,
        str(version),
        parse_terms(version.terms),
        span.interval.hours,
        interval.hours,
        Interval(*period).hours,
        read(account_id, span.interval),
    )


def recomputed(invoice: Invoice) -> AccountMonth:
    """An issued invoice's month, priced again from what the rows say today."""
    assert invoice.issued_at is not None
    month = month_of(invoice.account, period_of(invoice.period_start), made_by=invoice.issued_at)
    assert month is not None
    return month
