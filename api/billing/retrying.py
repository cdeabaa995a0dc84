"""A piece of work on the schedule that failed, tried again because an operator asks for it."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from api.audit.actions import record
from api.billing import work_notes
from api.billing.actions.budgets import judge_budgets, note_mailed
from api.billing.actions.differences import look_at_late_usage
from api.billing.actions.invoices import draft_invoice, issue_invoice
from api.billing.errors import BillingError, not_found
from api.billing.mails import send_budget_mail
from api.billing.models import BudgetEvent, WorkFailure
from api.billing.pricing.periods import period_of
from api.billing.work_notes import FailureSubject, Work
from frontend.authn.principal import Principal


def retry_work(actor: Principal, failure_id: int) -> None:
    """Raises BillingError where it fails again, with the reason."""
    failure = work_notes.work_failure(failure_id)
    if failure is None or failure.work not in _WAYS:
        raise not_found()
    with transaction.atomic():
        record(actor, failure.account_id, "work.retry", f"work:{failure.work}", of=failure.subject)
    work = Work(failure.work)
    try:
        _WAYS[work](actor, failure)
    except Exception as error:
        about = FailureSubject(failure.subject, failure.account_id, failure.period_start)
        work_notes.note_failure(work, about, f"{type(error).__name__}: {error}")
        if isinstance(error, BillingError | OSError):
            raise BillingError("not-settled", f"It failed again: {error}") from None
        raise
    work_notes.forget_failure(work, failure.subject)


def _draft(actor: Principal, failure: WorkFailure) -> None:
    assert failure.period_start is not None
    draft_invoice(failure.account_id, period_of(failure.period_start))


def _issue(actor: Principal, failure: WorkFailure) -> None:
    assert failure.period_start is not None
    issue_invoice(actor, failure.account_id, period_of(failure.period_start))


def _compare(actor: Principal, failure: WorkFailure) -> None:
    assert failure.period_start is not None
    look_at_late_usage(failure.account_id, period_of(failure.period_start))


def _judge(actor: Principal, failure: WorkFailure) -> None:
    judge_budgets(failure.account_id)


def _mail(actor: Principal, failure: WorkFailure) -> None:
    event = BudgetEvent.objects.filter(pk=failure.subject, mailed_at=None).first()
    if event is not None:
        send_budget_mail(event)
        note_mailed(event.pk)


_WAYS: dict[str, Callable[[Principal, WorkFailure], None]] = {
    Work.DRAFTS: _draft,
    Work.INVOICES: _issue,
    Work.DIFFERENCES: _compare,
    Work.BUDGETS: _judge,
    Work.MAILS: _mail,
}
