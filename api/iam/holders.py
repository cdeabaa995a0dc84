"""Who has which policies, and who is in which groups, for pages. Always as one account."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import Count

from api.accounts.models import AccessKey
from api.iam.models import GroupMember, PeopleGroup, Policy, PolicyAttachment
from api.people.models import AccountMembership


class Holders(NamedTuple):
    """Of one policy."""

    keys: list[AccessKey]
    members: list[AccountMembership]
    groups: list[PeopleGroup]


class GroupRow(NamedTuple):
    group: PeopleGroup
    member_count: int
    policies: list[str]


def holders_of(policy: Policy) -> Holders:
    keys = AccessKey.objects.filter(access__attachments__policy=policy).order_by("name", "access_key_id")
    members = AccountMembership.objects.filter(attachments__policy=policy).select_related("person")
    groups = PeopleGroup.objects.filter(attachments__policy=policy).order_by("name")
    return Holders(list(keys), list(members.order_by("person__email")), list(groups))


def holder_counts(account_id: str) -> dict[str, int]:
    """By the name of the policy; without those that nothing has."""
    rows = PolicyAttachment.objects.filter(policy__account_id=account_id).order_by()
    return dict(rows.values_list("policy__name").annotate(count=Count("pk")))


def group_rows(account_id: str) -> list[GroupRow]:
    """By name. At most GROUPS_PER_ACCOUNT_MAX."""
    groups = PeopleGroup.objects.filter(account_id=account_id).annotate(member_count=Count("members")).order_by("name")
    attached: dict[int, list[str]] = {}
    rows = PolicyAttachment.objects.filter(group__account_id=account_id).order_by("policy__name")
    for group_id, name in rows.values_list("group_id", "policy__name"):
        attached.setdefault(group_id, []).append(name)
    return [GroupRow(group, vars(group)["member_count"], attached.get(group.pk, [])) for group in groups]


def members_in(group: PeopleGroup) -> list[AccountMembership]:
    """By address."""
    rows = AccountMembership.objects.filter(groups__group=group).select_related("person")
    return list(rows.order_by("person__email"))


def groups_of_member(member: AccountMembership) -> list[PeopleGroup]:
    """By name. At most GROUPS_PER_MEMBER_MAX."""
    rows = GroupMember.objects.filter(member=member).select_related("group").order_by("group__name")
    return [row.group for row in rows]


def keys_with_policies(account_id: str, access_key_ids: Iterable[str]) -> dict[str, list[str]]:
    """Names of the policies that are attached to these keys, of those that have any."""
    found: dict[str, list[str]] = {}
    rows = PolicyAttachment.objects.filter(key__key__account_id=account_id, key_id__in=list(access_key_ids))
    for key_id, name in rows.order_by("policy__name").values_list("key_id", "policy__name"):
        found.setdefault(key_id, []).append(name)
    return found
