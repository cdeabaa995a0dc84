"""Passkeys in the place of codes and passwords: a sign-in, its second step, authentication again.

A passkey proves two things at once, the device and that it has verified its person, so one that the device keeps with
the name of its person signs in without a password. Whatever a refused answer lacks, the text is the same, its challenge
is gone, and one signature was verified.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction

from api import clock
from api.people import passkey_responses, rates
from api.people.actions.passkey_challenges import Purpose, make_challenge, take_challenge
from api.people.actions.passkeys import required_party
from api.people.actions.sessions import NewSession, begin_session, lock_session
from api.people.actions.tokens import find_token, note_wrong_attempt, use_up
from api.people.errors import PeopleError, invalid_token, passkey_refused
from api.people.models import Passkey, Person, PersonSession, PersonToken
from api.people.origin import RequestOrigin
from api.people.selectors import passkeys_of
from api.people.tokens import TokenKind, hash_token, mint_token


class BegunSignIn(NamedTuple):
    """`token` names the browser that was asked; it has to come back with the answer."""

    token: str
    options: dict[str, Any]


class _Proof(NamedTuple):
    """An answer that was verified against the passkey as it was read. `use` claims it."""

    passkey: Passkey
    sign_count: int


def begin_sign_in(origin: RequestOrigin) -> BegunSignIn:
    """Asks for a passkey of nobody in particular. Raises PeopleError."""
    party = required_party()
    rates.charge(rates.SIGN_IN_PER_SOURCE, origin.counted)
    token = mint_token(TokenKind.PASSKEY_SIGN_IN)
    challenge = make_challenge(Purpose.SIGN_IN, token)
    return BegunSignIn(token, passkey_responses.request_options(party, challenge, ()))


def sign_in(origin: RequestOrigin, token: str, response: str) -> NewSession:
    """The device names the person. Raises PeopleError."""
    rates.charge(rates.SIGN_IN_PER_SOURCE, origin.counted)
    is_token = hash_token(TokenKind.PASSKEY_SIGN_IN, token) is not None
    proof = _proved(Purpose.SIGN_IN, token if is_token else "", response, None)
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=proof.passkey.person_id)
        now = clock.now()
        _use(proof, now)
        return begin_session(origin, person, now, "passkey")


def begin_second_step(origin: RequestOrigin, token: str) -> dict[str, Any]:
    """`token` is what the password earned. Raises PeopleError."""
    party = required_party()
    rates.charge(rates.TOKEN_PER_SOURCE, origin.counted)
    found = find_token(TokenKind.CHALLENGE, token, clock.now())
    if found is None:
        raise invalid_token()
    challenge = make_challenge(Purpose.SECOND_FACTOR, str(found.pk))
    return passkey_responses.request_options(party, challenge, _credential_ids(found.person))


def answer_second_step(origin: RequestOrigin, token: str, response: str) -> NewSession:
    """Raises PeopleError."""
    rates.charge(rates.TOKEN_PER_SOURCE, origin.counted)
    found = find_token(TokenKind.CHALLENGE, token, clock.now())
    if found is None:
        raise invalid_token()
    rates.charge(rates.CODE_PER_PERSON, str(found.person_id))
    try:
        return _second_step(origin, found, response)
    except PeopleError:
        note_wrong_attempt(found)
        raise


def begin_again(session: PersonSession) -> dict[str, Any]:
    """Raises PeopleError."""
    party = required_party()
    challenge = make_challenge(Purpose.AGAIN, str(session.pk))
    return passkey_responses.request_options(party, challenge, _credential_ids(session.person))


def authenticate_again(origin: RequestOrigin, session: PersonSession, response: str) -> None:
    """The session may change security settings for RECENT_AUTHENTICATION_S_MAX. Raises PeopleError."""
    rates.charge(rates.CODE_PER_PERSON, str(session.person_id))
    proof = _proved(Purpose.AGAIN, str(session.pk), response, session.person)
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=session.person_id)
        now = clock.now()
        _use(proof, now)
        lock_session(session)
        session.authenticated_at = now
        session.save(update_fields=["authenticated_at"])
        origin.note(person, "", "session.authenticate", f"session:{session.pk}", method="passkey")


def _second_step(origin: RequestOrigin, token: PersonToken, response: str) -> NewSession:
    proof = _proved(Purpose.SECOND_FACTOR, str(token.pk), response, token.person)
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=token.person_id)
        now = clock.now()
        _use(proof, now)
        if not use_up(token):
            raise passkey_refused()
        return begin_session(origin, person, now, "passkey")


def _proved(purpose: Purpose, holder: str, response: str, expected: Person | None) -> _Proof:
    """By a passkey of the expected person; where there is none, of the person whom the device names. Raises
    PeopleError."""
    party = required_party()
    challenge = take_challenge(purpose, holder)
    named = passkey_responses.named_credential(response)
    passkey = Passkey.objects.filter(credential_id=named.credential_id).first()
    public_key = passkey_responses.stand_in_key() if passkey is None else bytes(passkey.public_key)
    sign_count = 0 if passkey is None else passkey.sign_count
    # A challenge that is not there is taken for an empty one, and refused below.
    new_count = passkey_responses.verify_assertion(party, challenge or b"", response, public_key, sign_count)
    if challenge is None or passkey is None or not _is_theirs(passkey, named.user_handle, expected):
        raise passkey_refused()
    return _Proof(passkey, new_count)


def _is_theirs(passkey: Passkey, user_handle: bytes, expected: Person | None) -> bool:
    """A device that was told which credentials are meant may leave the person out."""
    if expected is None:
        return user_handle == passkey.person_id.bytes
    return passkey.person_id == expected.pk and user_handle in (b"", expected.pk.bytes)


def _use(proof: _Proof, now: datetime) -> None:
    """With the person locked. Raises PeopleError where the passkey is gone, or was used since it was read."""
    rows = Passkey.objects.filter(pk=proof.passkey.pk, sign_count=proof.passkey.sign_count)
    if not rows.update(sign_count=proof.sign_count, last_used_at=now):
        raise passkey_refused()


def _credential_ids(person: Person) -> list[bytes]:
    return [bytes(one.credential_id) for one in passkeys_of(person)]
