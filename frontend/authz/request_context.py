"""Who asks for what, and how: everything that a policy can look at. Pure: the caller of the evaluator fills it in.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

Tags = Mapping[str, str]
NO_TAGS: Tags = MappingProxyType({})
AWS_PARTITION = "aws"

# Of the ARN of an access key as a principal.
KEY_PATH = "/key/"
# Of that of a person.
PERSON_PATH = "/person/"

ARN_PARTS = 6
ARNS_KEPT_MAX = 4_096


@lru_cache(ARNS_KEPT_MAX)
def split_arn(arn: str) -> tuple[str, ...]:
    """At its first five colons."""
    return tuple(arn.split(":", ARN_PARTS - 1))


class CallerKind(Enum):
    """The values are those of aws:PrincipalType."""

    ROOT = "Account"  # the account itself: everything of its own, without a policy
    USER = "User"
    ROLE_SESSION = "AssumedRole"
    FEDERATED = "FederatedUser"
    ANONYMOUS = "Anonymous"
    SERVICE = "Service"


class Caller(NamedTuple):
    """Made by the functions below, once for a key or session: nothing of it belongs to one request.

    `arn` is what aws:PrincipalArn gives and what statements name: of a session the role, with its path. `session_arn`
    is the session's own name, which refusals tell and statements may name. `tags` are those of the user or role with
    those of the session over them.
    """

    kind: CallerKind
    arn: str | None
    account_id: str | None
    user_id: str | None = None
    user_name: str | None = None
    session_arn: str | None = None
    service_names: tuple[str, ...] = ()
    tags: Tags = NO_TAGS
    # Temporary credentials only: None for keys that last.
    mfa_present: bool | None = None
    mfa_at_ms: int | None = None
    token_issued_ms: int | None = None
    partition: str = AWS_PARTITION

    @property
    def account_arn(self) -> str:
        return f"arn:{self.partition}:iam::{self.account_id}:root"


class RequestContext(NamedTuple):
    """`request_tags` and `tag_keys` are None where the action sends none, `source_ip` is the client's address as the
    front end sees it, `source_arn` and `source_account_id` are set by a service that calls for a resource and by
    nothing else."""

    caller: Caller
    action: str  # `sqs:SendMessage`, spelled as in `actions.py`
    resource_arn: str
    now_ms: int
    region: str
    source_ip: str | None = None
    secure_transport: bool = False
    user_agent: str | None = None
    referer: str | None = None
    resource_tags: Tags = NO_TAGS
    request_tags: Tags = NO_TAGS
    tag_keys: tuple[str, ...] = ()
    source_arn: str | None = None
    source_account_id: str | None = None

    @property
    def resource_account_id(self) -> str:
        return split_arn(self.resource_arn)[4]


ANONYMOUS = Caller(CallerKind.ANONYMOUS, None, None, user_id="anonymous")


def root_caller(account_id: str) -> Caller:
    arn = f"arn:{AWS_PARTITION}:iam::{account_id}:root"
    return Caller(CallerKind.ROOT, arn, account_id, user_id=account_id)


def user_caller(account_id: str, name: str, user_id: str, path: str = "/", tags: Tags = NO_TAGS) -> Caller:
    """`path` begins and ends with a slash."""
    arn = f"arn:{AWS_PARTITION}:iam::{account_id}:user{path}{name}"
    return Caller(CallerKind.USER, arn, account_id, user_id=user_id, user_name=name, tags=tags)


def key_caller(account_id: str, access_key_id: str, tags: Tags = NO_TAGS) -> Caller:
    """An access key that has policies. One that has none is its account (`root_caller`)."""
    return user_caller(account_id, access_key_id, access_key_id, KEY_PATH, tags)


def person_caller(account_id: str, person_id: str) -> Caller:
    """A member of the account, signed in."""
    return user_caller(account_id, person_id, person_id, PERSON_PATH)


def role_session_caller(
    account_id: str, role: str, role_id: str, session: str, path: str = "/", tags: Tags = NO_TAGS
) -> Caller:
    return Caller(
        CallerKind.ROLE_SESSION,
        f"arn:{AWS_PARTITION}:iam::{account_id}:role{path}{role}",
        account_id,
        user_id=f"{role_id}:{session}",
        session_arn=f"arn:{AWS_PARTITION}:sts::{account_id}:assumed-role/{role}/{session}",
        tags=tags,
        mfa_present=False,
    )


def federated_caller(account_id: str, name: str) -> Caller:
    arn = f"arn:{AWS_PARTITION}:sts::{account_id}:federated-user/{name}"
    user_id = f"{account_id}:{name}"
    return Caller(CallerKind.FEDERATED, arn, account_id, user_id=user_id, session_arn=arn, mfa_present=False)


def service_caller(name: str) -> Caller:
    """`name` is as `sns.amazonaws.com`."""
    return Caller(CallerKind.SERVICE, None, None, service_names=(name,))
