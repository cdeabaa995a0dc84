"""A visit of an operator who acts as a member ends with its session: the trail of the account tells when."""

from __future__ import annotations

from django.db.models import QuerySet

from api import clock
from api.audit.actions import record
from api.people.models import ActingVisit, PersonSession
from api.people.origin import RequestOrigin
from frontend.authn.principal import Principal


def end_visits(origin: RequestOrigin, sessions: QuerySet[PersonSession]) -> int:
    """In the transaction that ends the sessions, before their rows go. How many visits there were; one whose time was
    over has ended as its beginning tells."""
    found = ActingVisit.objects.select_for_update(of=("self",)).select_related("member", "session")
    visits = list(found.filter(session__in=sessions))
    for visit in visits:
        if visit.ends_at > clock.now():
            note_visit(origin, visit, "acting.end")
        visit.delete()
    return len(visits)


def note_visit(origin: RequestOrigin, visit: ActingVisit, action: str, **details: object) -> None:
    account_id, person_id = visit.member.account_id, visit.member.person_id
    record(actor_acting(origin, visit), account_id, action, f"person:{person_id}", **details)


def actor_acting(origin: RequestOrigin, visit: ActingVisit) -> Principal:
    """Both names."""
    return origin.member(visit.member.account_id, visit.session.person_id, visit.member.person_id)
