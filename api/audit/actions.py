"""Writing the audit trail."""

from __future__ import annotations

from django.db import connection
from django.utils import timezone

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
