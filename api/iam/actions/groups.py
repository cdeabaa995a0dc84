"""Groups of people of an account: made, deleted, filled and emptied."""

from __future__ import annotations

import uuid

from django.db import transaction

from api import clock
from api.accounts.selectors import locked_account
from api.audit.actions import record
from api.iam import limits
from api.iam.errors import IamError, not_found
from api.iam.locks import check_name, locked_group
from api.iam.models import GroupMember, PeopleGroup
from api.people.models import AccountMembership
from frontend.authn.principal import Principal


@transaction.atomic
def create_group(actor: Principal, account_id: str, name: str) -> PeopleGroup:
    """Raises IamError."""
    check_name(name, "group", limits.GROUP_NAME_CHARACTERS_MAX)
    account = locked_account(account_id)
    there = PeopleGroup.objects.filter(account=account)
    if there.filter(name=name).exists():
        raise IamError("already-exists", "The account has a group of this name.", "/name")
    if there.count() >= limits.GROUPS_PER_ACCOUNT_MAX:
        raise IamError("over-limit", f"An account has at most {limits.GROUPS_PER_ACCOUNT_MAX} groups.")
    group = PeopleGroup.objects.create(account=account, name=name, created_at=clock.now())
    _note(actor, group, "group.create")
    return group


@transaction.atomic
def delete_group(actor: Principal, account_id: str, name: str) -> None:
    """Its members lose the policies that it gave them. Raises IamError."""
    locked_account(account_id)
    group = locked_group(account_id, name)
    _note(actor, group, "group.delete")
    group.delete()


@transaction.atomic
def add_member(actor: Principal, account_id: str, name: str, person_id: uuid.UUID) -> PeopleGroup:
    """Raises IamError."""
    locked_account(account_id)
    group, member = locked_group(account_id, name), _member(account_id, person_id)
    _, is_new = GroupMember.objects.get_or_create(group=group, member=member)
    if is_new:
        if GroupMember.objects.filter(member=member).count() > limits.GROUPS_PER_MEMBER_MAX:
            raise IamError("over-limit", f"A member is in at most {limits.GROUPS_PER_MEMBER_MAX} groups.")
        _note(actor, group, "group.add_member", person=str(person_id))
    return group


@transaction.atomic
def remove_member(actor: Principal, account_id: str, name: str, person_id: uuid.UUID) -> PeopleGroup:
    """Raises IamError."""
    locked_account(account_id)
    group, member = locked_group(account_id, name), _member(account_id, person_id)
    if GroupMember.objects.filter(group=group, member=member).delete()[0]:
        _note(actor, group, "group.remove_member", person=str(person_id))
    return group


def _member(account_id: str, person_id: uuid.UUID) -> AccountMembership:
    member = AccountMembership.objects.filter(account_id=account_id, person_id=person_id).first()
    if member is None:
        raise not_found()
    return member


def _note(actor: Principal, group: PeopleGroup, action: str, **details: object) -> None:
    record(actor, group.account_id, action, f"group:{group.name}", **details)
