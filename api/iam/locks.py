"""The rows that actions of this app lock. Order: account (`api.accounts.selectors`), key, policy, group."""

from __future__ import annotations

import re
from typing import Literal

from api.accounts.models import AccessKey
from api.changes import announce, next_version
from api.iam.errors import IamError, not_found
from api.iam.models import KeyAccess, PeopleGroup, Policy
from frontend.metadata.records import RecordKind

_NAME = re.compile(r"[A-Za-z0-9_+=,.@-]+", re.ASCII)


def locked_key(account_id: str, access_key_id: str) -> AccessKey:
    """Raises IamError."""
    rows = AccessKey.objects.select_for_update().filter(account_id=account_id, access_key_id=access_key_id)
    key = rows.first()
    if key is None:
        raise not_found()
    return key


def access_of(key: AccessKey) -> KeyAccess | None:
    return KeyAccess.objects.filter(key=key).first()


def locked_policy(account_id: str, name: str) -> Policy:
    """Raises IamError."""
    policy = Policy.objects.select_for_update().filter(account_id=account_id, name=name).first()
    if policy is None:
        raise not_found()
    return policy


def locked_group(account_id: str, name: str) -> PeopleGroup:
    """Raises IamError."""
    group = PeopleGroup.objects.select_for_update().filter(account_id=account_id, name=name).first()
    if group is None:
        raise not_found()
    return group


def check_name(name: str, what: Literal["policy", "group"], characters_max: int) -> str:
    """Names are parts of ARNs and of paths. Raises IamError."""
    if not 1 <= len(name) <= characters_max or _NAME.fullmatch(name) is None:
        text = f"The name of a {what} has 1 to {characters_max} letters, digits and characters of _+=,.@-"
        raise IamError("invalid-request", text, "/name")
    if what == "policy" and name == "simulate":
        raise IamError("invalid-request", "The path of a policy of this name is that of the simulator.", "/name")
    return name


def announce_key(key: AccessKey) -> None:
    """The key's record is another: every front end hears of it."""
    key.version = next_version()
    key.save(update_fields=["version"])
    announce(RecordKind.KEY, key.access_key_id, key.version)
