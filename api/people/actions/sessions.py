"""Sign-in, in one step or two, and the sessions that come of it.

Whatever a refused sign-in lacks (the person, the confirmation, the password), the answer is the same and one hash was
verified. With a second factor on, the password earns a challenge token, and that token with a code earns the session.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import QuerySet

from api import clock
from api.people import limits, passwords, rates
from api.people.actions.factors import use_code
from api.people.actions.familiar_sources import charge_sign_in, note_source
from api.people.actions.tokens import find_token, make_token, note_wrong_attempt, use_up
from api.people.actions.visit_ends import end_visits
from api.people.errors import PeopleError, invalid_token, not_signed_in
from api.people.mails import normal_email
from api.people.models import Person, PersonSession
from api.people.origin import RequestOrigin
from api.people.selectors import has_second_factor
from api.people.tokens import TokenKind, hash_token, mint_token


class NewSession(NamedTuple):
    """The only moment at which the token is known."""

    session: PersonSession
    token: str


class Challenge(NamedTuple):
    """The password was right; a code is wanted."""

    token: str


def sign_in(origin: RequestOrigin, email: str, password: str) -> NewSession | Challenge:
    """Raises PeopleError."""
    email = normal_email(email)
    rates.charge(rates.SIGN_IN_PER_SOURCE, origin.counted)
    charge_sign_in(origin, email, clock.now())
    person = Person.objects.filter(email=email).first()
    if not passwords.verify_password(password, person.password if person else "") or person is None:
        raise _refused()
    renewed = passwords.hash_password(password) if passwords.is_outdated(person.password) else None
    return _signed_in(origin, person, renewed)


def answer_challenge(origin: RequestOrigin, token: str, code: str) -> NewSession:
    """The second step. Raises PeopleError."""
    rates.charge(rates.TOKEN_PER_SOURCE, origin.counted)
    now = clock.now()
    found = find_token(TokenKind.CHALLENGE, token, now)
    if found is None:
        raise invalid_token()
    rates.charge(rates.CODE_PER_PERSON, str(found.person_id))
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=found.person_id)
        method = use_code(person, code, now)
        if method is not None and use_up(found):
            return begin_session(origin, person, now, method)
        transaction.set_rollback(method is not None)  # the code was right, and the token used by another request
    note_wrong_attempt(found)
    raise invalid_token()


def authenticate_again(origin: RequestOrigin, session: PersonSession, password: str, code: str) -> PersonSession:
    """The session may change security settings for RECENT_AUTHENTICATION_S_MAX. Raises PeopleError."""
    person = session.person
    rates.charge(rates.PASSWORD_PER_PERSON, str(person.pk))
    if not passwords.verify_password(password, person.password):
        raise _refused()
    with transaction.atomic():
        locked = Person.objects.select_for_update().get(pk=person.pk)
        now = clock.now()
        wants_code = has_second_factor(locked)
        if locked.password != person.password or (wants_code and use_code(locked, code, now) is None):
            raise _refused()
        lock_session(session)
        session.authenticated_at = now
        session.save(update_fields=["authenticated_at"])
        origin.note(locked, "", "session.authenticate", f"session:{session.pk}")
    return session


def require_recent(session: PersonSession, now: datetime) -> None:
    if now - session.authenticated_at >= timedelta(seconds=limits.RECENT_AUTHENTICATION_S_MAX):
        raise PeopleError(
            "recent-authentication-required", "Give the password (and code) again, then repeat this within ten minutes."
        )


def lock_session(session: PersonSession) -> None:
    """In the transaction of a change that the session asks for, with the person locked: the session may have been ended
    while a password was verified. Raises PeopleError."""
    if not PersonSession.objects.select_for_update().filter(pk=session.pk).exists():
        raise not_signed_in()


def note_session_seen(session: PersonSession, now: datetime) -> None:
    """At most once per SESSION_SEEN_EVERY_S; no entry of the audit trail."""
    if now - session.last_seen_at >= timedelta(seconds=limits.SESSION_SEEN_EVERY_S):
        session.last_seen_at = now
        PersonSession.objects.filter(pk=session.pk, last_seen_at__lt=now).update(last_seen_at=now)


@transaction.atomic
def end_session(origin: RequestOrigin, person: Person, session_id: uuid.UUID) -> bool:
    """False where the person has no such session."""
    if not end_sessions(origin, PersonSession.objects.filter(person=person, pk=session_id)):
        return False
    origin.note(person, "", "session.end", f"session:{session_id}")
    return True


@transaction.atomic
def end_all_sessions(origin: RequestOrigin, person: Person, but: PersonSession | None = None) -> int:
    """How many there were."""
    rows = PersonSession.objects.filter(person=person)
    ended = end_sessions(origin, rows.exclude(pk=but.pk) if but else rows)
    origin.note(person, "", "session.end_all", f"person:{person.pk}", ended=ended)
    return ended


@transaction.atomic
def _signed_in(origin: RequestOrigin, verified: Person, renewed: str | None) -> NewSession | Challenge:
    person = Person.objects.select_for_update().get(pk=verified.pk)
    if person.password != verified.password:
        raise _refused()  # changed since it was verified
    now = clock.now()
    if renewed is not None:
        person.password = renewed
        person.save(update_fields=["password"])
    if has_second_factor(person):
        return Challenge(make_token(person, TokenKind.CHALLENGE, now))
    return begin_session(origin, person, now, "password")


def begin_session(origin: RequestOrigin, person: Person, now: datetime, method: str) -> NewSession:
    """With the person locked."""
    theirs = PersonSession.objects.filter(person=person)
    kept = theirs.order_by("-last_seen_at", "-id").values_list("pk", flat=True)[: limits.SESSIONS_PER_PERSON_MAX - 1]
    end_sessions(origin, theirs.exclude(pk__in=list(kept)))
    token = mint_token(TokenKind.SESSION)
    session = PersonSession.objects.create(
        person=person, token_hash=hash_token(TokenKind.SESSION, token), source=origin.source,
        user_agent=origin.user_agent, created_at=now, last_seen_at=now, authenticated_at=now,
    )  # fmt: skip
    note_source(origin, person, now)
    origin.note(person, "", "session.begin", f"session:{session.pk}", method=method)
    return NewSession(session, token)


def end_sessions(origin: RequestOrigin, sessions: QuerySet[PersonSession]) -> int:
    """In the caller's transaction, with what was made in them: visits, tickets. How many sessions there were. Their
    rows are locked first, as they are where a visit or a ticket is made: none is left without its session."""
    ids = list(sessions.select_for_update().order_by("pk").values_list("pk", flat=True))
    if ids:
        locked = PersonSession.objects.filter(pk__in=ids)
        end_visits(origin, locked)
        locked.delete()
    return len(ids)


def _refused() -> PeopleError:
    return PeopleError("sign-in-refused", "The address, the password or the code is not right.")
