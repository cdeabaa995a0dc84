"""Accounts, callers, requests and policies that the tests of the evaluator share."""

from __future__ import annotations

import json
from typing import Any

from frontend.authz import NO_POLICY, CompiledPolicy, Decision, PolicyKind, RequestContext, compile_policy, evaluate
from frontend.authz.request_context import Caller, role_session_caller, root_caller, user_caller

ACCOUNT, OTHER = "111122223333", "444455556666"
REGION = "us-east-1"
QUEUE_ARN = f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
NOW_MS = 1_795_000_000_500  # 2026-11-18T11:06:40.5Z

ALICE = user_caller(ACCOUNT, "alice", "AIDAALICE0000000", "/teams/", {"team": "orders"})
BOB = user_caller(OTHER, "bob", "AIDABOB000000000")
CLERK = role_session_caller(ACCOUNT, "clerk", "AROACLERK0000000", "monday", "/shop/")
ROOT = root_caller(ACCOUNT)
OTHER_ROOT = root_caller(OTHER)
SEND = "sqs:SendMessage"

Document = dict[str, Any]


def asked(caller: Caller = ALICE, action: str = SEND, resource_arn: str = QUEUE_ARN, **more: Any) -> RequestContext:
    return RequestContext(caller, action, resource_arn, **{"now_ms": NOW_MS, "region": REGION, **more})


def statement(effect: str = "Allow", **members: Any) -> Document:
    """A member that is None is left out."""
    made = {"Effect": effect, "Action": SEND, "Resource": QUEUE_ARN, **members}
    return {name: value for name, value in made.items() if value is not None}


def document(*statements: Document, version: str | None = "2012-10-17") -> str:
    made: Document = {"Statement": list(statements)}
    return json.dumps(made if version is None else {"Version": version, **made})


def identity(*statements: Document, version: str | None = "2012-10-17", name: str = "identity") -> CompiledPolicy:
    return compile_policy(document(*statements, version=version), PolicyKind.IDENTITY, name)


def queue(*statements: Document, version: str | None = "2012-10-17") -> CompiledPolicy:
    return compile_policy(document(*statements, version=version), PolicyKind.RESOURCE, "queue")


def allowed(request: RequestContext, own: CompiledPolicy = NO_POLICY, queues: CompiledPolicy = NO_POLICY) -> bool:
    return evaluate(request, own, queues).allowed


def decided(request: RequestContext, own: CompiledPolicy = NO_POLICY, queues: CompiledPolicy = NO_POLICY) -> Decision:
    return evaluate(request, own, queues)
