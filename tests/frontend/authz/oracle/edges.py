"""Rare pairs, one thing each: corners, on which both evaluators agree, and edges, which they judge differently.

docs/policies.md says what each edge is about.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from frontend.authz.request_context import Caller, root_caller
from tests.frontend.authz.oracle.pairs import (
    ACCOUNT,
    ACCOUNT_PRINCIPALS,
    ALICE,
    BOB,
    CLERK,
    OTHER,
    REGION,
    USER_PRINCIPALS,
    Document,
    Pair,
    document,
    few,
    principal,
    request,
    settled,
)

RARE_EVERY = 8


def draw(chance: random.Random) -> Pair:
    if chance.randrange(RARE_EVERY):
        return settled(chance)
    name = chance.choice(sorted(EDGES | CORNERS))
    if name in CORNERS:
        return CORNERS[name](chance)
    return EDGES[name](chance)._replace(edge=name)


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
