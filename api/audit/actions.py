"""Writing the audit trail."""

from __future__ import annotations

from typing import NamedTuple

from django.db import connection
from django.utils import timezone

from api.audit.models import AuditEntry


class Actor(NamedTuple):
    """On whose behalf an action runs."""

    name: str
    request_id: str = ""
    # As whom an operator acts.
    acting_as: str = ""
    # The address that the call came from.
    source: str = ""


OPERATOR = Actor("operator")
LIFECYCLE = Actor("lifecycle")


def record(actor: Actor, account_id: str, action: str, subject: str, **details: object) -> None:
    """Part of the caller's transaction. `details` never hold secrets or message contents."""
    assert connection.in_atomic_block
    if actor.acting_as:
        details["acting_as"] = actor.acting_as
    if actor.source:
        details["source"] = actor.source
    AuditEntry.objects.create(
        at=timezone.now(),
        account_id=account_id,
        actor=actor.name,
        request_id=actor.request_id,
        action=action,
        subject=subject,
        details=details,
    )
