"""What the work on the schedule did last, and what failed in it. Written by workers, read by operators."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import F

from api import clock
from api.billing import limits
from api.billing.due import UnissuedMonth
from api.billing.models import MonthLook, WorkFailure, WorkRound


class Work(enum.StrEnum):
    DRAFTS = "drafts"
    INVOICES = "invoices"
    DIFFERENCES = "differences"
    BUDGETS = "budgets"
    MAILS = "mails"
    METER = "meter"
    USAGE = "usage"


class FailureSubject(NamedTuple):
    """What failed; `period_start` where it is a month of the account."""

    subject: str
    account_id: str = ""
    period_start: datetime | None = None


@transaction.atomic
def note_round(work: Work, took_ms: int, done: int, trouble: str) -> None:
    """`trouble` empty: it went well."""
    said = trouble[: limits.DETAIL_CHARACTERS_MAX].replace("\0", "?")
    row, is_new = WorkRound.objects.select_for_update().get_or_create(
        pk=work,
        defaults={
            "ended_at": clock.now(), "took_ms": took_ms, "done": done, "trouble": said,
            "troubled_rounds": int(bool(said)),
        },
    )  # fmt: skip
    if not is_new:
        row.ended_at, row.took_ms, row.done, row.trouble = clock.now(), took_ms, done, said
        row.troubled_rounds = row.troubled_rounds + 1 if said else 0
        row.save()


@transaction.atomic
def note_failure(work: Work, about: FailureSubject, error: str) -> None:
    now, said = clock.now(), error[: limits.DETAIL_CHARACTERS_MAX].replace("\0", "?")
    found = WorkFailure.objects.filter(work=work, subject=about.subject)
    if found.update(failures=F("failures") + 1, error=said, last_at=now):
        return
    if WorkFailure.objects.filter(work=work).count() < limits.WORK_FAILURES_KEPT_MAX:
        row = WorkFailure(
            work=work, subject=about.subject, account_id=about.account_id, period_start=about.period_start, failures=1,
            error=said, first_at=now, last_at=now,
        )  # fmt: skip
        WorkFailure.objects.bulk_create([row], ignore_conflicts=True)


def forget_failure(work: Work, subject: str) -> None:
    """It is done."""
    WorkFailure.objects.filter(work=work, subject=subject).delete()


def note_looks(months: Iterable[UnissuedMonth], now: datetime) -> None:
    """Of months that are settled: another one is looked at by every round."""
    rows = [
        MonthLook(
            period_start=month.period.start, looked_at=now, to_issue=len(month.accounts), failing=month.failing
        )
        for month in months
        if month.is_settled
    ]  # fmt: skip
    MonthLook.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["period_start"], update_fields=["looked_at", "to_issue", "failing"]
    )


def failed_subjects(work: Work) -> set[str]:
    rows = WorkFailure.objects.filter(work=work).values_list("subject", flat=True)
    return set(rows[: limits.WORK_FAILURES_KEPT_MAX])


def work_rounds() -> list[WorkRound]:
    return list(WorkRound.objects.order_by("work"))


def work_failures() -> list[WorkFailure]:
    """The ones that failed last first."""
    return list(WorkFailure.objects.order_by("-last_at", "pk")[: limits.WORK_FAILURES_KEPT_MAX])


def work_failure(failure_id: int) -> WorkFailure | None:
    return WorkFailure.objects.filter(pk=failure_id).first()
