"""Sign-up: an address is given with a password, and confirmed with the token that was mailed to it and that password.

Nothing tells whether the address is known: the request is counted, its password hashed, and the rest is an errand. The
password stays with the token until the confirmation, so that who signs up with an address of another person gains
nothing when that person follows the mail: the confirmation wants the password of the same sign-up.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import NamedTuple

from django.db import IntegrityError, transaction

from api import clock
from api.accounts.actions import get_or_create_account
from api.accounts.models import Account
from api.people import errands, limits, mails, passwords, rates
from api.people.actions.tokens import find_token, make_token, note_wrong_attempt, use_up
from api.people.errors import PeopleError, invalid_token
from api.people.mails import normal_email
from api.people.models import AccountLife, AccountMembership, Person, PersonToken
from api.people.origin import RequestOrigin
from api.people.roles import MemberRole
from api.people.tokens import TokenKind


class Enrolled(NamedTuple):
    person: Person
    account_id: str


def sign_up(origin: RequestOrigin, email: str, password: str) -> None:
    """Raises PeopleError, for reasons that do not depend on whether the address is known."""
    email = normal_email(email)
    rates.charge(rates.SIGN_UP_PER_SOURCE, origin.counted)
    rates.charge(rates.SIGN_UP_PER_ADDRESS, email)
    passwords.check_rules(password, email)
    encoded = passwords.hash_password(password)
    errands.leave(lambda: _enrol(origin, email, encoded))


def confirm(origin: RequestOrigin, token: str, password: str, name: str, title: str) -> Enrolled:
    """The address is the person's, and an account is made of which the person is the owner. Raises PeopleError."""
    check_printable(name, "name", limits.PERSON_NAME_CHARACTERS_MAX)
    check_printable(title, "account_title", limits.ACCOUNT_TITLE_CHARACTERS_MAX)
    rates.charge(rates.TOKEN_PER_SOURCE, origin.counted)
    found = find_token(TokenKind.SIGN_UP, token, clock.now())
    if not passwords.verify_password(password, found.password if found else "") or found is None:
        if found is not None:
            note_wrong_attempt(found)
        raise invalid_token()
    return _confirm(origin, found, name, title)


def check_printable(text: str, member: str, longest: int) -> None:
    if len(text) > longest or not text.isprintable():
        raise PeopleError("invalid-request", f"{member} has at most {longest} printable characters.")


def _enrol(origin: RequestOrigin, email: str, encoded: str) -> None:
    """The errand of a sign-up."""
    try:
        token = _new_token(origin, email, encoded)
    except IntegrityError:  # another sign-up of the address was first
        token = _new_token(origin, email, encoded)
    if token is None:
        mails.send_known_address(email)
    else:
        mails.send_sign_up_token(email, token)


@transaction.atomic
def _new_token(origin: RequestOrigin, email: str, encoded: str) -> str | None:
    """None: the address is that of a person who has confirmed it."""
    now = clock.now()
    person = Person.objects.select_for_update().filter(email=email).first()
    if person is None:
        person = Person.objects.create(email=email, created_at=now)
        origin.note(person, "", "person.sign_up", f"person:{person.pk}")
    if person.email_confirmed_at is not None:
        return None
    return make_token(person, TokenKind.SIGN_UP, now, encoded)


@transaction.atomic
def _confirm(origin: RequestOrigin, token: PersonToken, name: str, title: str) -> Enrolled:
    person = Person.objects.select_for_update().get(pk=token.person_id)
    if person.email_confirmed_at is not None or not use_up(token):
        raise invalid_token()
    now = clock.now()
    person.password, person.name = token.password, name
    person.email_confirmed_at = person.password_changed_at = now
    person.save(update_fields=["password", "name", "email_confirmed_at", "password_changed_at"])
    PersonToken.objects.filter(person=person).delete()
    origin.note(person, "", "person.confirm", f"person:{person.pk}")
    return Enrolled(person, open_account(origin, person, title or person.email, now).pk)


def open_account(origin: RequestOrigin, person: Person, title: str, now: datetime) -> Account:
    """In the caller's transaction. The unique name is a random one: a chosen one would tell which names exist."""
    account = get_or_create_account(origin.member("", person.pk), f"people-{uuid.uuid4().hex}")
    AccountLife.objects.create(account=account, title=title, state_since=now)
    AccountMembership.objects.create(account=account, person=person, role=MemberRole.OWNER, created_at=now)
    origin.note(person, account.pk, "member.add", f"person:{person.pk}", role=MemberRole.OWNER)
    return account
