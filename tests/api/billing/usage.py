"""Rows of usage for tests: one queue's hour, with what a test says differs."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from api.billing.pricing.periods import HOUR, Interval, period_before, period_of
from api.billing.settling import SettledRun, UsageRow, settle

NOW = period_of(datetime.now(UTC))
# A month that is over, so that it can be settled and closed by the real clock.
PERIOD = period_before(period_before(NOW))
MONTH = PERIOD.start
MONTH_HOURS = Interval(*PERIOD).hours
QUEUE = uuid.UUID(int=7)


def month_hour(number: int) -> datetime:
    return MONTH + number * HOUR


def row(account_id: str, hour: int = 0, **given: Any) -> UsageRow:
    base = UsageRow(account_id, month_hour(hour), QUEUE, 12, "client")
    return base._replace(**given)


def hours(first: int, count: int) -> Interval:
    return Interval(month_hour(first), month_hour(first + count))


def settle_rows(rows: list[UsageRow], first: int = 0, count: int = 1, recount: bool = False) -> SettledRun:
    return settle(uuid.uuid4(), hours(first, count), rows, recount)


def settle_month(rows: list[UsageRow]) -> SettledRun:
    """All of the month, and the hours after it that a close waits for."""
    return settle_rows(rows, 0, MONTH_HOURS + 6)


def open_since(account_id: str, at: datetime = MONTH) -> None:
    from api.accounts.models import Account

    Account.objects.filter(pk=account_id).update(created_at=at)


def forget_usage() -> None:
    """All that was settled goes, as if a recount had found nothing."""
    from api.billing.models import DailyUsage, UsageHours

    for model in (UsageHours, DailyUsage):
        model.objects.all().delete()


def make_queue(account_id: str, name: str, **tags: str) -> uuid.UUID:
    """A row like that of a queue, which storage knows nothing of."""
    from django.utils import timezone

    from api.queues.models import Queue, QueueStatus

    now = timezone.now()
    made = Queue.objects.create(
        account_id=account_id, name=name, uuid=uuid.uuid4(), attributes={}, tags=tags, state=QueueStatus.ACTIVE,
        observed_generation=1, created_at=now, modified_at=now, next_attempt_at=now, version=1,
    )  # fmt: skip
    return made.uuid
