"""Reading people's rows: always as one person, or as one account that the person is a member of."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from api.people import limits
from api.people.models import (
    AccountMembership,
    ActingVisit,
    Invitation,
    Operator,
    Passkey,
    Person,
    PersonSession,
    TotpFactor,
)
from api.people.tokens import TokenKind, hash_token, same_hash


def session_by_token(token: str, now: datetime) -> PersonSession | None:
    """The session, unless it has expired."""
    token_hash = hash_token(TokenKind.SESSION, token)
    if token_hash is None:
        return None
    found = PersonSession.objects.select_related("person").filter(token_hash=token_hash).first()
    if found is None or not same_hash(token_hash, found.token_hash) or not is_live(found, now):
        return None
    return found


def is_live(session: PersonSession, now: datetime) -> bool:
    idle = timedelta(seconds=limits.SESSION_IDLE_S_MAX)
    return now < expiry_of(session) and now - session.last_seen_at < idle


def expiry_of(session: PersonSession) -> datetime:
    """However much it is used."""
    return session.created_at + timedelta(seconds=limits.SESSION_AGE_S_MAX)


def sessions_of(person: Person, now: datetime) -> list[PersonSession]:
    """The latest one first. At most SESSIONS_PER_PERSON_MAX."""
    rows = PersonSession.objects.filter(person=person).order_by("-last_seen_at", "-id")
    return [session for session in rows if is_live(session, now)]


def has_second_factor(person: Person) -> bool:
    """Is there more than the password: an authenticator application, or a passkey?"""
    return has_authenticator(person) or Passkey.objects.filter(person=person).exists()


def has_authenticator(person: Person) -> bool:
    return TotpFactor.objects.filter(person=person, confirmed_at__isnull=False).exists()


def passkeys_of(person: Person) -> list[Passkey]:
    """The oldest one first. At most PASSKEYS_PER_PERSON_MAX."""
    return list(Passkey.objects.filter(person=person).order_by("created_at", "id"))


def is_operator(person: Person) -> bool:
    return Operator.objects.filter(person=person).exists()


def acting_of(session: PersonSession, now: datetime) -> ActingVisit | None:
    """As whom the person of the session acts; None where it is over, or the person is no operator any more."""
    rows = ActingVisit.objects.select_related("session", "member__person", "member__account__life")
    return rows.filter(session=session, ends_at__gt=now, session__person__operator__isnull=False).first()


def operator_addresses(person_ids: Sequence[str]) -> dict[str, str]:
    """Of those who are operators, by the text of their ids."""
    rows = Operator.objects.filter(person_id__in=person_ids).select_related("person")
    return {str(one.person_id): one.person.email for one in rows}


def membership_of(person: Person, account_id: str) -> AccountMembership | None:
    rows = AccountMembership.objects.select_related("account__life")
    return rows.filter(person=person, account_id=account_id).first()


def memberships_of(person: Person) -> list[AccountMembership]:
    """By account. At most ACCOUNTS_PER_PERSON_MAX."""
    rows = AccountMembership.objects.select_related("account__life").filter(person=person)
    return list(rows.order_by("account_id"))


def members_of(account_id: str, after: uuid.UUID | None, limit: int) -> list[AccountMembership]:
    """In the order of their ids, from the first one behind `after` on."""
    rows = AccountMembership.objects.select_related("person").filter(account_id=account_id)
    if after is not None:
        rows = rows.filter(person_id__gt=after)
    return list(rows.order_by("person_id")[:limit])


def member_of(account_id: str, person_id: uuid.UUID) -> AccountMembership | None:
    """With the person."""
    rows = AccountMembership.objects.select_related("person")
    return rows.filter(account_id=account_id, person_id=person_id).first()


def member_addresses(account_id: str, person_ids: Sequence[str]) -> dict[str, str]:
    """Of those who are members, by the text of their ids."""
    rows = AccountMembership.objects.filter(account_id=account_id, person_id__in=person_ids).select_related("person")
    return {str(member.person_id): member.person.email for member in rows}


def member_at(account_id: str, address: str) -> AccountMembership | None:
    """By the address that the member signs in with."""
    return AccountMembership.objects.filter(account_id=account_id, person__email=address.lower()).first()


def invitations_of(account_id: str, now: datetime) -> list[Invitation]:
    """At most INVITATIONS_PER_ACCOUNT_MAX."""
    return list(Invitation.objects.filter(account_id=account_id, expires_at__gt=now).order_by("created_at", "id"))
