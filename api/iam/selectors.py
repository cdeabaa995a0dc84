"""Reading policies, always as one account."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import QuerySet

from api import clock
from api.accounts.models import AccessKey
from api.iam.models import KeyAccess, PeopleGroup, Policy, PolicyAttachment
from api.people.models import AccountMembership
from api.people.roles import Act, MemberRole, may_with, role_policy
from frontend.authn.principal import Principal
from frontend.authn.rights import Rights, compiled, rights_of
from frontend.authz import CompiledPolicy, join_policies
from frontend.authz.request_context import person_caller
from frontend.metadata.records import OWN_POLICY, PolicyRecord


class KeyRightsFound(NamedTuple):
    """`rights` None: the key may do everything in its account. `is_valid`: it opens something now."""

    rights: Rights | None
    is_valid: bool = True


def key_rights(account_id: str, access_key_id: str) -> KeyRightsFound | None:
    """None where the account has no such key."""
    rows = AccessKey.objects.filter(account_id=account_id, access_key_id=access_key_id)
    columns = ("access__key_id", "access__policy", "access__tags", "active", "account__active", "expires_at")
    found = rows.values_list(*columns).first()
    if found is None:
        return None
    is_restricted, policy, tags, is_active, is_account_active, expires_at = found
    is_valid = is_active and is_account_active and (expires_at is None or clock.now() < expires_at)
    if is_restricted is None:
        return KeyRightsFound(None, is_valid)
    policies = policy_records(policy or "", PolicyAttachment.objects.filter(key_id=access_key_id))
    return KeyRightsFound(rights_of(account_id, access_key_id, policies, tags or {}), is_valid)


def policy_records(own: str, attachments: QuerySet[PolicyAttachment]) -> list[PolicyRecord]:
    rows = attachments.order_by("policy__name").values_list("policy__name", "policy__text")
    return [*([PolicyRecord(OWN_POLICY, own)] if own else ()), *(PolicyRecord(*row) for row in rows)]


def access_of_key(account_id: str, access_key_id: str) -> KeyAccess | None:
    return KeyAccess.objects.filter(key__account_id=account_id, key_id=access_key_id).first()


def policy_of(account_id: str, name: str) -> Policy | None:
    return Policy.objects.filter(account_id=account_id, name=name).first()


def policies_of(account_id: str, after: str, limit: int) -> list[Policy]:
    """By name, from the first one behind `after` on."""
    return list(Policy.objects.filter(account_id=account_id, name__gt=after).order_by("name")[:limit])


def group_of(account_id: str, name: str) -> PeopleGroup | None:
    return PeopleGroup.objects.filter(account_id=account_id, name=name).first()


def groups_of(account_id: str, after: str, limit: int) -> list[PeopleGroup]:
    """By name, from the first one behind `after` on."""
    return list(PeopleGroup.objects.filter(account_id=account_id, name__gt=after).order_by("name")[:limit])


def attached_to_key(account_id: str, access_key_id: str) -> list[str]:
    """Names of policies."""
    rows = PolicyAttachment.objects.filter(key__key__account_id=account_id, key_id=access_key_id)
    return list(rows.order_by("policy__name").values_list("policy__name", flat=True))


def attached_to_group(group: PeopleGroup) -> list[str]:
    return list(group.attachments.order_by("policy__name").values_list("policy__name", flat=True))


def members_of_group(group: PeopleGroup) -> list[str]:
    """Ids of people."""
    rows = group.members.order_by("member__person_id").values_list("member__person_id", flat=True)
    return [str(person_id) for person_id in rows]


def member_policies(member: AccountMembership) -> list[PolicyRecord]:
    """Those of the member, then those of the groups, each once."""
    own = PolicyAttachment.objects.filter(member=member)
    shared = PolicyAttachment.objects.filter(group__members__member=member)
    found = {policy.name: policy for policy in (*policy_records("", own), *policy_records("", shared))}
    return list(found.values())


def attached_policies(member: AccountMembership) -> list[CompiledPolicy]:
    """Those of the member and of its groups, to be weighed with its role. None is weighed for an owner: an admin, who
    may attach policies, could shut the owners out by a Deny."""
    if member.role == MemberRole.OWNER:
        return []
    return [compiled(policy) for policy in member_policies(member)]


def acts_of(member: AccountMembership, who: Principal, also: Sequence[CompiledPolicy] = ()) -> frozenset[Act]:
    """What the member may do from where it asks, by its role and the attached policies. `also`: what takes rights
    away for this visit."""
    attached = [*attached_policies(member), *also]
    return frozenset(act for act in Act if may_with(member.role, act, attached, who))


def member_rights(account_id: str, person_id: uuid.UUID) -> Rights | None:
    """With those of the role; None where the person is no member."""
    member = AccountMembership.objects.filter(account_id=account_id, person_id=person_id).first()
    if member is None:
        return None
    policies = [role_policy(MemberRole(member.role)), *attached_policies(member)]
    return Rights(person_caller(account_id, str(person_id)), join_policies(policies), {})


def attached_to_member(account_id: str, person_id: uuid.UUID) -> list[str] | None:
    """Names of policies; None where the person is no member."""
    member = AccountMembership.objects.filter(account_id=account_id, person_id=person_id).first()
    if member is None:
        return None
    attached = PolicyAttachment.objects.filter(member=member)
    return list(attached.order_by("policy__name").values_list("policy__name", flat=True))
