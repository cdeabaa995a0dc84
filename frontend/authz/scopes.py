"""Scopes of keys: named sets of actions on chosen queues, as the identity policy that they stand for. Pure.

A scope is a way to write a policy, not another way to decide: the key gets the document, and the evaluator weighs it as
any other. `scopes_of` recognises a document that `scope_policy` has written, and no other one.

Surface: other planes may import this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from frontend.authz.request_context import AWS_PARTITION

QUEUE_PATTERNS_MAX = 10
_PATTERN = re.compile(r"[A-Za-z0-9_*?-]{1,80}(\.fifo)?", re.ASCII)
_ADDRESS = ("sqs:GetQueueUrl",)
_LOOK = (*_ADDRESS, "sqs:GetQueueAttributes", "sqs:ListQueueTags", "sqs:ListDeadLetterSourceQueues")
_TAKE = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility")
_MOVES = ("sqs:StartMessageMoveTask", "sqs:CancelMessageMoveTask", "sqs:ListMessageMoveTasks")

# None holds a right to keys, policies or people, nor to open a queue to others: SetQueueAttributes could.
SCOPES: Mapping[str, tuple[str, ...]] = {
    "send": (*_ADDRESS, "sqs:SendMessage"),
    "receive": (*_ADDRESS, "sqs:GetQueueAttributes", *_TAKE),
    "look": _LOOK,
    "redrive": (*_LOOK, *_MOVES, "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:SendMessage"),
}


class ScopeError(Exception):
    """What is asked for is no scope; `member` is "scopes" or "queues"."""

    def __init__(self, member: str, text: str) -> None:
        super().__init__(text)
        self.member = member


class KeyScopes(NamedTuple):
    scopes: tuple[str, ...]
    queues: tuple[str, ...]


def scope_policy(account_id: str, scopes: Sequence[str], queues: Sequence[str]) -> str:
    """The text of the policy, without white space. `queues` are names, in which `*` and `?` stand for what they stand
    for in policies; none: all queues of the account. Raises ScopeError."""
    _check(scopes, queues)
    resources = [f"arn:{AWS_PARTITION}:sqs:*:{account_id}:{name}" for name in queues or ("*",)]
    statements = [
        {"Sid": f"scope{name}", "Effect": "Allow", "Action": list(SCOPES[name]), "Resource": resources}
        for name in scopes
    ]
    document = {"Version": "2012-10-17", "Statement": statements}
    return json.dumps(document, separators=(",", ":"))


def scopes_of(account_id: str, policy: str) -> KeyScopes | None:
    """What `scope_policy` was asked for to write this text; None: it is another policy."""
    try:
        statements = json.loads(policy)["Statement"]
        scopes = tuple(statement["Sid"].removeprefix("scope") for statement in statements)
        queues = tuple(resource.rpartition(":")[2] for resource in statements[0]["Resource"])
        is_written = scope_policy(account_id, scopes, queues) == policy
    except (ValueError, LookupError, TypeError, AttributeError, ScopeError):
        return None
    return KeyScopes(scopes, queues) if is_written else None


def _check(scopes: Sequence[str], queues: Sequence[str]) -> None:
    unknown = [name for name in scopes if name not in SCOPES]
    if unknown or not scopes or len(set(scopes)) != len(scopes):
        raise ScopeError("scopes", f"must be some of {', '.join(SCOPES)}, each once")
    if len(queues) > QUEUE_PATTERNS_MAX or len(set(queues)) != len(queues):
        raise ScopeError("queues", f"must be at most {QUEUE_PATTERNS_MAX} names, each once")
    for name in queues:
        if _PATTERN.fullmatch(name) is None:
            raise ScopeError("queues", "must be names of queues; * and ? stand for any characters, and for any one")
