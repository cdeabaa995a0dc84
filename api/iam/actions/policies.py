"""Named policies of an account: made, changed, deleted, given to keys, members and groups and taken from them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db import transaction

from api import clock
from api.accounts.actions import NewKey
from api.accounts.models import AccessKey
from api.accounts.selectors import locked_account
from api.audit.actions import record
from api.iam import limits
from api.iam.actions.keys import KeySpec, check_size, make_key
from api.iam.errors import IamError, not_found
from api.iam.locks import (
    access_of,
    announce_key,
    check_name,
    locked_group,
    locked_key,
    locked_policy,
)
from api.iam.models import KeyAccess, Policy, PolicyAttachment
from api.people.models import AccountMembership
from frontend.authn.principal import Principal


@transaction.atomic
def create_policy(actor: Principal, account_id: str, name: str, text: str) -> Policy:
    """`text` has passed `documents`. Raises IamError."""
    check_name(name, "policy", limits.POLICY_NAME_CHARACTERS_MAX)
    account = locked_account(account_id)
    there = Policy.objects.filter(account=account)
    if there.filter(name=name).exists():
        raise IamError("already-exists", "The account has a policy of this name.", "/name")
    if there.count() >= limits.POLICIES_PER_ACCOUNT_MAX:
        raise IamError("over-limit", f"An account has at most {limits.POLICIES_PER_ACCOUNT_MAX} policies.")
    now = clock.now()
    policy = Policy.objects.create(account=account, name=name, text=text, created_at=now, modified_at=now)
    _note(actor, policy, "policy.create", text=text)
    return policy


@transaction.atomic
def update_policy(actor: Principal, account_id: str, name: str, text: str) -> Policy:
    """For all who have it, at once. Raises IamError."""
    locked_account(account_id)
    rows = AccessKey.objects.filter(account_id=account_id, access__attachments__policy__name=name)
    keys = list(rows.select_for_update(of=("self",)).order_by("access_key_id"))
    policy = locked_policy(account_id, name)
    if policy.text == text:
        return policy
    before = policy.text
    policy.text, policy.modified_at = text, clock.now()
    policy.save(update_fields=["text", "modified_at"])
    for access in KeyAccess.objects.filter(key__in=keys):
        check_size(access)
    _note(actor, policy, "policy.update", text=text, before=before)
    for key in keys:
        announce_key(key)
    return policy


@transaction.atomic
def delete_policy(actor: Principal, account_id: str, name: str) -> None:
    """Raises IamError, also for one that is attached."""
    locked_account(account_id)
    policy = locked_policy(account_id, name)
    if policy.attachments.exists():
        raise IamError("policy-attached", "The policy is attached to keys, members or groups: detach it first.")
    _note(actor, policy, "policy.delete", before=policy.text)
    policy.delete()


@transaction.atomic
def make_key_with(actor: Principal, account_id: str, spec: KeySpec, names: Sequence[str]) -> NewKey:
    """A key that has these named policies from its first moment on. Raises AccountError, IamError."""
    new = make_key(actor, account_id, spec)
    for name in names:
        attach_to_key(actor, account_id, new.key.access_key_id, name)
    return new


@transaction.atomic
def attach_to_key(actor: Principal, account_id: str, access_key_id: str, name: str) -> AccessKey:
    """From now on the key is restricted to what its policies allow. Raises IamError."""
    locked_account(account_id)
    key = locked_key(account_id, access_key_id)
    policy = locked_policy(account_id, name)
    access, _ = KeyAccess.objects.get_or_create(key=key)
    _, is_new = PolicyAttachment.objects.get_or_create(policy=policy, key=access)
    if is_new:
        _check_count(PolicyAttachment.objects.filter(key=access).count())
        check_size(access)
        _note(actor, policy, "policy.attach", to=f"key:{access_key_id}")
        announce_key(key)
    return key


@transaction.atomic
def detach_from_key(actor: Principal, account_id: str, access_key_id: str, name: str) -> AccessKey:
    """A key that is left without any policy may do nothing. Raises IamError."""
    key = locked_key(account_id, access_key_id)
    policy = locked_policy(account_id, name)
    access = access_of(key)
    if access is not None and PolicyAttachment.objects.filter(policy=policy, key=access).delete()[0]:
        _note(actor, policy, "policy.detach", of=f"key:{access_key_id}")
        announce_key(key)
    return key


@transaction.atomic
def attach_to_member(actor: Principal, account_id: str, person_id: uuid.UUID, name: str) -> None:
    """Raises IamError."""
    locked_account(account_id)
    policy, member = locked_policy(account_id, name), _member(account_id, person_id)
    _, is_new = PolicyAttachment.objects.get_or_create(policy=policy, member=member)
    if is_new:
        _check_count(PolicyAttachment.objects.filter(member=member).count())
        _note(actor, policy, "policy.attach", to=f"person:{person_id}")


@transaction.atomic
def detach_from_member(actor: Principal, account_id: str, person_id: uuid.UUID, name: str) -> None:
    """Raises IamError."""
    locked_account(account_id)
    policy, member = locked_policy(account_id, name), _member(account_id, person_id)
    if PolicyAttachment.objects.filter(policy=policy, member=member).delete()[0]:
        _note(actor, policy, "policy.detach", of=f"person:{person_id}")


@transaction.atomic
def attach_to_group(actor: Principal, account_id: str, group_name: str, name: str) -> None:
    """Raises IamError."""
    locked_account(account_id)
    policy, group = locked_policy(account_id, name), locked_group(account_id, group_name)
    _, is_new = PolicyAttachment.objects.get_or_create(policy=policy, group=group)
    if is_new:
        _check_count(group.attachments.count())
        _note(actor, policy, "policy.attach", to=f"group:{group_name}")


@transaction.atomic
def detach_from_group(actor: Principal, account_id: str, group_name: str, name: str) -> None:
    """Raises IamError."""
    locked_account(account_id)
    policy, group = locked_policy(account_id, name), locked_group(account_id, group_name)
    if PolicyAttachment.objects.filter(policy=policy, group=group).delete()[0]:
        _note(actor, policy, "policy.detach", of=f"group:{group_name}")


def _check_count(attached: int) -> None:
    if attached > limits.POLICIES_ATTACHED_MAX:
        raise IamError("over-limit", f"At most {limits.POLICIES_ATTACHED_MAX} named policies are attached to one.")


def _member(account_id: str, person_id: uuid.UUID) -> AccountMembership:
    member = AccountMembership.objects.filter(account_id=account_id, person_id=person_id).first()
    if member is None:
        raise not_found()
    return member


def _note(actor: Principal, policy: Policy, action: str, **details: object) -> None:
    record(actor, policy.account_id, action, f"policy:{policy.name}", **details)
