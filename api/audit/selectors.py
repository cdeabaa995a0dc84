"""Reading the audit trail, always of one account."""

from __future__ import annotations

from api.audit.models import AuditEntry


def entries_of(
    account_id: str, before: int | None, limit: int, action: str = "", subject: str = ""
) -> list[AuditEntry]:
    """The newest first, from the one before the id `before` on; of actions and subjects that begin with these texts."""
    rows = AuditEntry.objects.filter(account_id=account_id)
    if before is not None:
        rows = rows.filter(id__lt=before)
    if action:
        rows = rows.filter(action__startswith=action)
    if subject:
        rows = rows.filter(subject__startswith=subject)
    return list(rows.order_by("-id")[:limit])


def entries_after(account_id: str, after: int, limit: int) -> list[AuditEntry]:
    """The oldest first, behind the entry `after`."""
    return list(AuditEntry.objects.filter(account_id=account_id, id__gt=after).order_by("id")[:limit])
