"""What is wrong with a policy, and what in it does other than it seems to. Pure.

For people who write policies, and for policies that were stored before they were read: all errors, not the first alone.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from frontend.authz.actions import BILLING, HISTORIC_NAMES, OWN, SQS
from frontend.authz.compiled_policy import compile_document, match_actions
from frontend.authz.condition_operators import NULL, SetOperator
from frontend.authz.context_keys import KeyType, find_key, is_resource_tag
from frontend.authz.policy_document import (
    ConditionEntry,
    Effect,
    Errors,
    PolicyDocument,
    PolicyKind,
    Statement,
    Text,
    read_document,
)
from frontend.authz.policy_error import PolicyError
from frontend.authz.policy_resource import compile_resources, variables_of
from frontend.authz.request_context import ANONYMOUS, RequestContext

_FAMILIES_OF = {
    KeyType.NUMERIC: ("Numeric",),
    KeyType.DATE: ("Date",),
    KeyType.DATE_OR_NUMERIC: ("Date", "Numeric"),
    KeyType.BOOL: ("Bool",),
    KeyType.IP: ("Ip",),
    KeyType.ARN: ("Arn",),
}
# For every type of key.
_ANY_FAMILY = ("String", "Null")


class Remark(NamedTuple):
    """`refused` remarks keep the policy from being stored; the others tell what it will do."""

    path: str
    text: str
    refused: bool


def review(text: str, kind: PolicyKind, queue_arn: str | None = None) -> tuple[Remark, ...]:
    """`queue_arn` is the queue whose policy it is. Empty where there is nothing to say."""
    errors = Errors()
    document = read_document(text, kind, errors)
    if document is None:
        return _refused(errors)
    compile_document(document, "reviewed", errors)
    remarks = list(_refused(errors))
    broken = [error.path for error in errors]
    for statement in document.statements:
        if not any(path.startswith(statement.path) for path in broken):
            remarks += _of_statement(statement, document, queue_arn)
    return tuple(remarks)


def _refused(errors: list[PolicyError]) -> tuple[Remark, ...]:
    return tuple(Remark(error.path, error.text, True) for error in errors)


def _of_statement(statement: Statement, document: PolicyDocument, queue_arn: str | None) -> Iterator[Remark]:
    yield from _of_actions(statement, document.kind)
    yield from _of_resources(statement, document, queue_arn)
    yield from _of_principals(statement)
    for entry in statement.conditions:
        yield from _of_condition(entry, statement, document)


def _remark(path: str, text: str) -> Remark:
    return Remark(path, text, False)


def _of_actions(statement: Statement, kind: PolicyKind) -> Iterator[Remark]:
    if statement.not_actions and statement.effect is Effect.ALLOW:
        yield _remark(f"{statement.path}.NotAction", "with Allow it gives every other action, those to come as well")
    for text in statement.actions:
        if text.value.lower() in HISTORIC_NAMES:
            yield _remark(text.path, "matches nothing: the action of the single call stands for its batch")
        elif not match_actions(text, kind):
            ours = text.value.lower().startswith((f"{SQS}:", f"{OWN}:", f"{BILLING}:"))
            yield _remark(text.path, "matches nothing: " + ("no such action" if ours else "another service's action"))


def _of_resources(statement: Statement, document: PolicyDocument, queue_arn: str | None) -> Iterator[Remark]:
    if statement.not_resources and statement.effect is Effect.ALLOW:
        text = "with Allow it gives every other resource, those to come as well"
        yield _remark(f"{statement.path}.NotResource", text)
    for resource in statement.resources:
        if "${" in resource.value and not document.has_variables:
            yield _remark(resource.path, "a variable is plain text here: its Version is not 2012-10-17")
        elif document.has_variables and variables_of(resource, document.kind):
            yield from _of_variables(resource, statement, document.kind)
        elif queue_arn is not None and not _matches_queue(resource, document, queue_arn):
            yield _remark(resource.path, "does not match the queue whose policy it is")


def _of_variables(text: Text, statement: Statement, kind: PolicyKind) -> Iterator[Remark]:
    for variable in variables_of(text, kind):
        key = find_key(variable.key)
        if key is None or key.type is KeyType.STRINGS:
            what = "excludes nothing" if statement.not_resources else "matches nothing"
            yield _remark(text.path, f"${{{variable.key}}} never has a value: without a default the pattern {what}")


def _matches_queue(text: Text, document: PolicyDocument, queue_arn: str) -> bool:
    request = RequestContext(ANONYMOUS, f"{SQS}:SendMessage", queue_arn, 0, "")
    return compile_resources((text,), document.kind, document.has_variables)(request)


def _of_principals(statement: Statement) -> Iterator[Remark]:
    principals = statement.principals
    if principals is None:
        return
    if statement.not_principals:
        path = f"{statement.path}.NotPrincipal"
        if principals.everyone:
            yield _remark(path, "spares everyone: the Deny has no effect")
        elif principals.accounts and not principals.names:
            yield _remark(path, "an account alone spares its root only: name the users and roles as well")
        return
    path = f"{statement.path}.Principal"
    named = len(principals.accounts) + len(principals.names) + len(principals.services)
    if principals.everyone and statement.effect is Effect.ALLOW and not statement.conditions:
        yield _remark(path, "opens it to everyone: every signed caller, of any account")
    if not principals.everyone and named < principals.entries_count:
        yield _remark(path, "an entry stands twice, or matches no caller (Federated)")
    if any(not name.startswith("arn:") for name in principals.names):
        yield _remark(path, "names a user or role that was deleted; it matches no caller")


def _of_condition(entry: ConditionEntry, statement: Statement, document: PolicyDocument) -> Iterator[Remark]:
    use = entry.use
    key = find_key(entry.key)
    for value in entry.values:
        if not document.has_variables and "${" in value.value:
            yield _remark(value.path, "a variable is plain text here: its Version is not 2012-10-17")
    if key is None:
        yield _remark(entry.path, "no request has this key; it counts as missing")
        return
    if document.kind is PolicyKind.RESOURCE and is_resource_tag(entry.key):
        yield _remark(entry.path, "a queue's policy does not see the queue's tags; the key counts as missing")
        return
    several = key.type is KeyType.STRINGS
    plain = use.set_operator is SetOperator.NONE
    if several and plain and use.operator is not NULL:
        yield _remark(entry.path, "the key has several values: without ForAllValues or ForAnyValue it never holds")
    if use.set_operator is SetOperator.FOR_ALL_VALUES and statement.effect is Effect.ALLOW and not key.always:
        yield _remark(entry.path, 'also holds for requests without the key; add {"Null": {key: "false"}} to demand it')
    families = _FAMILIES_OF.get(key.type)
    if families is not None and use.operator.family not in (*families, *_ANY_FAMILY):
        yield _remark(entry.path, f"values of this key are compared with {' and '.join(families)} operators")
    for value in entry.values:
        if use.operator.family == "String" and "Like" not in use.operator.name and "*" in value.value:
            yield _remark(value.path, "the * is a plain character here; wildcards are for StringLike")
