"""Policies and requests drawn at random, for two evaluators to judge.

These keep to what both evaluators take to be settled, where they must agree; `edges.py` draws the rest.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from frontend.authz.context_keys import CONTEXT_KEYS
from frontend.authz.request_context import (
    ANONYMOUS,
    Caller,
    RequestContext,
    federated_caller,
    role_session_caller,
    service_caller,
    user_caller,
)

ACCOUNT, OTHER = "111122223333", "444455556666"
REGION = "us-east-1"
NOW_MS = 1_795_000_000_000  # 2026-11-18T11:06:40Z

Document = dict[str, Any]


class Pair(NamedTuple):
    """`edge` names what is known to be judged differently, None on settled ground."""

    request: RequestContext
    identity: list[Document]
    resource: Document | None
    edge: str | None = None


ALICE = user_caller(ACCOUNT, "alice", "AIDAALICE0000000", "/teams/", {"team": "orders", "level": "3"})
BOB = user_caller(OTHER, "bob", "AIDABOB000000000", tags={"team": "billing"})
CLERK = role_session_caller(ACCOUNT, "clerk", "AROACLERK0000000", "monday", "/shop/", {"team": "orders"})
GUEST = role_session_caller(OTHER, "guest", "AROAGUEST0000000", "visit")
CALLERS: tuple[Caller, ...] = (
    ALICE,
    ALICE,
    BOB,
    CLERK,
    GUEST._replace(mfa_present=True, mfa_at_ms=NOW_MS - 300_000, token_issued_ms=NOW_MS - 600_000),
    federated_caller(ACCOUNT, "kiosk"),
    ANONYMOUS,
    service_caller("sns.amazonaws.com"),
)
QUEUES = ("orders", "orders-eu", "alice-inbox", "billing", "billing.fifo")
ACTIONS = ("SendMessage", "ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "PurgeQueue")
ACTION_PATTERNS = (
    "*", "sqs:*", "sqs:SendMessage", "SQS:sendmessage", "sqs:Send*", "sqs:*Message", "sqs:?eceiveMessage", "sqs:Get*",
    "sqs:Receive*", "sqs:DeleteMessage", "sqs:PurgeQueue",
)  # fmt: skip
IDENTITY_ACTION_PATTERNS = (*ACTION_PATTERNS, "s3:*", "sns:Publish")
RESOURCE_PATTERNS = (
    "*",
    *(f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}" for name in QUEUES[:3]),
    f"arn:aws:sqs:*:{ACCOUNT}:orders*",
    f"arn:aws:sqs:{REGION}:{ACCOUNT}:o?ders",
    "arn:aws:sqs:us-*:*:*-eu",
    "arn:aws:sqs:*:*:*i*l*",
    f"arn:aws:sqs:eu-west-1:{ACCOUNT}:*",
    "arn:*:sqs:*:1111????3333:orders",
)
VARIABLE_PATTERNS = ("arn:aws:sqs:*:*:orders${*}", "arn:aws:sqs:*:*:b${$}*", "arn:aws:sqs:*:*:${?}rders")
# What conditions compare, by the type of the key: keys, operators, values.
TEXTS = (
    ("AWS:UserName", "aws:PrincipalTag/team", "aws:PrincipalTag/level", "aws:UserAgent", "aws:Referer",
     "aws:RequestedRegion", "aws:PrincipalAccount", "aws:SourceAccount", "aws:PrincipalArn"),
    ("StringEquals", "StringNotEquals", "StringEqualsIgnoreCase", "StringNotEqualsIgnoreCase", "StringLike",
     "StringNotLike"),
    ("alice", "ALICE", "orders", "bill*", "*", "?lice", "3", ACCOUNT, REGION, "us-*", "agent/1.0 (x)", "arn:aws:iam::*",
     "", "${aws:username}", "${aws:PrincipalTag/team}", "${aws:PrincipalTag/none, 'orders'}", "${*}", "or${?}ers"),
)  # fmt: skip
NUMBERS = (
    ("aws:EpochTime", "aws:MultiFactorAuthAge", "aws:PrincipalTag/level"),
    ("NumericEquals", "NumericNotEquals", "NumericLessThan", "NumericLessThanEquals", "NumericGreaterThan",
     "NumericGreaterThanEquals"),
    ("3", "2", "4", "3.0", "299", "300", "301", str(NOW_MS // 1_000), "-1", 3, 300),
)  # fmt: skip
TIMES = (
    ("aws:CurrentTime", "aws:TokenIssueTime"),
    ("DateEquals", "DateNotEquals", "DateLessThan", "DateLessThanEquals", "DateGreaterThan", "DateGreaterThanEquals"),
    ("2026-11-18T11:06:40Z", "2026-11-18T11:06:41Z", "2026-11-18T11:06:39Z", "2026-11-18T12:06:40+01:00",
     "2026-11-18", "2026-11-19", "2020-01-01T00:00:00Z", "2030-01-01T00:00Z"),
)  # fmt: skip
BOOLEANS = (
    ("aws:SecureTransport", "aws:MultiFactorAuthPresent"),
    ("Bool",),
    ("true", "false", True, False),
)
ADDRESSES = (
    ("aws:SourceIp",),
    ("IpAddress", "NotIpAddress"),
    ("10.0.0.0/8", "10.1.2.3/32", "10.1.2.4/31", "192.168.0.0/16", "0.0.0.0/1", "2001:db8::/32",
     "2001:db8::/127", "::/0", "203.0.113.0/24"),
)  # fmt: skip
ARNS = (
    ("aws:PrincipalArn", "aws:SourceArn"),
    ("ArnEquals", "ArnNotEquals", "ArnLike", "ArnNotLike"),
    (f"arn:aws:iam::{ACCOUNT}:user/teams/alice", f"arn:aws:iam::{ACCOUNT}:*", "arn:aws:iam::*:role/*",
     "arn:aws:sns:*:*:news", f"arn:aws:sns:{REGION}:{OTHER}:n?ws", "arn:*:*:*:*:*",
     f"arn:aws:iam::{ACCOUNT}:user/teams/${{aws:username}}"),
)  # fmt: skip
LISTS = (
    ("aws:TagKeys",),
    tuple(f"{which}:{name}" for which in ("ForAllValues", "ForAnyValue")
          for name in ("StringEquals", "StringNotEquals", "StringLike", "StringNotLike", "StringEqualsIgnoreCase")),
    ("team", "cost*", "cost", "TEAM", "x", "*"),
)  # fmt: skip
Family = tuple[Sequence[str], Sequence[str], Sequence[Any]]
FAMILIES: Sequence[Family] = (
    TEXTS,
    TEXTS,
    NUMBERS,
    TIMES,
    BOOLEANS,
    ADDRESSES,
    ARNS,
    LISTS,
)
USER_PRINCIPALS = (
    f"arn:aws:iam::{ACCOUNT}:user/teams/alice",
    f"arn:aws:iam::{ACCOUNT}:role/shop/clerk",
    f"arn:aws:sts::{ACCOUNT}:assumed-role/clerk/monday",
    f"arn:aws:iam::{OTHER}:user/bob",
    f"arn:aws:iam::{OTHER}:role/guest",
    f"arn:aws:iam::{OTHER}:user/carol",
)
ACCOUNT_PRINCIPALS = (ACCOUNT, OTHER, f"arn:aws:iam::{ACCOUNT}:root", f"arn:aws:iam::{OTHER}:root")


def settled(chance: random.Random) -> Pair:
    caller = chance.choice(CALLERS)
    identity = []
    if caller.arn is not None:
        identity = [document(chance, None) for _ in range(chance.choice((0, 1, 1, 2)))]
    resource = document(chance, principal) if chance.random() < 0.7 else None
    return Pair(request(chance, caller), identity, resource)


def request(chance: random.Random, caller: Caller, action: str | None = None) -> RequestContext:
    service = bool(caller.service_names)
    tagged = chance.random() < 0.5
    return RequestContext(
        caller,
        f"sqs:{action or chance.choice(ACTIONS)}",
        f"arn:aws:sqs:{REGION}:{ACCOUNT}:{chance.choice(QUEUES)}",
        NOW_MS,
        REGION,
        source_ip=None
        if service
        else chance.choice(("10.1.2.3", "10.200.0.1", "203.0.113.7", "2001:db8::1", "fe80::1")),
        secure_transport=chance.random() < 0.7,
        user_agent=chance.choice((None, "agent/1.0 (x)")),
        referer=chance.choice((None, None, "https://example.com/")),
        resource_tags=chance.choice(({}, {"team": "orders"})),
        tag_keys=chance.choice((("team",), ("team", "cost-center"), ("x", "cost"))) if tagged else (),
        source_arn=f"arn:aws:sns:{REGION}:{OTHER}:news" if service else None,
        source_account_id=OTHER if service else None,
    )


def principal(chance: random.Random) -> Any:
    kind = chance.randrange(6)
    if kind == 0:
        return chance.choice(("*", {"AWS": "*"}))
    if kind == 1:
        return {"Service": chance.choice(("sns.amazonaws.com", "s3.amazonaws.com"))}
    return {"AWS": few(chance, (*USER_PRINCIPALS, *ACCOUNT_PRINCIPALS))}


def document(chance: random.Random, who: Callable[[random.Random], Any] | None) -> Document:
    version = chance.choice(("2012-10-17", "2012-10-17", "2008-10-17", None))
    statements = [statement(chance, who, version) for _ in range(chance.choice((1, 1, 2, 3)))]
    bare = len(statements) == 1 and chance.random() < 0.5
    made: Document = {"Statement": statements[0] if bare else statements}
    return made if version is None else {"Version": version, **made}


def statement(chance: random.Random, who: Callable[[random.Random], Any] | None, version: str | None) -> Document:
    effect = "Deny" if chance.random() < 0.25 else "Allow"
    made: Document = {"Effect": effect}
    if who is not None:
        made["Principal"] = who(chance)
    pool = IDENTITY_ACTION_PATTERNS if who is None else ACTION_PATTERNS
    made["NotAction" if chance.random() < 0.12 else "Action"] = few(chance, pool, wide=2)
    resources = RESOURCE_PATTERNS
    inverse = chance.random() < 0.12
    if version == "2012-10-17" and not inverse:
        resources += VARIABLE_PATTERNS
    made["NotResource" if inverse else "Resource"] = few(chance, resources, wide=3)
    if chance.random() < 0.5:
        made["Condition"] = condition(chance, version)
    return made


def condition(chance: random.Random, version: str | None) -> Document:
    block: Document = {}
    for _ in range(chance.choice((1, 1, 2))):
        keys, operators, values = chance.choice(FAMILIES)
        operator = chance.choice(operators)
        # A negated operator and a variable that may have no value are an edge.
        unwanted = "${" if version != "2012-10-17" else "${aws:" if "Not" in operator else "\0"
        values = tuple(value for value in values if unwanted not in str(value))
        if ":" not in operator and chance.random() < 0.2:
            operator += "IfExists"
        if chance.random() < 0.1:
            operator, values = "Null", ("true", "false", True)
        block.setdefault(operator, {})[chance.choice(keys)] = few(chance, values)
    return block


def few(chance: random.Random, pool: Sequence[Any], wide: int = 0) -> Any:
    """One of the pool, alone or in a list, or some; `wide` are turns at which the first, which fits all, is taken."""
    if wide and chance.random() < wide / 10:
        return chance.choice((pool[0], [pool[0]]))
    chosen = chance.sample(pool, chance.choice((1, 1, 2, 3)))
    return chosen[0] if len(chosen) == 1 and chance.random() < 0.5 else chosen


# --- for the other evaluator ---


def simulation(pair: Pair) -> str:
    """The pair in the words of the other evaluator, one line of JSON."""
    asked, caller = pair.request, pair.request.caller
    context: dict[str, Any] = {}
    for key in CONTEXT_KEYS:
        value = key.read(asked)
        if value is not None:
            context[key.name] = list(value) if isinstance(value, tuple) else value
    for prefix, tags in (("aws:PrincipalTag", caller.tags), ("aws:ResourceTag", asked.resource_tags)):
        context |= {f"{prefix}/{name}": value for name, value in tags.items()}
    service = caller.service_names[0] if caller.service_names else None
    resource = "*" if asked.action == "sqs:ListQueues" else asked.resource_arn
    made: Document = {
        "request": {
            "principal": service or caller.session_arn or caller.arn,
            "action": asked.action,
            "resource": {"resource": resource, "accountId": ACCOUNT},
            "contextVariables": context,
        },
        "identityPolicies": [{"name": f"p{at}", "policy": policy} for at, policy in enumerate(pair.identity)],
        "serviceControlPolicies": [],
        "resourceControlPolicies": [],
    }
    if pair.resource is not None:
        made["resourcePolicy"] = pair.resource
    return json.dumps(made)
