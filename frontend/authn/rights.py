"""What an access key may do: its policies, compiled once for each state of its record.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from frontend.authz import CompiledPolicy, PolicyKind, compile_policy, join_policies, load_policy
from frontend.authz.request_context import Caller, key_caller, person_caller
from frontend.limits import KEY_RIGHTS_CACHED_MAX, POLICIES_COMPILED_MAX

if TYPE_CHECKING:
    from frontend.metadata.records import KeyRecord, PolicyRecord


# The address of a client, and whether its connection is encrypted.
Origin = tuple[str, bool] | None
_WEIGHED_BEFORE = compile_policy(
    '{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}', PolicyKind.IDENTITY, "page"
)


class Allowed(NamedTuple):
    """That something was allowed holds for this policy of the queue and these tags, from `since_s` (seconds since 1970)
    until before `until_s`."""

    policy: CompiledPolicy
    tags: Mapping[str, str]
    since_s: float
    until_s: float


class Rights(NamedTuple):
    """Who policies take the key for, and all its policies as one.

    `allowed` remembers what was allowed, by the operation, the queue's name and `Origin`, which is None where it was
    not looked at. Kept by messages/admission.py, at most KEY_DECISIONS_KEPT_MAX.
    """

    caller: Caller
    policy: CompiledPolicy
    allowed: dict[tuple[str, tuple[str, str], Origin], Allowed]


class KeyRights:
    """The rights of the keys that this front end has seen of late."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, tuple[KeyRecord, Rights]] = {}

    def of(self, record: KeyRecord) -> Rights | None:
        """None of a key without policies, which acts as its account."""
        if record.policies is None:
            return None
        kept = self._kept.get(record.access_key_id)
        if kept is not None and kept[0] is record:
            return kept[1]
        rights = rights_of(record.account_id, record.access_key_id, record.policies, record.tags)
        if kept is None and len(self._kept) >= KEY_RIGHTS_CACHED_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[record.access_key_id] = (record, rights)
        return rights


def rights_of(account_id: str, access_key_id: str, policies: Sequence[PolicyRecord], tags: Mapping[str, str]) -> Rights:
    caller = key_caller(account_id, access_key_id, tags)
    return Rights(caller, join_policies([compiled(policy) for policy in policies]), {})


@lru_cache(POLICIES_COMPILED_MAX)
def compiled(policy: PolicyRecord) -> CompiledPolicy:
    """Those that share a policy share what is made of it."""
    return load_policy(policy.text, PolicyKind.IDENTITY, policy.name)


@lru_cache(KEY_RIGHTS_CACHED_MAX)
def page_rights(account_id: str, person_id: str) -> Rights:
    """Of a person on a page: the control plane has weighed the person's own policies before it made the pass. What the
    policy of the queue says of the person is left to be weighed."""
    return Rights(person_caller(account_id, person_id), _WEIGHED_BEFORE, {})
