"""The live meter: what a month costs so far, settled and provisional usage through the same prices. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from api.accounts.models import Account
from api.billing import limits
from api.billing.account_month import AccountMonth, month_of
from api.billing.forecast import forecast_minor
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.money import nanos_per_minor
from api.billing.pricing.periods import BillingPeriod
from api.billing.pricing.priced_month import LineKind, PricedMonth
from api.billing.provisional import meter_reading, provisional_quantities_of
from api.billing.selectors import QueuesAsked, settled_up_to


class MonthSpending(NamedTuple):
    """Usage and fees of a month so far; a minimum that may still be reached by usage is not spent yet."""

    currency: str
    charges_minor: int
    queues: Mapping[UUID, int]

    def nanos(self, queue_uuid: UUID | None) -> int:
        """Of the account, or of one queue's usage."""
        if queue_uuid is not None:
            return self.queues.get(queue_uuid, 0)
        return self.charges_minor * nanos_per_minor(self.currency)


NOTHING_SPENT = MonthSpending("USD", 0, {})


class CostMeter(NamedTuple):
    """`charges_minor` is `settled_minor` and `provisional_minor`, before credits and tax; `total_minor` is after them.
    `as_of`: all that was acknowledged before is counted; `is_live`: that is not long ago, and nothing is missing.
    `forecast_minor`: charges of the whole month, if it goes on like this. `month`: settled and provisional."""

    period: BillingPeriod
    currency: str
    settled_minor: int
    provisional_minor: int
    charges_minor: int
    total_minor: int
    forecast_minor: int | None
    settled_up_to: datetime | None
    as_of: datetime | None
    is_live: bool
    missing: str
    provisional: dict[UsageMeter, int]
    month: AccountMonth


def cost_meter(account: Account, period: BillingPeriod, now: datetime, queues: QueuesAsked = None) -> CostMeter | None:
    """None where the account was not open in the month. `queues`: its month has shares of these alone."""
    # Before the figures: they may hold more than this says, never less.
    reading, settled_end = meter_reading(), settled_up_to()
    settled = month_of(account, period, queues=())
    whole = month_of(account, period, is_provisional=True, queues=queues)
    if settled is None or whole is None:
        return None
    before, with_provisional = charges_of(settled.priced), charges_of(whole.priced)
    fresh = reading.as_of is not None and now - reading.as_of <= timedelta(seconds=limits.METER_LIVE_S)
    return CostMeter(
        period=period,
        currency=whole.priced.currency,
        settled_minor=before,
        provisional_minor=with_provisional - before,
        charges_minor=with_provisional,
        total_minor=whole.priced.total_minor,
        forecast_minor=forecast_minor(whole, max(filter(None, (reading.as_of, settled_end)), default=None)),
        settled_up_to=settled_end,
        as_of=reading.as_of,
        is_live=fresh and not reading.missing,
        missing=reading.missing,
        provisional=_sums(account.pk, whole),
        month=whole,
    )


def month_spending(account: Account, period: BillingPeriod, queues: Sequence[UUID]) -> MonthSpending:
    """What budgets are compared with, those of the account and of these queues."""
    month = month_of(account, period, is_provisional=True, queues=queues)
    return NOTHING_SPENT if month is None else spending_in(month)


def spending_in(month: AccountMonth) -> MonthSpending:
    queues: dict[UUID, int] = {}
    for share in month.priced.shares:
        queues[share.queue_uuid] = queues.get(share.queue_uuid, 0) + share.amount_nanos
    return MonthSpending(month.priced.currency, charges_of(month.priced), queues)


def charges_of(month: PricedMonth) -> int:
    """Usage and fees."""
    return month.sum_of(LineKind.USAGE, LineKind.FEE)


def _sums(account_id: str, month: AccountMonth) -> dict[UsageMeter, int]:
    sums = dict.fromkeys(UsageMeter, 0)
    for queue in provisional_quantities_of(account_id, month.interval, queues=()):
        for meter, quantity in queue.quantities.items():
            sums[meter] += quantity
    return sums
