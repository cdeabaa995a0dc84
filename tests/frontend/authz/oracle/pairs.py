"""Policies and requests drawn at random, for two evaluators to judge.

Most pairs keep to what both evaluators take to be settled: on those they must agree. Of the others, one in
`RARE_EVERY`, some hold a rare thing on which they agree as well, and some hold one thing that is known to be judged
differently: those have the name of an edge, and docs/policies.md says what it is about.
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
    root_caller,
    service_caller,
    user_caller,
)

ACCOUNT, OTHER = "111122223333", "444455556666"
REGION = "us-east-1"
RARE_EVERY = 8
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
FAMILIES = (TEXTS, TEXTS, NUMBERS, TIMES, BOOLEANS, ADDRESSES, ARNS, LISTS)
USER_PRINCIPALS = (
    f"arn:aws:iam::{ACCOUNT}:user/teams/alice",
    f"arn:aws:iam::{ACCOUNT}:role/shop/clerk",
    f"arn:aws:sts::{ACCOUNT}:assumed-role/clerk/monday",
    f"arn:aws:iam::{OTHER}:user/bob",
    f"arn:aws:iam::{OTHER}:role/guest",
    f"arn:aws:iam::{OTHER}:user/carol",
)
ACCOUNT_PRINCIPALS = (ACCOUNT, OTHER, f"arn:aws:iam::{ACCOUNT}:root", f"arn:aws:iam::{OTHER}:root")


def draw(chance: random.Random) -> Pair:
    if chance.randrange(RARE_EVERY):
        return settled(chance)
    name = chance.choice(sorted(EDGES | CORNERS))
    if name in CORNERS:
        return CORNERS[name](chance)
    return EDGES[name](chance)._replace(edge=name)


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
    made: Document = {"Statement": statements if len(statements) > 1 else chance.choice((statements, statements[0]))}
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


# --- what is rare: one thing each, among what is settled ---

Draw = Callable[[random.Random], Pair]


def _allow(**members: Any) -> Document:
    made = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*", **members}
    return {"Version": "2012-10-17", "Statement": [made]}


def _caller(
    caller: Caller,
    resource: Callable[[random.Random], Document | None],
    identity: Callable[[random.Random], list[Document]] = lambda chance: [],
    action: str | None = None,
) -> Draw:
    return lambda chance: Pair(request(chance, caller, action), identity(chance), resource(chance))


def _identity(*documents: Document, caller: Caller = ALICE) -> Draw:
    return lambda chance: Pair(request(chance, caller), [chance.choice(documents)], None)


def _queue(*documents: Document) -> Draw:
    return lambda chance: Pair(request(chance, ALICE), [], chance.choice(documents))


def _resources(*patterns: str, inverse: bool = False) -> Draw:
    member = "NotResource" if inverse else "Resource"
    statements = [
        {"Effect": effect, "Action": "sqs:*", member: f"arn:aws:sqs:{pattern}"}
        for pattern in patterns
        for effect in ("Allow", "Deny")
    ]
    allowed = _allow()["Statement"]
    return _identity(
        *({"Version": "2012-10-17", "Statement": [*allowed[denies(one) - 1 :], one]} for one in statements)
    )


def denies(statement: Document) -> bool:
    return statement["Effect"] == "Deny"


def _conditions(*blocks: Document) -> Draw:
    """Under an Allow, or under a Deny beside an Allow of everything."""
    allowed = _allow()["Statement"]
    return _identity(
        *(_allow(Condition=block) for block in blocks),
        *(
            {"Version": "2012-10-17", "Statement": [*allowed, {**allowed[0], "Effect": "Deny", "Condition": block}]}
            for block in blocks
        ),
    )


_TEAM_QUEUES = f"{REGION}:{ACCOUNT}"
# They agree on these.
CORNERS: dict[str, Draw] = {
    "several values without a set operator": _conditions(
        {"StringEquals": {"aws:TagKeys": "team"}}, {"StringNotEquals": {"aws:TagKeys": "team"}}
    ),
    "ForAnyValue IfExists": _conditions({"ForAnyValue:StringEqualsIfExists": {"aws:TagKeys": "team"}}),
    "time of the W3C subset": _conditions(
        {"DateLessThan": {"aws:CurrentTime": "2026-11-18T12:00Z"}},
        {"DateLessThan": {"aws:CurrentTime": "2026-12"}},
        {"DateGreaterThan": {"aws:CurrentTime": "2026-11-18T11:06:39.999Z"}},
    ),
    "short ARN": _resources("us-east-1", f"*:{ACCOUNT}", "*"),
    "case of a queue's name": _resources(f"{_TEAM_QUEUES}:ORDERS", f"{_TEAM_QUEUES}:Ord*"),
    "characters of regular expressions": _resources(
        f"{_TEAM_QUEUES}:billing.fif?", f"{_TEAM_QUEUES}:b+", f"{_TEAM_QUEUES}:billingXfif?", f"{_TEAM_QUEUES}:(b*"
    ),
}
# They differ on these, at least now and then.
EDGES: dict[str, Draw] = {
    "root of the owner": _caller(
        root_caller(ACCOUNT), lambda chance: document(chance, principal) if chance.random() < 0.7 else None
    ),
    "root of the owner unlocks": _caller(
        root_caller(ACCOUNT),
        lambda chance: {"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*"}]},
        action="SetQueueAttributes",
    ),
    "root of another account": _caller(
        root_caller(OTHER), lambda chance: document(chance, lambda one: {"AWS": few(one, ACCOUNT_PRINCIPALS)})
    ),
    "action of the owner": _caller(
        BOB, lambda chance: _allow(Principal={"AWS": BOB.arn}), lambda chance: [_allow()], "SetQueueAttributes"
    ),
    "NotPrincipal": _caller(
        CLERK,
        lambda chance: {
            "Statement": {
                "Effect": "Deny",
                "NotPrincipal": {"AWS": few(chance, (*USER_PRINCIPALS[:4], ACCOUNT))},
                "Action": "sqs:*",
                "Resource": "*",
            }
        },
        lambda chance: [_allow()],
    ),
    "tags of the queue in its policy": _queue(
        _allow(Principal="*", Condition={"StringEquals": {"aws:ResourceTag/team": "orders"}}),
        _allow(Principal="*", Condition={"StringNotEquals": {"aws:ResourceTag/team": "orders"}}),
    ),
    "list of queues": lambda chance: Pair(
        request(chance, ALICE)._replace(action="sqs:ListQueues", resource_arn=f"arn:aws:sqs:{_TEAM_QUEUES}:"),
        [_allow(Resource=few(chance, ("*", "arn:aws:sqs:*:*:*", f"arn:aws:sqs:{_TEAM_QUEUES}:")))],
        None,
    ),
    "variable in the name of a queue": _resources(
        f"{_TEAM_QUEUES}:${{aws:username}}-*", "*:*:${aws:PrincipalTag/team}", "*:*:${aws:PrincipalTag/no, 'billing'}*"
    ),
    "NotResource with a variable": _resources("*:*:${aws:username}-*", "*:*:${aws:PrincipalTag/no}", inverse=True),
    "network of all addresses": _conditions({"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}),
    "address written in another way": _conditions(
        {"IpAddress": {"aws:SourceIp": "2001:0db8:0::1"}},
        {"IpAddress": {"aws:SourceIp": "2001:DB8::1"}},
        {"NotIpAddress": {"aws:SourceIp": "2001:0db8:0::1"}},
        {"IpAddress": {"aws:SourceIp": "::ffff:10.1.2.3"}},
        {"IpAddress": {"aws:SourceIp": "::ffff:10.0.0.0/104"}},
    ),
    "one address against the other family": _conditions({"NotIpAddress": {"aws:SourceIp": "10.1.2.3"}}),
    "year": _conditions(
        {"DateGreaterThan": {"aws:CurrentTime": "2030"}}, {"DateLessThan": {"aws:CurrentTime": "2030"}}
    ),
    "seconds beside a date": _conditions(
        {"DateGreaterThan": {"aws:CurrentTime": "1900000000"}}, {"DateLessThan": {"aws:CurrentTime": 1900000000}}
    ),
    "empty text": _conditions(
        {"StringEquals": {"aws:username": "${aws:PrincipalTag/no, ''}"}},
        {"StringLike": {"aws:username": "alice${aws:PrincipalTag/no, ''}"}},
    ),
    "request value that cannot be read": _conditions(
        {"NumericNotEquals": {"aws:username": "3"}},
        {"NotIpAddress": {"aws:username": "10.0.0.0/8"}},
        {"ArnNotLike": {"aws:username": "arn:aws:iam::*:*"}},
        {"DateNotEquals": {"aws:username": "2026-01-01"}},
    ),
    "variable without a value, negated": _conditions(
        {"StringNotEquals": {"aws:username": "${aws:PrincipalTag/no}"}},
        {"StringNotLike": {"aws:username": "${aws:PrincipalTag/no}*"}},
    ),
}  # fmt: skip

# Documents that one of the two refuses, or both do.
_ODD_IDENTITY: dict[str, Document] = {
    "number with letters": _allow(Condition={"NumericEquals": {"aws:PrincipalTag/level": "3x"}}),
    "time in words": _allow(Condition={"DateLessThan": {"aws:CurrentTime": "tomorrow"}}),
    "truth value yes": _allow(Condition={"Bool": {"aws:SecureTransport": "yes"}}),
    "prefix of 33 bits": _allow(Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/33"}}),
    "ARN without parts": _allow(Condition={"ArnLike": {"aws:PrincipalArn": "*"}}),
    "Sid with a dash": _allow(Sid="with-dash"),
    "Sid that is empty": _allow(Sid=""),
    "Principal in an identity policy": _allow(Principal="*"),
    "Id in an identity policy": {"Id": "x", **_allow()},
    "unknown Version": {**_allow(), "Version": "2011-01-01"},
    "no statement": {"Version": "2012-10-17", "Statement": []},
    "Statement missing": {"Version": "2012-10-17"},
    "Effect in lower case": _allow(Effect="allow"),
    "no action": _allow(Action=[]),
    "action without service": _allow(Action="sendmessage"),
    "wildcard in the service of an action": _allow(Action="s*:SendMessage"),
    "action *:*": _allow(Action="*:*"),
    "no resource": _allow(Resource=[]),
    "resource that is no ARN": _allow(Resource="orders"),
    "wildcard in the service of an ARN": _allow(Resource="arn:aws:s*:*:*:*"),
    "variable before the fifth colon": _allow(Resource="arn:aws:sqs:${aws:RequestedRegion}:*:*"),
    "empty Condition": _allow(Condition={}),
    "operator without keys": _allow(Condition={"StringEquals": {}}),
    "key without values": _allow(Condition={"StringEquals": {"aws:username": []}}),
    "unknown operator": _allow(Condition={"StringEqual": {"aws:username": "alice"}}),
    "operator in lower case": _allow(Condition={"stringequals": {"aws:username": "alice"}}),
    "NullIfExists": _allow(Condition={"NullIfExists": {"aws:username": "true"}}),
    "key without prefix": _allow(Condition={"StringEquals": {"username": "alice"}}),
    "key twice, in two cases": _allow(Condition={"StringEquals": {"aws:username": "alice", "aws:UserName": "alice"}}),
    "unknown member": _allow(Unknown="x"),
}
_ODD_RESOURCE: dict[str, Document] = {
    "Principal missing": _allow(),
    "Principal that is empty": _allow(Principal={}),
    "Principal without entries": _allow(Principal={"AWS": []}),
    "Principal in lower case": _allow(Principal={"aws": ACCOUNT}),
    "wildcard in a principal": _allow(Principal={"AWS": "arn:aws:iam::*:root"}),
    "principal that is no ARN": _allow(Principal={"AWS": "alice"}),
    "CanonicalUser": _allow(Principal={"CanonicalUser": "0" * 64}),
    "NotPrincipal with Allow": _allow(NotPrincipal={"AWS": ACCOUNT}),
    "action of another service": _allow(Principal="*", Action="s3:GetObject"),
    "unknown action": _allow(Principal="*", Action="sqs:NoSuchAction"),
    "action of a batch": _allow(Principal="*", Action="sqs:SendMessageBatch"),
    "short ARN in a queue policy": _allow(Principal="*", Resource="arn:aws:sqs"),
    "Resource missing": {
        "Version": "2012-10-17",
        "Statement": {"Effect": "Allow", "Principal": "*", "Action": "sqs:*"},
    },
    "Id in a queue policy": {"Id": "x", **_allow(Principal="*")},
    "Sid with a space": _allow(Principal="*", Sid="with-dash and space"),
}
# Of these both say the same.
_AGREED = frozenset(
    (
        "Effect in lower case",
        "Id in a queue policy",
        "Principal in an identity policy",
        "Principal in lower case",
        "Sid that is empty",
        "Sid with a space",
        "Statement missing",
        "action *:*",
        "action of a batch",
        "action without service",
        "empty Condition",
        "operator in lower case",
        "unknown Version",
        "unknown member",
        "wildcard in the service of an action",
    )
)
for _name, _draw in (
    *((name, _identity(made)) for name, made in _ODD_IDENTITY.items()),
    *((name, _queue(made)) for name, made in _ODD_RESOURCE.items()),
):
    (CORNERS if _name in _AGREED else EDGES)[f"grammar: {_name}"] = _draw


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
