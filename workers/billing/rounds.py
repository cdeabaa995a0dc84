"""One round of work each: what is due, until it is done or the slice is over. Safe to run twice, and beside itself.

A slice is shorter than the broker's patience, so no round is given to a second worker while it runs; the next tick goes
on where one ended. An account that fails is logged, and the others are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import TypeVar

import structlog

from api import clock
from api.billing import due
from api.billing.actions import budgets, invoices
from api.billing.errors import BillingError
from api.billing.limits import BILLING_SLICE_S
from api.billing.mails import send_budget_mail
from api.billing.models import BudgetEvent
from api.billing.pricing.periods import BillingPeriod
from api.billing.provisional import meter_reading
from api.billing.selectors import settled_up_to
from api.settings.environment import billing_interval_s
from api.settings.server_urls import DATABASE_URL, server_url
from workers.limits import METER_CLAIM_KEY, METER_JUDGE_S_MAX
from workers.schedule import ScheduleLock
from workers.storage import storage
from workers.usage import meter_round

_log = structlog.get_logger(__name__)
T = TypeVar("T")
Month = tuple[str, BillingPeriod]


def refresh_drafts() -> int:
    """Drafts that settled usage made old, and the budgets of their accounts. How many drafts were made."""
    return _each("draft", due.stale_drafts(clock.now()), _draft)


def issue_months() -> int:
    """Months that are settled. How many invoices were issued."""
    return _each("issue", due.months_to_issue(clock.now(), settled_up_to()), _issue)


def watch_budgets() -> int:
    """Stops of months that are over, and mails that wait. How many of both."""
    ended = _each("resume", due.stops_of_past_months(clock.now()), budgets.judge_budgets)
    return ended + _each("mail", due.unmailed_events(), _mail)


def read_meter() -> int:
    """A look of the live meter, and the budgets of those that used more. How many accounts that were."""
    claim = ScheduleLock(server_url(DATABASE_URL), METER_CLAIM_KEY)
    try:
        # A look may take longer than a tick.
        if not claim.hold() or not meter_round.is_due(meter_reading(), clock.now()):
            return 0
        found = meter_round.look(storage())
        ends_s = monotonic() + METER_JUDGE_S_MAX
        meter_round.judge_spending(found.accounts, lambda: monotonic() > ends_s)
        return len(found.accounts)
    finally:
        claim.release()


def _draft(month: Month) -> None:
    invoices.draft_invoice(*month)


def _issue(month: Month) -> None:
    invoices.issue_invoice(invoices.BILLING, *month)


def _mail(event: BudgetEvent) -> None:
    send_budget_mail(event)
    budgets.note_mailed(event.pk)


def _each(work: str, found: Iterable[T], do: Callable[[T], object]) -> int:
    ends_s = monotonic() + min(BILLING_SLICE_S, billing_interval_s())
    done = 0
    for one in found:
        if monotonic() > ends_s:
            break
        try:
            do(one)
            done += 1
        except (BillingError, OSError) as error:
            _log.warning("billing_failed", work=work, error=type(error).__name__, detail=str(error))
        except Exception:
            _log.exception("billing_failed", work=work)
    return done
