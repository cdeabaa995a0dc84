"""One round of work each: what is due, until it is done or the slice is over. Safe to run twice, and beside itself.

A slice is shorter than the broker's patience, so no round is given to a second worker while it runs; the next tick goes
on where one ended. An account that fails is logged, and the others are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from smtplib import SMTPRecipientsRefused
from time import monotonic
from typing import TypeVar

import structlog
from prometheus_client import Counter

from api import clock
from api.alarms.notifications import is_final
from api.billing import due, work_notes
from api.billing.actions import budgets, invoices
from api.billing.actions.differences import look_at_late_usage
from api.billing.errors import BillingError
from api.billing.limits import BILLING_SLICE_S
from api.billing.mails import send_budget_mail
from api.billing.models import BudgetEvent
from api.billing.pricing.periods import BillingPeriod
from api.billing.provisional import meter_reading
from api.billing.selectors import settled_up_to
from api.billing.work_notes import FailureSubject, Work
from api.settings.environment import billing_interval_s
from api.settings.server_urls import DATABASE_URL, server_url
from workers.limits import METER_CLAIM_KEY, METER_JUDGE_S_MAX
from workers.schedule import ScheduleLock
from workers.storage import storage
from workers.usage import meter_round

_log = structlog.get_logger(__name__)
T = TypeVar("T")
DIFFERENCES_FOUND = Counter(
    "penstock_billing_differences_found_total", "Times that usage, which came later, disagreed with an issued invoice."
)
Month = tuple[str, BillingPeriod]


def refresh_drafts() -> int:
    """Drafts that settled usage made old, and the budgets of their accounts. How many drafts were made."""
    return _each(Work.DRAFTS, due.stale_drafts(clock.now()), _draft, _of_month)


def issue_months() -> int:
    """Months that are settled, the oldest first. How many invoices were issued."""
    now = clock.now()
    months = due.unissued_months(now, settled_up_to())
    found = [(account_id, month.period) for month in months for account_id in month.accounts]
    done = _each(Work.INVOICES, found, _issue, _of_month)
    work_notes.note_looks(months, now)
    return done


def find_differences() -> int:
    """Invoices that usage, which came later, disagrees with; each difference is told once. How many were looked at."""
    return _each(Work.DIFFERENCES, due.late_months(), _compare, _of_month)


def watch_budgets() -> int:
    """Stops of months that are over, and mails that wait. How many of both."""
    ended = _each(Work.BUDGETS, due.effects_of_past_months(clock.now()), budgets.judge_budgets, _of_account)
    return ended + _each(Work.MAILS, due.unmailed_events(), _mail, _of_event)


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
    # One of a large account takes longer than the broker's patience: no second thread waits for it.
    invoices.draft_invoice(*month, waits=False)


def _issue(month: Month) -> None:
    invoices.issue_invoice(invoices.BILLING, *month)


def _compare(month: Month) -> None:
    found = look_at_late_usage(*month)
    if found is not None:
        DIFFERENCES_FOUND.inc()
        _log.warning(
            "usage_after_invoice", account_id=month[0], period=month[1].name, invoice=found.invoice.number,
            total_minor=found.total_minor, currency=found.invoice.currency,
        )  # fmt: skip


def _mail(event: BudgetEvent) -> None:
    try:
        send_budget_mail(event)
    except SMTPRecipientsRefused as error:
        if not is_final(error):
            raise
        budgets.give_up_mail(event.pk)
    else:
        budgets.note_mailed(event.pk)


def _of_month(month: Month) -> FailureSubject:
    return FailureSubject(f"{month[0]} {month[1].name}", month[0], month[1].start)


def _of_account(account_id: str) -> FailureSubject:
    return FailureSubject(account_id, account_id)


def _of_event(event: BudgetEvent) -> FailureSubject:
    return FailureSubject(str(event.pk), event.account_id)


def _each(work: Work, found: Iterable[T], do: Callable[[T], object], subject_of: Callable[[T], FailureSubject]) -> int:
    failed_before = work_notes.failed_subjects(work)
    ends_s = monotonic() + min(BILLING_SLICE_S, billing_interval_s())
    done = 0
    for one in found:
        if monotonic() > ends_s:
            break
        try:
            do(one)
            done += 1
        except Exception as error:
            _note_failure(work, subject_of(one), error)
        else:
            if (subject := subject_of(one)).subject in failed_before:
                work_notes.forget_failure(work, subject.subject)
    return done


def _note_failure(work: Work, subject: FailureSubject, error: Exception) -> None:
    if isinstance(error, BillingError | OSError):
        _log.warning("billing_failed", work=work.value, error=type(error).__name__, detail=str(error))
    else:
        _log.exception("billing_failed", work=work.value)
    work_notes.note_failure(work, subject, f"{type(error).__name__}: {error}")
