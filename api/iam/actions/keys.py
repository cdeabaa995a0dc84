"""What access keys may do, and their life: made with a policy, restricted, freed, changed, rotated."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from django.db import transaction

from api import clock
from api.accounts.actions import NewKey, check_key_name, create_key
from api.accounts.models import AccessKey
from api.accounts.selectors import locked_account
from api.audit.actions import record
from api.iam import limits
from api.iam.errors import IamError
from api.iam.locks import access_of, announce_key, locked_key
from api.iam.models import KeyAccess, PolicyAttachment
from api.quotas.single import copy_key_quotas
from frontend.authn.principal import Principal
from frontend.authz import (
    PolicyError,
    PolicyKind,
    count_floating_patterns,
    count_several_values_wildcards,
    parse_document,
)
from frontend.authz.policy_limits import FLOATING_PATTERNS_MAX, SEVERAL_VALUES_WILDCARDS_MAX


class KeySpec(NamedTuple):
    """`policy` has passed `documents`; None: the key may do everything in its account."""

    name: str
    expires_at: datetime | None = None
    policy: str | None = None
    tags: Mapping[str, str] = {}


class _SlowPatterns(NamedTuple):
    floating: int
    of_several_values: int


@transaction.atomic
def make_key(actor: Principal, account_id: str, spec: KeySpec) -> NewKey:
    """Raises AccountError, IamError."""
    check_tags(spec.tags)
    if spec.tags and spec.policy is None:
        raise IamError("invalid-request", "Tags are for keys with a policy: nothing else looks at them.", "/tags")
    new = create_key(actor, account_id, spec.name, spec.expires_at)
    if spec.policy is not None:
        KeyAccess.objects.create(key=new.key, policy=spec.policy, tags=dict(spec.tags))
        _note(actor, new.key, "key.put_policy", policy=spec.policy)
    return new


@transaction.atomic
def put_key_policy(actor: Principal, account_id: str, access_key_id: str, policy: str) -> AccessKey:
    """From now on the key may do what this policy, and those that are attached to it, allow. Raises IamError."""
    key = locked_key(account_id, access_key_id)
    access, is_new = KeyAccess.objects.get_or_create(key=key)
    before, access.policy = None if is_new else access.policy, policy  # None: it could do everything
    access.save(update_fields=["policy"])
    check_size(access)
    _note(actor, key, "key.put_policy", policy=policy, before=before)
    announce_key(key)
    return key


@transaction.atomic
def delete_key_policy(actor: Principal, account_id: str, access_key_id: str) -> AccessKey:
    """What is attached stays; a key that is left without any policy may do nothing. Raises IamError."""
    key = locked_key(account_id, access_key_id)
    access = access_of(key)
    if access is not None and access.policy:
        before, access.policy = access.policy, ""
        access.save(update_fields=["policy"])
        _note(actor, key, "key.delete_policy", before=before)
        announce_key(key)
    return key


@transaction.atomic
def set_restricted(actor: Principal, account_id: str, access_key_id: str, restricted: bool) -> AccessKey:
    """False takes all policies away: the key may do everything in its account. True of a key that has none: it may do
    nothing until it gets one. Raises IamError."""
    key = locked_key(account_id, access_key_id)
    access = access_of(key)
    if (access is not None) == restricted:
        return key
    if access is None:
        KeyAccess.objects.create(key=key)
        _note(actor, key, "key.restrict")
    else:
        attached = list(access.attachments.order_by("policy__name").values_list("policy__name", flat=True))
        _note(actor, key, "key.free", before=access.policy, detached=attached)
        access.delete()
    announce_key(key)
    return key


@transaction.atomic
def set_key_tags(actor: Principal, account_id: str, access_key_id: str, tags: Mapping[str, str]) -> AccessKey:
    """All of them. Raises IamError."""
    check_tags(tags)
    key = locked_key(account_id, access_key_id)
    access = access_of(key)
    if access is None:
        raise IamError("invalid-request", "Tags are for keys with a policy: nothing else looks at them.", "/tags")
    if access.tags != tags:
        before, access.tags = access.tags, dict(tags)
        access.save(update_fields=["tags"])
        _note(actor, key, "key.tag", tags=dict(tags), before=before)
        announce_key(key)
    return key


@transaction.atomic
def set_key_active(actor: Principal, account_id: str, access_key_id: str, active: bool) -> AccessKey:
    """False: the key opens nothing until it is switched on again. Raises IamError."""
    key = locked_key(account_id, access_key_id)
    if key.active != active:
        key.active = active
        key.save(update_fields=["active"])
        _note(actor, key, "key.enable" if active else "key.disable")
        announce_key(key)
    return key


@transaction.atomic
def rename_key(actor: Principal, account_id: str, access_key_id: str, name: str) -> AccessKey:
    """Raises IamError, AccountError."""
    check_key_name(name)
    key = locked_key(account_id, access_key_id)
    if key.name != name:
        before, key.name = key.name, name
        key.save(update_fields=["name"])
        _note(actor, key, "key.rename", name=name, before=before)
        announce_key(key)
    return key


@transaction.atomic
def rotate_key(actor: Principal, account_id: str, access_key_id: str, grace_s: int) -> NewKey:
    """A new key like this one, which ends after the grace period. One that was to expire passes its span on, also when
    it is rotated again within its grace. Raises IamError, AccountError."""
    assert 0 <= grace_s <= limits.ROTATION_GRACE_S_MAX
    locked_account(account_id)  # first, as everywhere: the new key is counted under this lock
    old = locked_key(account_id, access_key_id)
    now = clock.now()
    if not old.active or (old.expires_at is not None and old.expires_at <= now):
        raise IamError("invalid-request", "The key is not valid any more: create another one.")
    planned = old.planned_expires_at if old.rotated else old.expires_at
    expires_at = None if planned is None else _as_far_on(now, planned - old.created_at)
    new = create_key(actor, account_id, old.name, expires_at)
    _copy_access(old, new.key)
    copy_key_quotas(old, new.key)
    ends_at = now + timedelta(seconds=grace_s)
    old.expires_at = ends_at if old.expires_at is None else min(old.expires_at, ends_at)
    old.rotated, old.planned_expires_at = True, planned
    old.save(update_fields=["expires_at", "rotated", "planned_expires_at"])
    _note(actor, old, "key.rotate", new_key=new.key.access_key_id, expires_at=old.expires_at.isoformat())
    announce_key(old)
    return new


def _as_far_on(now: datetime, span: timedelta) -> datetime:
    """The last time that there is where the span leads behind it: "never" is often written as the year 9999."""
    try:
        return now + span
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def check_tags(tags: Mapping[str, str]) -> None:
    """Raises IamError."""
    if len(tags) > limits.KEY_TAGS_MAX:
        raise IamError("over-limit", f"A key has at most {limits.KEY_TAGS_MAX} tags.", "/tags")
    for key, value in tags.items():
        if not 1 <= len(key) <= limits.TAG_KEY_CHARACTERS_MAX or not key.isprintable():
            text = f"The key of a tag has 1 to {limits.TAG_KEY_CHARACTERS_MAX} printable characters."
            raise IamError("invalid-request", text, "/tags")
        if len(value) > limits.TAG_VALUE_CHARACTERS_MAX or not (value.isprintable() or not value):
            text = f"The value of a tag has at most {limits.TAG_VALUE_CHARACTERS_MAX} printable characters."
            raise IamError("invalid-request", text, "/tags")


def check_size(access: KeyAccess) -> None:
    """Its policies travel with the key's record, and all are weighed for every request. Raises IamError."""
    attached = PolicyAttachment.objects.filter(key=access).values_list("policy__text", flat=True)
    texts = [text for text in (access.policy, *attached) if text]
    if sum(map(len, texts)) > limits.KEY_POLICIES_CHARACTERS_MAX:
        text = f"All policies of a key have at most {limits.KEY_POLICIES_CHARACTERS_MAX} characters together."
        raise IamError("over-limit", text)
    counted = [_slow_patterns(text) for text in texts]
    if sum(one.floating for one in counted) > FLOATING_PATTERNS_MAX:
        text = f"All policies of a key have at most {FLOATING_PATTERNS_MAX} patterns with a ? between two * together."
        raise IamError("over-limit", text)
    if sum(one.of_several_values for one in counted) > SEVERAL_VALUES_WILDCARDS_MAX:
        most = SEVERAL_VALUES_WILDCARDS_MAX
        text = f"All policies of a key have at most {most} wildcards in conditions on keys of several values together."
        raise IamError("over-limit", text)


@lru_cache(limits.POLICY_TEXTS_COUNTED_MAX)
def _slow_patterns(text: str) -> _SlowPatterns:
    """None of a stored policy that is not understood: it denies everything. Kept, because a change of a named policy
    asks this for every key that has it."""
    try:
        document = parse_document(text, PolicyKind.IDENTITY)
    except PolicyError:
        return _SlowPatterns(0, 0)
    return _SlowPatterns(count_floating_patterns(document), count_several_values_wildcards(document))


def _copy_access(old: AccessKey, new: AccessKey) -> None:
    access = access_of(old)
    if access is None:
        return
    copy = KeyAccess.objects.create(key=new, policy=access.policy, tags=access.tags)
    for attachment in PolicyAttachment.objects.filter(key=access):
        PolicyAttachment.objects.create(policy_id=attachment.policy_id, key=copy)


def _note(actor: Principal, key: AccessKey, action: str, **details: object) -> None:
    record(actor, key.account_id, action, f"key:{key.access_key_id}", **details)
