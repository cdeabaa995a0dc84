"""Who is asking, once that is proven: the one principal of both planes.

| kind | `name` | proven by |
|---|---|---|
| key | the access key id | a signature or a bearer token |
| person | `person:` and the id | a session; a pass of a page on the data plane |
| operator | `operator`, or `person:` and the id of one who acts as the member `acting_as` | a command; such a session |
| service | a word of the installation: `lifecycle`, `front-end` | the internal key, or that it runs here |

Policies weigh `caller`, whose name is `arn`; the trail keeps `name`, `acting_as` and `source_ip`. What travels between
the planes is made of it in `vouching.py` beside this.

Surface: other planes may import this module.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from frontend.authn.rights import Rights
from frontend.authz import NO_POLICY, CompiledPolicy, RequestContext
from frontend.authz.request_context import NO_TAGS, Caller, Tags, key_caller, person_caller, root_caller, service_caller
from frontend.limits import CALLERS_KEPT_MAX

PERSON_PREFIX = "person:"


class PrincipalKind(Enum):
    KEY = "key"
    PERSON = "person"
    OPERATOR = "operator"
    SERVICE = "service"


class Principal(NamedTuple):
    """Made by the front end's authenticator for a key, and by the functions below for all others."""

    # "" of operators' commands, of services, and of a person who is in no account yet.
    account_id: str
    name: str
    # Tells a key from its later self.
    key_version: int = 0
    # The address of the client as the front end sees it, "" where there is none; whether the connection is encrypted.
    source_ip: str = ""
    is_secure: bool = False
    # None: the key acts as its account, and may do everything in it. Of keys only.
    rights: Rights | None = None
    # What the client says of itself, for conditions: None where it says nothing. Cut to CALLER_TEXT_CHARACTERS_MAX.
    user_agent: str | None = None
    referer: str | None = None
    kind: PrincipalKind = PrincipalKind.KEY
    # The name of the member as whom an operator acts.
    acting_as: str = ""
    # Where the request is known by it: on the control plane.
    request_id: str = ""

    @property
    def caller(self) -> Caller:
        """Whom policies take it for."""
        return root_of(self.account_id) if self.rights is None else self.rights.caller

    @property
    def arn(self) -> str | None:
        """As `aws:PrincipalArn` and the statements of queue policies name it; None of services and commands."""
        return self.caller.arn

    @property
    def policy(self) -> CompiledPolicy:
        """Its own side of what is weighed."""
        return NO_POLICY if self.rights is None else self.rights.policy

    def asks(
        self,
        action: str,
        resource_arn: str,
        now_ms: int,
        region: str,
        resource_tags: Tags = NO_TAGS,
        request_tags: Tags = NO_TAGS,
        tag_keys: tuple[str, ...] = (),
    ) -> RequestContext:
        """All that a policy can look at."""
        return RequestContext(
            self.caller,
            action,
            resource_arn,
            now_ms,
            region,
            self.source_ip or None,
            self.is_secure,
            self.user_agent,
            self.referer,
            resource_tags,
            request_tags,
            tag_keys,
        )


def person(
    account_id: str,
    person_id: str,
    source_ip: str = "",
    is_secure: bool = False,
    acting_as: str = "",
    request_id: str = "",
) -> Principal:
    """A member of the account, or an operator who acts as the member with the id `acting_as`. It may do nothing until
    it is given rights (`_replace(rights=...)`)."""
    kind = PrincipalKind.OPERATOR if acting_as else PrincipalKind.PERSON
    as_whom = PERSON_PREFIX + acting_as if acting_as else ""
    name, rights = PERSON_PREFIX + person_id, _person_without_rights(account_id, acting_as or person_id)
    return Principal(
        account_id, name, 0, source_ip, is_secure, rights, kind=kind, acting_as=as_whom, request_id=request_id
    )


def service(name: str, account_id: str = "") -> Principal:
    """A process of the installation; `account_id` where it speaks of one."""
    return Principal(account_id, name, rights=_SERVICE_RIGHTS, kind=PrincipalKind.SERVICE)


def operator() -> Principal:
    """Who has the command line of the installation."""
    return Principal("", "operator", rights=_SERVICE_RIGHTS, kind=PrincipalKind.OPERATOR)


def without_rights(account_id: str, name: str, kind: PrincipalKind, acting_as: str) -> Rights:
    """Of a principal that came from another plane: rights do not travel, and until they are read it has none."""
    if kind is PrincipalKind.KEY:
        return Rights(key_caller(account_id, name), NO_POLICY, {})
    if kind is PrincipalKind.PERSON or acting_as:
        return _person_without_rights(account_id, person_id_of(acting_as or name))
    return _SERVICE_RIGHTS


def person_id_of(name: str) -> str:
    return name.removeprefix(PERSON_PREFIX)


@lru_cache(CALLERS_KEPT_MAX)
def root_of(account_id: str) -> Caller:
    return root_caller(account_id)


@lru_cache(CALLERS_KEPT_MAX)
def _person_without_rights(account_id: str, person_id: str) -> Rights:
    return Rights(person_caller(account_id, person_id), NO_POLICY, {})


_SERVICE_RIGHTS = Rights(service_caller("penstock"), NO_POLICY, {})
