"""An operator acts as a member of an account: for a while, for a reason, in one session.

The trail of the account tells the beginning, with the time at which the visit is over at the latest, and the end where
the operator ends it before, or the session ends (`visit_ends.py`). Every entry between them has both names.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.db import transaction

from api import clock
from api.accounts.selectors import locked_account
from api.people import limits
from api.people.actions.enrolment import check_printable
from api.people.actions.sessions import require_recent
from api.people.actions.visit_ends import end_visits, note_visit
from api.people.errors import PeopleError, not_found
from api.people.models import AccountMembership, ActingVisit, PersonSession
from api.people.origin import RequestOrigin
from api.people.selectors import is_operator, membership_of


@transaction.atomic
def begin_acting(
    origin: RequestOrigin, session: PersonSession, account_id: str, person_id: uuid.UUID, reason: str
) -> ActingVisit:
    """Ends a visit before it. Raises PeopleError."""
    now = clock.now()
    if not is_operator(session.person):
        raise not_found()
    require_recent(session, now)
    if not reason:
        raise PeopleError("invalid-request", "Say why: the reason is kept in the account's audit log.")
    check_printable(reason, "reason", limits.ACTING_REASON_CHARACTERS_MAX)
    if membership_of(session.person, account_id) is not None:
        raise PeopleError("already-member", "You are a member of this account: use your own role in it.")
    # First, as where a member is removed: no visit is left over to a member who goes at this moment.
    locked_account(account_id, not_found)
    members = AccountMembership.objects.select_related("person", "account__life")
    member = members.filter(account_id=account_id, person_id=person_id).first()
    if member is None:
        raise not_found()
    # Two visits that begin at once are one after the other. The session may have ended in between.
    if PersonSession.objects.select_for_update().filter(pk=session.pk).first() is None:
        raise not_found()
    end_acting(origin, session)
    visit = ActingVisit.objects.create(
        session=session,
        member=member,
        reason=reason,
        begun_at=now,
        ends_at=now + timedelta(seconds=limits.ACTING_S_MAX),
    )
    note_visit(origin, visit, "acting.begin", reason=reason, ends_at=str(visit.ends_at))
    return visit


@transaction.atomic
def end_acting(origin: RequestOrigin, session: PersonSession) -> bool:
    """False where none had begun."""
    return bool(end_visits(origin, PersonSession.objects.filter(pk=session.pk)))


@transaction.atomic
def note_request(origin: RequestOrigin, visit: ActingVisit, operation: str, queue: str) -> None:
    """What the operator asks a front end for, before it is asked: messages are read and changed there."""
    note_visit(origin, visit, "acting.request", queue=queue, operation=operation)
