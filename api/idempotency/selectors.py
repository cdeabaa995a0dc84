"""Reading what requests with idempotency keys were answered, always of one caller."""

from __future__ import annotations

from datetime import datetime, timedelta

from api import limits
from api.idempotency.asked import AskedOutcome
from api.idempotency.models import IdempotentOutcome


def outcome_of(asked: AskedOutcome, now: datetime) -> IdempotentOutcome | None:
    """None where there was no such request within the time that outcomes are kept."""
    rows = IdempotentOutcome.objects.filter(account_id=asked.account_id, actor=asked.actor, key_hash=asked.key_hash)
    return rows.filter(at__gt=_kept_since(now)).first()


def has_room(asked: AskedOutcome, now: datetime) -> bool:
    """Of the account; of the person where there is no account. Requests at the same moment may all see the last room:
    as many as a front end passes on at once (CONTROL_CALLS_IN_FLIGHT_MAX)."""
    rows = IdempotentOutcome.objects.filter(account_id=asked.account_id, at__gt=_kept_since(now))
    if not asked.account_id:
        rows = rows.filter(actor=asked.actor)
    last = limits.IDEMPOTENCY_KEYS_PER_ACCOUNT_MAX
    return rows[:last].count() < last


def _kept_since(now: datetime) -> datetime:
    return now - timedelta(seconds=limits.IDEMPOTENCY_KEPT_S)
