"""Invitations: a token that is mailed, for the invited address alone, as long as who invited still could."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.db import transaction

from api import clock
from api.accounts.models import Account
from api.people import errands, limits, mails, rates
from api.people.actions.members import locked_membership, may_give, require, require_active
from api.people.errors import ActDenied, PeopleError, invalid_token, not_found
from api.people.mails import normal_email
from api.people.models import AccountLife, AccountMembership, Invitation, Person
from api.people.origin import RequestOrigin
from api.people.roles import Act, MemberRole, act_to_give
from api.people.selectors import membership_of
from api.people.tokens import TokenKind, hash_token, mint_token, same_hash

# Who invited is not there when the invitation is accepted: the address is missing, and a policy that wants an encrypted
# connection has seen one when the invitation was made.
_LATER = RequestOrigin("", is_secure=True)


def invite(origin: RequestOrigin, person: Person, account_id: str, email: str, role: MemberRole) -> Invitation:
    """Takes the place of an invitation of the same address. Raises PeopleError."""
    email = normal_email(email)
    asking = membership_of(person, account_id)
    if asking is None:
        raise not_found()
    require(asking, act_to_give(role), origin)  # who may not invite uses nothing of the account's rate up
    rates.charge(rates.INVITATION_PER_ACCOUNT, account_id)
    with transaction.atomic():
        mine = locked_membership(person, account_id)
        require_active(account_id)
        require(mine, act_to_give(role), origin)
        if AccountMembership.objects.filter(account_id=account_id, person__email=email).exists():
            raise PeopleError("already-member", "This address is that of a member.")
        now = clock.now()
        others = Invitation.objects.filter(account_id=account_id)
        others.filter(expires_at__lte=now).delete()
        if not may_replace(others.filter(email=email).first(), mine, origin):
            raise ActDenied(account_id, person.pk, Act.MANAGE_OWNERS)
        others.filter(email=email).delete()
        if others.count() >= limits.INVITATIONS_PER_ACCOUNT_MAX:
            raise PeopleError("over-limit", f"An account has at most {limits.INVITATIONS_PER_ACCOUNT_MAX} invitations.")
        token = mint_token(TokenKind.INVITATION)
        invitation = Invitation.objects.create(
            account_id=account_id, email=email, role=role, invited_by=person,
            token_hash=hash_token(TokenKind.INVITATION, token), created_at=now,
            expires_at=now + timedelta(seconds=limits.INVITATION_TOKEN_S),
        )  # fmt: skip
        origin.note(person, account_id, "invitation.create", f"invitation:{invitation.pk}", email=email, role=role)
        title = AccountLife.objects.get(pk=account_id).title
    errands.leave(lambda: mails.send_invitation_token(email, title, role, token))
    return invitation


@transaction.atomic
def withdraw(origin: RequestOrigin, person: Person, account_id: str, invitation_id: uuid.UUID) -> None:
    """Raises PeopleError."""
    mine = locked_membership(person, account_id)
    require(mine, Act.MANAGE_MEMBERS, origin)
    invitation = Invitation.objects.filter(account_id=account_id, pk=invitation_id).first()
    if invitation is None:
        raise not_found()
    require(mine, act_to_give(invitation.role), origin)
    invitation.delete()
    origin.note(person, account_id, "invitation.withdraw", f"invitation:{invitation_id}", email=invitation.email)


def accept(origin: RequestOrigin, person: Person, token: str) -> AccountMembership:
    """Raises PeopleError; the same one where the token is absent, used, expired, or for another address."""
    rates.charge(rates.TOKEN_PER_SOURCE, origin.counted)
    token_hash = hash_token(TokenKind.INVITATION, token)
    if token_hash is None:
        raise invalid_token()
    with transaction.atomic():
        seen = Invitation.objects.filter(token_hash=token_hash).first()
        if seen is None:
            raise invalid_token()
        Account.objects.select_for_update().get(pk=seen.account_id)
        now = clock.now()
        rows = Invitation.objects.filter(pk=seen.pk, email=person.email, expires_at__gt=now)
        found = rows.select_related("invited_by").first()
        if found is None or not same_hash(token_hash, found.token_hash):
            raise invalid_token()
        inviter = membership_of(found.invited_by, found.account_id)
        if inviter is None or not may_give(inviter, found.role, _LATER):
            raise invalid_token()
        return _join(origin, person, found)


def may_replace(invitation: Invitation | None, mine: AccountMembership, origin: RequestOrigin) -> bool:
    return invitation is None or may_give(mine, invitation.role, origin)


def _join(origin: RequestOrigin, person: Person, invitation: Invitation) -> AccountMembership:
    """With the account locked."""
    account_id = invitation.account_id
    require_active(account_id)
    if membership_of(person, account_id) is not None:
        raise PeopleError("already-member", "You are a member of this account.")
    if AccountMembership.objects.filter(account_id=account_id).count() >= limits.MEMBERS_PER_ACCOUNT_MAX:
        raise PeopleError("over-limit", f"An account has at most {limits.MEMBERS_PER_ACCOUNT_MAX} members.")
    Person.objects.select_for_update().get(pk=person.pk)
    if AccountMembership.objects.filter(person=person).count() >= limits.ACCOUNTS_PER_PERSON_MAX:
        raise PeopleError("over-limit", f"A person is in at most {limits.ACCOUNTS_PER_PERSON_MAX} accounts.")
    invitation_id = invitation.pk
    invitation.delete()
    mine = AccountMembership.objects.create(
        account_id=account_id, person=person, role=invitation.role, created_at=clock.now()
    )
    subject = f"person:{person.pk}"
    origin.note(person, account_id, "member.add", subject, role=mine.role, invitation=str(invitation_id))
    return mine
