"""Passkeys of a person: added in the browser that asks for them, named, removed."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from django.db import transaction

from api import clock
from api.people import limits, passkey_responses, rates
from api.people.actions.factors import factor_comes, factor_went, tell_change
from api.people.actions.passkey_challenges import Purpose, make_challenge, take_challenge
from api.people.errors import PeopleError, passkey_refused
from api.people.models import Passkey, Person, PersonSession
from api.people.origin import RequestOrigin
from api.people.passkey_responses import NewCredential
from api.people.relying_party import RelyingParty, relying_party
from api.people.selectors import passkeys_of
from api.settings.environment import environment


class AddedPasskey(NamedTuple):
    """`recovery_codes` are there with the first factor of the person, and are shown this once."""

    passkey: Passkey
    recovery_codes: list[str]


def required_party() -> RelyingParty:
    """Raises PeopleError."""
    found = relying_party(environment().endpoint)
    if found is None:
        raise PeopleError("passkeys-not-possible", "The address of this installation allows no passkeys.")
    return found


def begin_passkey(session: PersonSession) -> dict[str, Any]:
    """What the browser makes a passkey with. The caller has checked that the session is a recent one. Raises
    PeopleError."""
    party = required_party()
    person = session.person
    known = passkeys_of(person)
    _require_room(len(known))
    challenge = make_challenge(Purpose.REGISTER, str(session.pk))
    ids = [bytes(one.credential_id) for one in known]
    return passkey_responses.creation_options(party, challenge, person.pk.bytes, person.email, ids)


def add_passkey(origin: RequestOrigin, session: PersonSession, name: str, response: str) -> AddedPasskey:
    """The caller has checked that the session is a recent one. Raises PeopleError."""
    party = required_party()
    rates.charge(rates.CODE_PER_PERSON, str(session.person_id))
    challenge = take_challenge(Purpose.REGISTER, str(session.pk))
    if challenge is None:
        raise passkey_refused()
    name = _checked_name(name)
    found = passkey_responses.verify_registration(party, challenge, response)
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=session.person_id)
        return _add(origin, person, name, found)


def remove_passkey(origin: RequestOrigin, session: PersonSession, passkey_id: uuid.UUID) -> bool:
    """False where the person has no such passkey. The caller has checked that the session is a recent one."""
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=session.person_id)
        found = Passkey.objects.filter(person=person, pk=passkey_id).first()
        if found is None:
            return False
        found.delete()
        origin.note(person, "", "passkey.remove", f"passkey:{passkey_id}", name=found.name)
        factor_went(origin, person, "passkey")
        tell_change(person, f"The passkey {found.name!r} was removed.")
    return True


def _add(origin: RequestOrigin, person: Person, name: str, found: NewCredential) -> AddedPasskey:
    known = passkeys_of(person)
    _require_room(len(known))
    if name in (one.name for one in known):
        raise PeopleError("passkey-name-taken", "You have a passkey of this name.")
    codes = factor_comes(origin, person, "passkey")
    passkey, is_new = Passkey.objects.get_or_create(
        credential_id=found.credential_id,
        defaults={
            "person": person, "name": name, "public_key": found.public_key, "sign_count": found.sign_count,
            "created_at": clock.now(),
        },
    )  # fmt: skip
    if not is_new:
        raise PeopleError("passkey-known", "This passkey is known already.")
    origin.note(person, "", "passkey.add", f"passkey:{passkey.pk}", name=name)
    tell_change(person, f"The passkey {name!r} was added. It signs in.")
    return AddedPasskey(passkey, codes)


def _checked_name(name: str) -> str:
    name = " ".join(name.split())
    if not 0 < len(name) <= limits.PASSKEY_NAME_CHARACTERS_MAX or not name.isprintable():
        most = limits.PASSKEY_NAME_CHARACTERS_MAX
        raise PeopleError("invalid-request", f"The name of a passkey has 1 to {most} printable characters.")
    return name


def _require_room(held: int) -> None:
    if held >= limits.PASSKEYS_PER_PERSON_MAX:
        raise PeopleError("over-limit", f"A person has at most {limits.PASSKEYS_PER_PERSON_MAX} passkeys.")
