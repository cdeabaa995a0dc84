"""Writing the audit trail, and removing its old entries, as the schedule does day by day."""

from __future__ import annotations

from django.db import connection, transaction
from django.utils import timezone

from api import limits
from api.audit.models import AuditEntry
from frontend.authn.principal import Principal, operator, service

OPERATOR = operator()
LIFECYCLE = service("lifecycle")


def record(actor: Principal, account_id: str, action: str, subject: str, **details: object) -> None:
    """Part of the caller's transaction. `details` never hold secrets or message contents."""
    if actor.acting_as:
        details["acting_as"] = actor.acting_as
    if actor.source_ip:
        details["source"] = actor.source_ip
    enter(actor.name, actor.request_id, account_id, action, subject, details)


def enter(name: str, request_id: str, account_id: str, action: str, subject: str, details: dict[str, object]) -> None:
    """Of one who is known by the name alone."""
    assert connection.in_atomic_block
    AuditEntry.objects.create(
        at=timezone.now(),
        account_id=account_id,
        actor=name,
        request_id=request_id,
        action=action,
        subject=subject,
        details=details,
    )


def remove_old_entries(days: int) -> int:
    """How many went. 0 days: entries are kept for good. Safe to run twice, and beside itself."""
    if days == 0:
        return 0
    removed = 0
    for _ in range(limits.AUDIT_TRIM_STATEMENTS_MAX):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT audit_remove_old(%s, %s)", (days, limits.AUDIT_TRIM_ENTRIES_MAX))
            gone = int(cursor.fetchone()[0])
            removed += gone
            if gone:
                record(LIFECYCLE, "", "audit.trim", "audit", older_than_days=days, removed=gone)
        if gone < limits.AUDIT_TRIM_ENTRIES_MAX:
            break
    return removed
