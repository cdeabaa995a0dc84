"""The only writer of outcomes: what a request was answered, and when that is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import DatabaseError, InterfaceError, connection

from api import clock, limits
from api.call_places import connection_kept
from api.idempotency.asked import AskedOutcome
from api.idempotency.models import IdempotentOutcome


@contextmanager
def held_lock(number: int) -> Iterator[bool]:
    """An advisory lock of this database session; False: another request holds it. It falls with the session, so a
    process that dies leaves none behind."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [number])
        is_held = bool(cursor.fetchone()[0])
    try:
        with connection_kept():
            yield is_held
    finally:
        if is_held:
            _release(number)


def remember(asked: AskedOutcome, status: int, sealed: bytes, holds_secret: bool) -> None:
    """In the caller's transaction, with the lock of `asked` held. Takes the place of an outcome whose time is over."""
    IdempotentOutcome.objects.update_or_create(
        account_id=asked.account_id,
        actor=asked.actor,
        key_hash=asked.key_hash,
        defaults={
            "request_hash": asked.request_hash,
            "status": status,
            "sealed": sealed,
            "holds_secret": holds_secret,
            "at": clock.now(),
        },
    )


def forget_old_outcomes() -> int:
    """Outcomes whose time is over, and what is sealed of answers that showed secrets. How many outcomes went."""
    now = clock.now()
    shown = IdempotentOutcome.objects.filter(holds_secret=True, at__lte=secrets_kept_since(now))
    shown.exclude(sealed=b"").update(sealed=b"")
    old = IdempotentOutcome.objects.filter(at__lte=now - timedelta(seconds=limits.IDEMPOTENCY_KEPT_S))
    ids = list(old.order_by("at").values_list("pk", flat=True)[: limits.IDEMPOTENCY_FORGOTTEN_AT_ONCE_MAX])
    removed, _ = IdempotentOutcome.objects.filter(pk__in=ids).delete()
    return removed


def secrets_kept_since(now: datetime) -> datetime:
    return now - timedelta(seconds=limits.IDEMPOTENCY_SECRET_KEPT_S)


def _release(number: int) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [number])
    except (DatabaseError, InterfaceError):
        connection.close()  # and with the session its locks
