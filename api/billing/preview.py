"""What a month would have cost under other terms: its usage as it is known, priced again. Reads only."""

from __future__ import annotations

from typing import Any, NamedTuple

from api.accounts.models import Account
from api.billing.account_month import month_of
from api.billing.errors import invalid
from api.billing.pricing.periods import BillingPeriod
from api.billing.pricing.priced_month import PricedMonth, price_month
from api.billing.pricing.terms import PlanTerms, TermsError, check_complete, parse_terms


class MonthPreview(NamedTuple):
    """Charges before credits and tax: as they are, and as they would be for all of the month."""

    account_id: str
    now: PricedMonth
    then: PricedMonth

    @property
    def difference_minor(self) -> int | None:
        """None: the currencies differ."""
        if self.now.currency != self.then.currency:
            return None
        return self.then.charges_minor - self.now.charges_minor


def terms_given(document: Any) -> PlanTerms:
    """Raises BillingError."""
    try:
        terms = parse_terms(document)
        check_complete(terms)
    except TermsError as error:
        raise invalid(str(error)) from None
    return terms


def preview_month(account: Account, period: BillingPeriod, terms: PlanTerms) -> MonthPreview | None:
    """Settled usage and what is not settled yet. None where the account was not open in the month."""
    month = month_of(account, period, is_provisional=True)
    if month is None:
        return None
    whole = month.spans[0]._replace(
        plan="preview", terms=terms, span_hours=month.interval.hours, open_hours=month.interval.hours,
        usage=[queue for span in month.spans for queue in span.usage],
    )  # fmt: skip
    return MonthPreview(account.pk, month.priced, price_month([whole], [], []))
