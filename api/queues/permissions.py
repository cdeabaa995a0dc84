"""AddPermission and RemovePermission: one labelled statement of a queue's Policy attribute each.

Pure. The statements have the form that SQS gives them, so that a policy made here reads the same everywhere. They are
stored and returned; nobody but the owner is let in by them yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from api import limits
from api.queues.attributes import QueueArn, QueueProblem, format_arn
from frontend.authz import GRANTABLE_NAMES, SQS_OPERATIONS, PolicyError, PolicyKind, compile_policy
from frontend.authz.policy_limits import QUEUE_POLICY_ACTIONS_PER_STATEMENT_MAX, QUEUE_POLICY_PRINCIPALS_MAX

_LABEL = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.PERMISSION_LABEL_CHARACTERS_MAX}}}", re.ASCII)
_ACCOUNT_ID = re.compile(rf"[0-9]{{{limits.ACCOUNT_ID_DIGITS}}}", re.ASCII)


class Permission(NamedTuple):
    label: str
    account_ids: list[str]
    actions: list[str]


def check_permission(label: object, account_ids: object, actions: object) -> Permission:
    """Raises QueueProblem."""
    names = _texts(actions, "Actions")
    if len(names) > QUEUE_POLICY_ACTIONS_PER_STATEMENT_MAX:
        raise QueueProblem(
            "OverLimit",
            f"{len(names)} Actions were found, maximum allowed is {QUEUE_POLICY_ACTIONS_PER_STATEMENT_MAX}.",
        )
    for name in names:
        if name not in GRANTABLE_NAMES:
            owners_only = "Only the queue owner is allowed to invoke this action."
            unknown = "Please refer to the appropriate WSDL for a list of valid actions."
            raise _bad_value(f"SQS:{name}", "ActionName", owners_only if name in SQS_OPERATIONS else unknown)
    if account_ids == []:
        raise _bad_value("[]", "PrincipalId", "Unable to verify.")
    accounts = _texts(account_ids, "AWSAccountIds")
    if len(accounts) > QUEUE_POLICY_PRINCIPALS_MAX:
        raise QueueProblem(
            "OverLimit",
            f"{len(accounts)} principals were found, maximum allowed is {QUEUE_POLICY_PRINCIPALS_MAX}.",
        )
    for account_id in accounts:
        if _ACCOUNT_ID.fullmatch(account_id) is None:
            raise _bad_value(f"[{account_id}]", "PrincipalId", "Unable to verify.")
    return Permission(check_label(label), accounts, names)


def check_label(label: object) -> str:
    if not isinstance(label, str) or not label:
        raise QueueProblem("MissingRequiredParameterException", "The request must contain the parameter Label.")
    if _LABEL.fullmatch(label) is None:
        raise _bad_value(
            label,
            "Label",
            "Can only include alphanumeric characters, hyphens, or underscores. "
            f"1 to {limits.PERMISSION_LABEL_CHARACTERS_MAX} in length.",
        )
    return label


def with_permission(attributes: Mapping[str, str], queue: QueueArn, permission: Permission) -> str:
    """The Policy with one more statement. Raises QueueProblem."""
    policy = _policy(attributes)
    arn = format_arn(*queue)
    policy.setdefault("Version", "2008-10-17")
    policy.setdefault("Id", f"{arn}/SQSDefaultPolicy")
    statements = _statements(policy)
    if any(one.get("Sid") == permission.label for one in statements):
        raise _bad_value(permission.label, "Label", "Already exists.")
    principals = [f"arn:aws:iam::{account_id}:root" for account_id in permission.account_ids]
    statements.append(
        {
            "Sid": permission.label,
            "Effect": "Allow",
            "Principal": {"AWS": _one_or_list(principals)},
            "Action": _one_or_list([f"SQS:{name}" for name in permission.actions]),
            "Resource": arn,
        }
    )
    text = _written(policy, statements)
    try:
        compile_policy(text, PolicyKind.RESOURCE, "Policy")
    except PolicyError as error:
        # The statement is well formed, so it is one too many.
        raise QueueProblem("OverLimit", error.text) from None
    return text


def without_permission(attributes: Mapping[str, str], label: str) -> str:
    """The Policy without that statement; empty if none is left. Raises QueueProblem."""
    policy = _policy(attributes)
    statements = _statements(policy)
    kept = [one for one in statements if one.get("Sid") != label]
    if len(kept) == len(statements):
        raise _bad_value(label, "Label", "can't find label.")
    return _written(policy, kept) if kept else ""


def _policy(attributes: Mapping[str, str]) -> dict[str, Any]:
    text = attributes.get("Policy")
    policy: dict[str, Any] = json.loads(text) if text else {}
    return policy


def _statements(policy: dict[str, Any]) -> list[dict[str, Any]]:
    """A single statement may stand without its list."""
    statements = policy.get("Statement", [])
    return [statements] if isinstance(statements, dict) else list(statements)


def _written(policy: dict[str, Any], statements: list[dict[str, Any]]) -> str:
    return json.dumps({**policy, "Statement": statements}, separators=(",", ":"))


def _one_or_list(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


def _texts(given: object, parameter: str) -> list[str]:
    if not isinstance(given, list) or not given:
        raise QueueProblem("MissingRequiredParameterException", f"The request must contain the parameter {parameter}.")
    if not all(isinstance(one, str) for one in given):
        raise QueueProblem("InvalidParameterValueException", f"{parameter} must be a list of strings.")
    return given


def _bad_value(value: str, parameter: str, reason: str) -> QueueProblem:
    return QueueProblem(
        "InvalidParameterValueException",
        f"Value {value[: limits.QUEUE_NAME_CHARACTERS_MAX]} for parameter {parameter} is invalid. Reason: {reason}",
    )
