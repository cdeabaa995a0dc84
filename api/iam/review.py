"""Stored policies that cannot be understood: written by hand, or by a release that knew more. They deny everything
until their owner stores them again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from api.iam import limits
from api.iam.models import KeyAccess, Policy
from api.queues.models import Queue, QueueStatus
from frontend.authz import PolicyError, PolicyKind, compile_policy


class Stored(NamedTuple):
    """`holder` is as `key:AKPS...`, `policy:name` or `queue:name`."""

    account_id: str
    holder: str
    kind: PolicyKind
    text: str


class Finding(NamedTuple):
    account_id: str
    holder: str
    member: str
    error: str


def review_stored() -> list[Finding]:
    """Of all accounts."""
    return [finding for stored in stored_policies() if (finding := _finding(stored)) is not None]


def stored_policies() -> Iterator[Stored]:
    size = limits.REVIEWED_AT_A_TIME
    own = KeyAccess.objects.exclude(policy="").order_by("key_id").values_list("key__account_id", "key_id", "policy")
    for account_id, access_key_id, text in own.iterator(chunk_size=size):
        yield Stored(account_id, f"key:{access_key_id}", PolicyKind.IDENTITY, text)
    named = Policy.objects.order_by("account_id", "name").values_list("account_id", "name", "text")
    for account_id, name, text in named.iterator(chunk_size=size):
        yield Stored(account_id, f"policy:{name}", PolicyKind.IDENTITY, text)
    queues = Queue.objects.filter(attributes__has_key="Policy").exclude(state=QueueStatus.DELETED)
    rows = queues.order_by("account_id", "name").values_list("account_id", "name", "attributes__Policy")
    for account_id, name, text in rows.iterator(chunk_size=size):
        if text:
            yield Stored(account_id, f"queue:{name}", PolicyKind.RESOURCE, text)


def _finding(stored: Stored) -> Finding | None:
    try:
        compile_policy(stored.text, stored.kind, "reviewed")
    except PolicyError as error:
        return Finding(stored.account_id, stored.holder, error.path, error.text)
    return None
