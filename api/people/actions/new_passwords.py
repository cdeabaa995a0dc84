"""A new password: by the person who is signed in, or with a token that was mailed. Either ends sessions."""

from __future__ import annotations

from django.db import transaction

from api import clock
from api.people import errands, mails, passwords, rates
from api.people.actions.familiar_sources import note_source
from api.people.actions.sessions import end_sessions, lock_session, require_recent
from api.people.actions.tokens import find_token, make_token, use_up
from api.people.errors import PeopleError, invalid_token
from api.people.mails import normal_email
from api.people.models import Person, PersonSession, PersonToken
from api.people.origin import RequestOrigin
from api.people.tokens import TokenKind

_CHANGED = "The password of your account was changed."


def ask_for_reset(origin: RequestOrigin, email: str) -> None:
    """The rest is an errand: nothing tells whether the address is known. Raises PeopleError."""
    email = normal_email(email)
    rates.charge(rates.RESET_PER_SOURCE, origin.counted)
    rates.charge(rates.RESET_PER_ADDRESS, email)
    errands.leave(lambda: _mail_reset(origin, email))


def reset_password(origin: RequestOrigin, token: str, password: str) -> None:
    """All sessions end; a second factor stays on. Raises PeopleError."""
    rates.charge(rates.TOKEN_PER_SOURCE, origin.counted)
    found = find_token(TokenKind.PASSWORD_RESET, token, clock.now())
    if found is None:
        raise invalid_token()
    passwords.check_rules(password, found.person.email)
    encoded = passwords.hash_password(password)
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=found.person_id)
        if not use_up(found):
            raise invalid_token()
        _set_password(origin, person, encoded, None, "person.reset_password")
        note_source(origin, person, clock.now())  # who reads the person's mail may sign in there


def change_password(origin: RequestOrigin, session: PersonSession, current: str, password: str) -> None:
    """All sessions end but this one. Raises PeopleError."""
    verified = session.person
    require_recent(session, clock.now())
    rates.charge(rates.PASSWORD_PER_PERSON, str(verified.pk))
    passwords.check_rules(password, verified.email)
    if not passwords.verify_password(current, verified.password):
        raise PeopleError("access-denied", "The current password is not right.")
    encoded = passwords.hash_password(password)
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=verified.pk)
        if person.password != verified.password:
            raise PeopleError("access-denied", "The current password is not right.")
        lock_session(session)
        _set_password(origin, person, encoded, session, "person.change_password")


def _set_password(origin: RequestOrigin, person: Person, encoded: str, kept: PersonSession | None, action: str) -> None:
    """With the person locked. Tokens that were mailed or stand between two steps are good no more."""
    person.password = encoded
    person.password_changed_at = clock.now()
    person.save(update_fields=["password", "password_changed_at"])
    PersonToken.objects.filter(person=person).delete()
    rows = PersonSession.objects.filter(person=person)
    ended = end_sessions(origin, rows.exclude(pk=kept.pk) if kept else rows)
    origin.note(person, "", action, f"person:{person.pk}", sessions_ended=ended)
    email = person.email
    transaction.on_commit(lambda: errands.leave(lambda: mails.send_notice(email, _CHANGED)), robust=True)


def _mail_reset(origin: RequestOrigin, email: str) -> None:
    """The errand of a request."""
    with transaction.atomic():
        rows = Person.objects.select_for_update().filter(email=email, email_confirmed_at__isnull=False)
        person = rows.first()
        if person is None:
            return
        token = make_token(person, TokenKind.PASSWORD_RESET, clock.now())
        origin.note(person, "", "person.ask_for_reset", f"person:{person.pk}")
    mails.send_password_reset_token(email, token)
