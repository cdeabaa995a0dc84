"""One-time sign-in links, made on the machine that runs the control plane: `./penstock console-link`.

A link signs in the owner of the account who has been one for the longest time. An account without people gets a person
who has no password and whose address no mail reaches, so that a key's account has a console, too. The operator is such
a person as well, without memberships. Who can run the command holds every secret, so no second factor is asked for.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db import transaction

from api import clock
from api.accounts.actions import get_or_create_account
from api.accounts.models import Account
from api.audit.actions import OPERATOR, record
from api.people import rates
from api.people.actions.sessions import NewSession, begin_session
from api.people.actions.tokens import find_token, make_token, use_up
from api.people.errors import invalid_token
from api.people.models import AccountLife, AccountMembership, AccountState, Operator, Person
from api.people.origin import RequestOrigin
from api.people.roles import MemberRole
from api.people.tokens import TokenKind

# Nothing is delivered to this domain (RFC 2606).
_DOMAIN = "console.invalid"


class Link(NamedTuple):
    account_id: str
    token: str


def make_owner_link(account_name: str) -> Link:
    """For the account of this name, which is made if absent. Raises AccountError."""
    account = get_or_create_account(OPERATOR, account_name)
    with transaction.atomic():
        Account.objects.select_for_update().get(pk=account.pk)
        now = clock.now()
        ensure_life(account, now)
        owners = AccountMembership.objects.filter(account=account, role=MemberRole.OWNER).select_related("person")
        owner = owners.order_by("created_at", "pk").first()
        person = _stand_in_owner(account, now) if owner is None else owner.person
        return Link(account.pk, _make(person, account.pk, now))


@transaction.atomic
def make_operator_link() -> str:
    now = clock.now()
    person = _stand_in(f"operator@{_DOMAIN}", "Operator", now)
    if Operator.objects.get_or_create(person=person, defaults={"created_at": now})[1]:
        record(OPERATOR, "", "operator.add", f"person:{person.pk}")
    return _make(person, "", now)


def open_link(origin: RequestOrigin, token: str) -> NewSession:
    """Raises PeopleError."""
    rates.charge(rates.TOKEN_PER_SOURCE, origin.counted)
    now = clock.now()
    found = find_token(TokenKind.CONSOLE_LINK, token, now)
    if found is None:
        raise invalid_token()
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=found.person_id)
        if not use_up(found):
            raise invalid_token()
        return begin_session(origin, person, now, "console_link")


def ensure_life(account: Account, now: datetime) -> AccountLife:
    """With the account locked. Accounts that were made with a key have none of their own."""
    state = AccountState.ACTIVE if account.active else AccountState.SUSPENDED
    defaults = {"title": account.name, "state": state, "state_since": now}
    return AccountLife.objects.get_or_create(account=account, defaults=defaults)[0]


def _make(person: Person, account_id: str, now: datetime) -> str:
    token = make_token(person, TokenKind.CONSOLE_LINK, now)
    record(OPERATOR, account_id, "console_link.create", f"person:{person.pk}")
    return token


def _stand_in_owner(account: Account, now: datetime) -> Person:
    person = _stand_in(f"owner-{account.pk}@{_DOMAIN}", "Owner", now)
    AccountMembership.objects.create(account=account, person=person, role=MemberRole.OWNER, created_at=now)
    record(OPERATOR, account.pk, "member.add", f"person:{person.pk}", role=MemberRole.OWNER)
    return person


def _stand_in(email: str, name: str, now: datetime) -> Person:
    """Locked. The empty password matches nothing. A person whom a sign-up with the address made is confirmed here, so
    that the password of the sign-up never becomes the person's."""
    Person.objects.get_or_create(email=email, defaults={"created_at": now})
    person = Person.objects.select_for_update().get(email=email)
    if person.email_confirmed_at is None:
        person.name, person.email_confirmed_at = name, now
        person.save(update_fields=["name", "email_confirmed_at"])
    return person
