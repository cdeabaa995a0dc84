"""Reading the audit trail, always of one account."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from django.db.models import Q, QuerySet

from api.audit.models import AuditEntry
from api.audit.refusals import PREFIX

DONE, REFUSED = "done", "refused"
OUTCOMES = (DONE, REFUSED)
# Read at a time, of what is written out.
_ENTRIES_READ = 1_000


class AuditQuery(NamedTuple):
    """Which entries: "" and None leave a part open.

    `action` and `subject` are how these begin; `actor` is the whole name of who acted, or as whom; `outcome` tells what
    was done from what was refused; from `since` on, before `until`.
    """

    action: str = ""
    subject: str = ""
    actor: str = ""
    outcome: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def in_words(self) -> dict[str, str]:
        """What is asked for, of a request and of the trail; nothing of what is left open."""
        asked = {name: value for name, value in self._asdict().items() if value}
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asked.items()}


def entries_of(account_id: str, before: int | None, limit: int, asked: AuditQuery | None = None) -> list[AuditEntry]:
    """The newest first, from the one before the id `before` on."""
    rows = _rows(account_id, asked or AuditQuery())
    if before is not None:
        rows = rows.filter(id__lt=before)
    return list(rows.order_by("-id")[:limit])


def ids_after(account_id: str, after: int, limit: int, asked: AuditQuery) -> list[int]:
    """The oldest first, behind the entry `after`."""
    rows = _rows(account_id, asked).filter(id__gt=after)
    return list(rows.order_by("id").values_list("id", flat=True)[:limit])


def entries_with(account_id: str, ids: list[int]) -> Iterator[list[AuditEntry]]:
    """Some at a time, in the order of ids."""
    for start in range(0, len(ids), _ENTRIES_READ):
        rows = AuditEntry.objects.filter(account_id=account_id, id__in=ids[start : start + _ENTRIES_READ])
        yield list(rows.order_by("id"))


def _rows(account_id: str, asked: AuditQuery) -> QuerySet[AuditEntry]:
    rows = AuditEntry.objects.filter(account_id=account_id)
    if asked.action:
        rows = rows.filter(action__startswith=asked.action)
    if asked.subject:
        rows = rows.filter(subject__startswith=asked.subject)
    if asked.actor:
        rows = rows.filter(Q(actor=asked.actor) | Q(details__acting_as=asked.actor))
    if asked.outcome == REFUSED:
        rows = rows.filter(action__startswith=PREFIX)
    elif asked.outcome == DONE:
        rows = rows.exclude(action__startswith=PREFIX)
    if asked.since is not None:
        rows = rows.filter(at__gte=asked.since)
    if asked.until is not None:
        rows = rows.filter(at__lt=asked.until)
    return rows
