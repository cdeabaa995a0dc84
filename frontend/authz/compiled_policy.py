"""A policy document as it is evaluated: statements with functions of the request, found by action. Pure.

All that depends on the document alone happens here, once: actions become the known actions that they match, patterns
and values become functions. What is refused here is refused when a policy is stored; a stored policy that cannot be
understood denies everything, because what it held may have been a Deny.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from frontend.authz.actions import ACTION_NAMES, HISTORIC_NAMES, OWN, SQS
from frontend.authz.condition import Check, Condition, compile_check, edges_s_of
from frontend.authz.context_keys import find_key, is_resource_tag, read_nothing
from frontend.authz.policy_document import (
    ConditionEntry,
    Effect,
    Errors,
    PolicyDocument,
    PolicyKind,
    Statement,
    Text,
    parse_document,
)
from frontend.authz.policy_error import PolicyError
from frontend.authz.policy_principal import Fit, Principals
from frontend.authz.policy_resource import ResourceCheck, compile_resources, every_resource, variables_of
from frontend.authz.request_context import NO_TAGS, Caller
from frontend.authz.template import parse_template
from frontend.authz.wildcard import compile_pattern

_VARIABLE = "${"
_EVERY_ACTION = "*"
_ACTION = re.compile(r"[a-z0-9-]{1,64}:[a-z0-9_*?-]{1,128}", re.ASCII)
_FOLDED_ACTIONS = {name.lower(): name for name in ACTION_NAMES}


class StatementPlace(NamedTuple):
    """`policy` is the name that the policy was compiled under, `ordinal` counts from 0."""

    policy: str
    ordinal: int
    sid: str | None


class CompiledStatement:
    """`holds` says whether resource and conditions match; the action is known to, and the principal is for `fit`."""

    __slots__ = (
        "actions",
        "conditions",
        "denies",
        "edges_s",
        "holds",
        "is_fixed",
        "is_steady",
        "not_principals",
        "place",
        "principals",
        "resource_fits",
    )

    def __init__(
        self,
        place: StatementPlace,
        statement: Statement,
        actions: frozenset[str],
        resource_fits: ResourceCheck,
        conditions: tuple[Condition, ...],
        is_fixed: bool,
        is_steady: bool,
        edges_s: frozenset[int] = frozenset(),
    ) -> None:
        self.place = place
        self.denies = statement.effect is Effect.DENY
        self.actions = actions
        self.principals: Principals | None = statement.principals
        self.not_principals = statement.not_principals
        self.resource_fits = resource_fits
        self.conditions = conditions
        # It looks at nothing of a request but caller, action and resource.
        self.is_fixed = is_fixed
        # Besides, at the address, whether the connection is encrypted, the tags of the queue, and the time.
        self.is_steady = is_steady
        # The seconds since 1970 at which it may begin or cease to hold: between two of them it does not look at time.
        self.edges_s = edges_s
        self.holds = _conjunction(resource_fits, [condition.holds for condition in conditions])

    def fit(self, caller: Caller) -> Fit:
        """How the statement names the caller. Statements of identity policies are of the one who holds them."""
        if self.principals is None:
            return Fit.NAMED
        if self.not_principals:
            return Fit.NONE if self.principals.spares(caller) else Fit.NAMED
        return self.principals.fit(caller)


class Candidates(NamedTuple):
    """The statements of a policy that match an action. `is_fixed`: none of them looks at anything of a request but
    caller, action and resource. `is_steady`: besides, at the address, whether the connection is encrypted, the tags of
    the queue, and whether one of `edges_s` (seconds since 1970) has been reached."""

    denies: tuple[CompiledStatement, ...] = ()
    allows: tuple[CompiledStatement, ...] = ()
    is_fixed: bool = True
    is_steady: bool = True
    edges_s: tuple[int, ...] = ()


_NO_CANDIDATES = Candidates()


class CompiledPolicy:
    """One document, or several that are weighed together. `unreadable` is why a stored text is not understood."""

    __slots__ = ("_by_action", "statements", "unreadable")

    def __init__(self, statements: Sequence[CompiledStatement], unreadable: PolicyError | None = None) -> None:
        self.statements = tuple(statements)
        self.unreadable = unreadable
        self._by_action: Mapping[str, Candidates] = MappingProxyType(
            {
                action: Candidates(
                    tuple(one for one in statements if one.denies and action in one.actions),
                    tuple(one for one in statements if not one.denies and action in one.actions),
                    all(one.is_fixed for one in statements if action in one.actions),
                    all(one.is_steady for one in statements if action in one.actions),
                    tuple(sorted(frozenset().union(*(one.edges_s for one in statements if action in one.actions)))),
                )
                for action in frozenset().union(*(one.actions for one in statements))
            }
        )

    def candidates(self, action: str) -> Candidates:
        return self._by_action.get(action, _NO_CANDIDATES)

    def is_fixed(self, action: str) -> bool:
        """Requests of one caller for this action, on one resource, are all decided alike."""
        return self.candidates(action).is_fixed

    def is_steady(self, action: str) -> bool:
        """The same of requests from one address, encrypted or not, while the queue has the same tags, and between two
        of `edges_s`."""
        return self.candidates(action).is_steady

    def edges_s(self, action: str) -> tuple[int, ...]:
        """When a condition on the time may begin or cease to hold, in seconds since 1970."""
        return self.candidates(action).edges_s


NO_POLICY = CompiledPolicy(())


def compile_policy(text: str, kind: PolicyKind, name: str) -> CompiledPolicy:
    """For a policy that is to be stored. Raises PolicyError."""
    document = parse_document(text, kind)
    errors = Errors()
    compiled = compile_document(document, name, errors)
    if errors:
        raise errors[0]
    return compiled


def load_policy(text: str, kind: PolicyKind, name: str) -> CompiledPolicy:
    """For a policy that was stored. One that is not understood denies everything."""
    try:
        return compile_policy(text, kind, name)
    except PolicyError as error:
        return CompiledPolicy((), error)


def join_policies(policies: Sequence[CompiledPolicy]) -> CompiledPolicy:
    """All policies of one caller as one, to be kept as long as none of them changes."""
    unreadable = next((one.unreadable for one in policies if one.unreadable is not None), None)
    return CompiledPolicy([statement for one in policies for statement in one.statements], unreadable)


def compile_document(document: PolicyDocument, name: str, errors: Errors) -> CompiledPolicy:
    """Whole only where `errors` stays empty."""
    statements = []
    for statement in document.statements:
        before = len(errors)
        actions = _compile_actions(statement, document.kind, errors)
        resource_fits = errors.attempt(_compile_resources, statement, document)
        conditions = [errors.attempt(_compile_condition, entry, document) for entry in statement.conditions]
        if len(errors) == before and resource_fits is not None:
            place = StatementPlace(name, statement.ordinal, statement.sid)
            found = tuple(one for one in conditions if one is not None)
            has_variables = _has_variables(statement, document)
            is_fixed = not found and not has_variables
            edges = [_edges_s(entry) for entry in statement.conditions]
            known = frozenset().union(*(one for one in edges if one is not None))
            is_steady = not has_variables and None not in edges
            statements.append(
                CompiledStatement(place, statement, actions, resource_fits, found, is_fixed, is_steady, known)
            )
    return CompiledPolicy(statements)


def _has_variables(statement: Statement, document: PolicyDocument) -> bool:
    return document.has_variables and any(variables_of(text, document.kind) for text in statement.resources)


def _edges_s(entry: ConditionEntry) -> frozenset[int] | None:
    """When the condition may begin or cease to hold; None: it looks at what differs from request to request."""
    key = find_key(entry.key)
    if key is None or any(_VARIABLE in text for _, text in entry.values):
        return None
    if key.is_time:
        return edges_s_of(entry.use, [text for _, text in entry.values])
    return frozenset() if key.is_steady else None


def _conjunction(resource_fits: ResourceCheck, checks: Sequence[Check]) -> Check:
    """Most statements have one condition or none; these are one call."""
    if not checks:
        return resource_fits
    conditions_hold = checks[0] if len(checks) == 1 else _all_of(checks)
    if resource_fits is every_resource:
        return conditions_hold
    return lambda request: resource_fits(request) and conditions_hold(request)


def _all_of(checks: Sequence[Check]) -> Check:
    return lambda request: all(check(request) for check in checks)


# --- actions ---


def _compile_actions(statement: Statement, kind: PolicyKind, errors: Errors) -> frozenset[str]:
    matched: set[str] = set()
    for text in statement.actions:
        matched |= errors.attempt(match_actions, text, kind) or frozenset()
    return ACTION_NAMES - matched if statement.not_actions else frozenset(matched)


def match_actions(text: Text, kind: PolicyKind) -> frozenset[str]:
    """The known actions that a pattern matches. Raises PolicyError."""
    path, written = text
    if written == _EVERY_ACTION:
        return ACTION_NAMES
    folded = written.lower()
    if _ACTION.fullmatch(folded) is None:
        raise PolicyError(path, "must be * or service:Name, with * and ? in the name only")
    if kind is PolicyKind.RESOURCE and not folded.startswith((f"{SQS}:", f"{OWN}:")):
        raise PolicyError(path, f"a queue policy is about actions {SQS}:... and {OWN}:...")
    pattern = compile_pattern(parse_template(path, folded, wildcards=True, variables=False))
    matched = frozenset(name for action, name in _FOLDED_ACTIONS.items() if pattern(action))
    if kind is PolicyKind.RESOURCE and not matched and not any(pattern(name) for name in HISTORIC_NAMES):
        raise PolicyError(path, "there is no such action")
    return matched


# --- resources ---


def _compile_resources(statement: Statement, document: PolicyDocument) -> ResourceCheck:
    fits = compile_resources(statement.resources, document.kind, document.has_variables)
    if _names_queue_tags(statement.resources, document):
        fits = _without_queue_tags(fits)
    if not statement.not_resources:
        return fits
    if statement.effect is Effect.ALLOW and document.has_variables:
        for text in statement.resources:
            _check_excluded(text, document.kind)
    return lambda request: not fits(request)


def _check_excluded(text: Text, kind: PolicyKind) -> None:
    """A variable without a value would exclude nothing: the Allow would reach what it was written to leave out."""
    for variable in variables_of(text, kind):
        key = find_key(variable.key)
        if variable.default is None and (key is None or not key.always):
            said = f"${{{variable.key}}} may be missing from a request; give it a default: ${{{variable.key}, 'none'}}"
            raise PolicyError(text.path, said)


# --- conditions ---


def _compile_condition(entry: ConditionEntry, document: PolicyDocument) -> Condition:
    key = find_key(entry.key)
    read = read_nothing if key is None else key.read
    if document.kind is PolicyKind.RESOURCE and is_resource_tag(entry.key):
        read = read_nothing
    check = compile_check(entry.use, read, entry.values, document.has_variables)
    if _names_queue_tags(entry.values, document):
        check = _without_queue_tags(check)
    return Condition(f"{entry.operator} {entry.key}", check)


# --- tags of the queue, which SQS gives to identity policies only ---


def _names_queue_tags(texts: Sequence[Text], document: PolicyDocument) -> bool:
    """Does a queue policy have a variable that would give them?"""
    if document.kind is not PolicyKind.RESOURCE or not document.has_variables:
        return False
    return any(is_resource_tag(name) for _, text in texts for name in text.split(_VARIABLE)[1:])


def _without_queue_tags(check: Check) -> Check:
    return lambda request: check(request._replace(resource_tags=NO_TAGS))
