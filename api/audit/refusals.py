"""Calls that were refused by authorisation, in the audit trail of the account that asked.

The first of a kind (account, caller, action, resource) is an entry at once. Those that follow within REFUSAL_WINDOW_S
are counted, and become one entry when the time is over. So a flood makes two entries an hour of a kind, and there are
at most REFUSALS_PER_ACTOR_MAX kinds of a caller and REFUSALS_PER_ACCOUNT_MAX of an account at a time: what goes beyond
is counted together, under "*". What is refused to an operator who acts as a member is an entry each, with both names.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

import structlog
from django.db import transaction

from api import clock, limits
from api.audit.actions import enter
from api.audit.models import RefusalTally
from api.outage import DATABASE_AWAY
from frontend.limits import REFUSED_RESOURCE_CHARS_MAX, SOURCE_CHARS_MAX

PREFIX = "refused."
OTHERS = "*"

_log = structlog.get_logger(__name__)


class Refusal(NamedTuple):
    """`action` is that of policies, `resource` an ARN."""

    account_id: str
    actor: str
    action: str
    resource: str
    source: str = ""
    calls: int = 1
    request_id: str = ""
    # The member as whom an operator asked.
    acting_as: str = ""


def note_refusals(refusals: Iterable[Refusal]) -> None:
    """Transactions of its own: what was refused is rolled back. A refusal stays one where this cannot be written."""
    try:
        for refusal in refusals:
            _note(refusal)
    except DATABASE_AWAY as error:
        _log.warning("refusals_not_noted", error=type(error).__name__)


@transaction.atomic
def _note(refusal: Refusal) -> None:
    # As the caller wrote them: a name may be long, or hold what no row can.
    kind = (refusal.actor, refusal.action, refusal.resource.replace("\0", "")[:REFUSED_RESOURCE_CHARS_MAX])
    refusal = refusal._replace(source=refusal.source[:SOURCE_CHARS_MAX])
    if refusal.acting_as:
        told = {"source": refusal.source, "acting_as": refusal.acting_as}
        _write(refusal.account_id, kind, refusal.request_id, count=refusal.calls, **told)
        return
    tally = _locked(refusal.account_id, kind)
    now = clock.now()
    if tally is None:
        kind = _bounded(refusal.account_id, kind)
        tally, is_first = RefusalTally.objects.select_for_update().get_or_create(
            account_id=refusal.account_id,
            **dict(zip(("actor", "action", "subject"), kind, strict=True)),
            defaults={"opened_at": now, "last_at": now, "source": refusal.source},
        )
        if is_first:
            _write(refusal.account_id, kind, refusal.request_id, count=refusal.calls, source=refusal.source)
            return
    tally.count += refusal.calls
    tally.last_at, tally.source = now, refusal.source
    tally.save(update_fields=["count", "last_at", "source"])


def close_refusal_windows() -> int:
    """Writes what was counted since the first call of its kind, where the time for that is over. How many kinds."""
    due = clock.now() - timedelta(seconds=limits.REFUSAL_WINDOW_S)
    with transaction.atomic():
        rows = RefusalTally.objects.select_for_update(skip_locked=True).filter(opened_at__lt=due).order_by("opened_at")
        closed = list(rows[: limits.REFUSAL_KINDS_CLOSED_MAX])
        for tally in closed:
            if tally.count:
                kind = (tally.actor, tally.action, tally.subject)
                since, until = tally.opened_at.isoformat(), tally.last_at.isoformat()
                _write(tally.account_id, kind, count=tally.count, source=tally.source, since=since, until=until)
        RefusalTally.objects.filter(pk__in=[tally.pk for tally in closed]).delete()
    return len(closed)


def _locked(account_id: str, kind: tuple[str, str, str]) -> RefusalTally | None:
    actor, action, subject = kind
    rows = RefusalTally.objects.select_for_update().filter(account_id=account_id, actor=actor)
    return rows.filter(action=action, subject=subject).first()


def _bounded(account_id: str, kind: tuple[str, str, str]) -> tuple[str, str, str]:
    rows = RefusalTally.objects.filter(account_id=account_id)
    if rows.count() >= limits.REFUSALS_PER_ACCOUNT_MAX:
        return OTHERS, OTHERS, OTHERS
    if rows.filter(actor=kind[0]).count() >= limits.REFUSALS_PER_ACTOR_MAX:
        return kind[0], OTHERS, OTHERS
    return kind


def _write(account_id: str, kind: tuple[str, str, str], request_id: str = "", **details: object) -> None:
    actor, action, subject = kind
    enter(actor, request_id, account_id, PREFIX + action, subject, details)
