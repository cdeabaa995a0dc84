"""The condition keys: what each is named, its type, and where its value stands in a request. Pure.

Names ignore case. A key that is not here is missing from every request, which is legal; `review.py` tells of it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from frontend.authz.condition_values import format_time
from frontend.authz.policy_limits import CALLER_TEXT_CHARACTERS_MAX
from frontend.authz.request_context import CallerKind, RequestContext, Tags

KeyValue = str | tuple[str, ...] | None
ReadKey = Callable[[RequestContext], KeyValue]
TIMES_KEPT_MAX = 64
_BOOLEAN: dict[bool | None, str | None] = {None: None, True: "true", False: "false"}


class KeyType(Enum):
    STRING = auto()
    ARN = auto()
    BOOL = auto()
    NUMERIC = auto()
    DATE = auto()
    DATE_OR_NUMERIC = auto()
    IP = auto()
    STRINGS = auto()  # several values: the only type that set operators are for


class ContextKey(NamedTuple):
    """`always` says that every request has it. `is_steady`: it is the same in all requests of one caller from one
    address, encrypted or not, about one resource with the tags that it has. `is_time`: it is the second of the
    request."""

    name: str
    type: KeyType
    read: ReadKey
    always: bool = False
    is_steady: bool = False
    is_time: bool = False


def find_key(name: str) -> ContextKey | None:
    folded = name.lower()
    if (key := _KEYS.get(folded)) is not None:
        return key
    prefix, slash, _ = folded.partition("/")
    tag = name[len(prefix) + 1 :]
    if not slash or not tag or prefix not in _TAG_KEYS:
        return None
    whole, tags_of = _TAG_KEYS[prefix]
    return ContextKey(f"{whole}/{tag}", KeyType.STRING, _tag_reader(tags_of, tag), is_steady=is_resource_tag(name))


def is_resource_tag(name: str) -> bool:
    """SQS gives the tags of a queue to identity policies only."""
    return name.lower().startswith("aws:resourcetag/")


def read_nothing(request: RequestContext) -> KeyValue:
    return None


def _tag_reader(tags_of: Callable[[RequestContext], Tags], tag: str) -> ReadKey:
    folded = tag.lower()

    def read(request: RequestContext) -> KeyValue:
        tags = tags_of(request)
        if not tags:
            return None
        value = tags.get(tag)
        if value is None:
            # Names ignore case. Of several that fit, and none exactly, it is always the same one.
            near = sorted(name for name in tags if name.lower() == folded)
            value = tags[near[0]] if near else None
        return value

    return read


@lru_cache(TIMES_KEPT_MAX)
def _time(epoch_s: int) -> str:
    return format_time(epoch_s)


def _caller_text(text: str | None) -> KeyValue:
    return None if text is None else text[:CALLER_TEXT_CHARACTERS_MAX]


def _principal_account(request: RequestContext) -> KeyValue:
    caller = request.caller
    return "anonymous" if caller.kind is CallerKind.ANONYMOUS else caller.account_id


def _mfa_age_s(request: RequestContext) -> KeyValue:
    at_ms = request.caller.mfa_at_ms
    return None if at_ms is None else str(max(0, request.now_ms - at_ms) // 1_000)


def _token_issued(request: RequestContext) -> KeyValue:
    at_ms = request.caller.token_issued_ms
    return None if at_ms is None else _time(at_ms // 1_000)


_TAG_KEYS: dict[str, tuple[str, Callable[[RequestContext], Tags]]] = {
    "aws:principaltag": ("aws:PrincipalTag", lambda request: request.caller.tags),
    "aws:requesttag": ("aws:RequestTag", lambda request: request.request_tags),
    "aws:resourcetag": ("aws:ResourceTag", lambda request: request.resource_tags),
}
CONTEXT_KEYS: tuple[ContextKey, ...] = (
    ContextKey("aws:CurrentTime", KeyType.DATE, lambda request: _time(request.now_ms // 1_000), True),
    ContextKey("aws:EpochTime", KeyType.DATE_OR_NUMERIC, lambda request: str(request.now_ms // 1_000), True),
    ContextKey("aws:MultiFactorAuthAge", KeyType.NUMERIC, _mfa_age_s),
    ContextKey("aws:MultiFactorAuthPresent", KeyType.BOOL, lambda request: _BOOLEAN[request.caller.mfa_present]),
    ContextKey("aws:PrincipalAccount", KeyType.STRING, _principal_account),
    ContextKey("aws:PrincipalArn", KeyType.ARN, lambda request: request.caller.arn),
    ContextKey("aws:PrincipalServiceNamesList", KeyType.STRINGS, lambda request: request.caller.service_names or None),
    ContextKey("aws:PrincipalType", KeyType.STRING, lambda request: request.caller.kind.value, True),
    ContextKey("aws:Referer", KeyType.STRING, lambda request: _caller_text(request.referer)),
    ContextKey("aws:RequestedRegion", KeyType.STRING, lambda request: request.region, True),
    ContextKey("aws:ResourceAccount", KeyType.STRING, lambda request: request.resource_account_id, True),
    ContextKey("aws:SecureTransport", KeyType.BOOL, lambda request: _BOOLEAN[request.secure_transport], True),
    ContextKey("aws:SourceAccount", KeyType.STRING, lambda request: request.source_account_id),
    ContextKey("aws:SourceArn", KeyType.ARN, lambda request: request.source_arn),
    ContextKey("aws:SourceIp", KeyType.IP, lambda request: request.source_ip),
    ContextKey("aws:TagKeys", KeyType.STRINGS, lambda request: request.tag_keys or None),
    ContextKey("aws:TokenIssueTime", KeyType.DATE, _token_issued),
    ContextKey("aws:UserAgent", KeyType.STRING, lambda request: _caller_text(request.user_agent)),
    ContextKey("aws:userid", KeyType.STRING, lambda request: request.caller.user_id),
    ContextKey("aws:username", KeyType.STRING, lambda request: request.caller.user_name),
)
# Nothing that a request brings with it, and nothing that has an age.
_STEADY = frozenset(
    (
        "aws:PrincipalAccount",
        "aws:PrincipalArn",
        "aws:PrincipalType",
        "aws:RequestedRegion",
        "aws:ResourceAccount",
        "aws:SecureTransport",
        "aws:SourceIp",
        "aws:userid",
        "aws:username",
    )
)
_TIMES = frozenset(("aws:CurrentTime", "aws:EpochTime"))
_KEYS = {
    key.name.lower(): key._replace(is_steady=key.name in _STEADY, is_time=key.name in _TIMES) for key in CONTEXT_KEYS
}
