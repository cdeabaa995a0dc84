"""Members of an account: roles change, members go. The account's row is locked first, so that changes stand in line and
the last owner stays one."""

from __future__ import annotations

import uuid

from django.db import transaction

from api.accounts.models import Account
from api.iam.selectors import attached_policies
from api.people.errors import ActDenied, PeopleError, not_found
from api.people.models import AccountLife, AccountMembership, AccountState, Invitation, Person
from api.people.origin import UNKNOWN_ORIGIN, RequestOrigin
from api.people.roles import Act, MemberRole, act_to_give, may_with


@transaction.atomic
def change_role(
    origin: RequestOrigin, person: Person, account_id: str, member_id: uuid.UUID, role: MemberRole
) -> AccountMembership:
    """Raises PeopleError."""
    mine = locked_membership(person, account_id)
    require_active(account_id)
    member = _member(account_id, member_id)
    require(mine, act_to_give(member.role), origin)
    require(mine, act_to_give(role), origin)
    if member.role == role:
        return member
    before, member.role = member.role, role
    _require_owner_beside(member, before)
    member.save(update_fields=["role"])
    origin.note(person, account_id, "member.change_role", f"person:{member_id}", before=before, role=role)
    return member


@transaction.atomic
def remove_member(origin: RequestOrigin, person: Person, account_id: str, member_id: uuid.UUID) -> None:
    """Another one, where the role allows that, or oneself: all may leave but the last owner. Raises
    PeopleError."""
    mine = locked_membership(person, account_id)
    member = _member(account_id, member_id)
    leaves = member.person_id == person.pk
    if not leaves:
        require_active(account_id)
        require(mine, act_to_give(member.role), origin)
    _require_owner_beside(member, member.role)
    member.delete()
    Invitation.objects.filter(account_id=account_id, invited_by_id=member_id).delete()
    action = "member.leave" if leaves else "member.remove"
    origin.note(person, account_id, action, f"person:{member_id}", role=member.role)


def locked_membership(person: Person, account_id: str) -> AccountMembership:
    """Locks the account, then reads what the person is in it: a role that was taken away before is not used. Raises
    PeopleError: an account of others is not found."""
    if not AccountMembership.objects.filter(account_id=account_id, person=person).exists():
        raise not_found()
    Account.objects.select_for_update().get(pk=account_id)
    mine = AccountMembership.objects.filter(account_id=account_id, person=person).first()
    if mine is None:
        raise not_found()
    return mine


def require_active(account_id: str) -> None:
    if not AccountLife.objects.filter(account_id=account_id, state=AccountState.ACTIVE).exists():
        raise PeopleError("account-not-active", "The account is suspended, closing or closed.")


def require(mine: AccountMembership, act: Act, origin: RequestOrigin) -> None:
    if not is_allowed(mine, act, origin):
        raise ActDenied(mine.account_id, mine.person_id, act)


def is_allowed(mine: AccountMembership, act: Act, origin: RequestOrigin = UNKNOWN_ORIGIN) -> bool:
    """By the member's role, and by the policies of the member and of its groups."""
    attached = attached_policies(mine)
    return may_with(mine.role, act, attached, origin.member(mine.account_id, mine.person_id))


def may_give(mine: AccountMembership, role: str, origin: RequestOrigin) -> bool:
    """May this member give, change or take away the role?"""
    return is_allowed(mine, act_to_give(role), origin)


def _member(account_id: str, member_id: uuid.UUID) -> AccountMembership:
    found = (
        AccountMembership.objects.select_related("person").filter(account_id=account_id, person_id=member_id).first()
    )
    if found is None:
        raise not_found()
    return found


def _require_owner_beside(member: AccountMembership, role: str) -> None:
    """`member` is about to lose `role`."""
    owners = AccountMembership.objects.filter(account_id=member.account_id, role=MemberRole.OWNER)
    if role == MemberRole.OWNER and not owners.exclude(pk=member.pk).exists():
        raise PeopleError("last-owner", "An account keeps one owner: make another member an owner first.")
