"""How long entries of the audit trail are kept: the schedule removes older ones, day by day."""

from __future__ import annotations

from django.db import connection, transaction

from api import limits
from api.audit.actions import LIFECYCLE, record


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
