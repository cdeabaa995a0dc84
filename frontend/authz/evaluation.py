"""May this be done? The policies of the caller and of the queue, weighed as AWS documents it. Pure.

1. A Deny that matches, in any of the policies, decides.
2. The account itself (its root) may do everything with what it owns.
3. Within an account an Allow of the caller's policies or of the queue's is enough. A queue policy that names only the
   account hands the right on: the caller's policies must give it as well.
4. Across accounts both sides must allow, and the action must be one that a queue policy can open. The root of another
   account needs the queue's side only.
5. Unsigned callers and services have no policies of their own: the queue's side decides.
6. Otherwise no.

A stored policy that cannot be understood denies. The root of the account that owns a queue can always read and replace
the queue's policy, or nobody could repair one that denies all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from frontend.authz.actions import ACTION_NAMES, CROSS_ACCOUNT_ACTIONS
from frontend.authz.compiled_policy import CompiledPolicy, CompiledStatement, StatementPlace
from frontend.authz.policy_principal import Fit
from frontend.authz.request_context import CallerKind, RequestContext

# What the root of the owner does whatever the queue's policy says.
UNLOCKING_ACTIONS = frozenset(("sqs:GetQueueAttributes", "sqs:RemovePermission", "sqs:SetQueueAttributes"))


class Reason(Enum):
    ALLOWED_BY_IDENTITY = "allowed by an identity policy"
    ALLOWED_BY_RESOURCE = "allowed by the resource policy"
    ALLOWED_BY_BOTH = "allowed by an identity policy and by the resource policy"
    ALLOWED_AS_OWNER = "allowed to the root of the account that owns the resource"
    DENIED_BY_IDENTITY = "explicit deny in an identity policy"
    DENIED_BY_RESOURCE = "explicit deny in the resource policy"
    NOT_ALLOWED_BY_IDENTITY = "no identity policy allows it"
    NOT_ALLOWED_BY_RESOURCE = "no resource policy allows it"
    UNREADABLE_IDENTITY = "an identity policy cannot be understood"
    UNREADABLE_RESOURCE = "the resource policy cannot be understood"


class Decision(NamedTuple):
    """`statement` is the one that decided: None where it is the absence of one, or the owner's own right. Where both
    sides had to allow it is the queue's."""

    allowed: bool
    reason: Reason
    statement: StatementPlace | None = None


class StatementOutcome(NamedTuple):
    """What a simulation says of one statement. `mismatch` is the first part that does not match, None if all do."""

    place: StatementPlace
    denies: bool
    mismatch: str | None


class Simulation(NamedTuple):
    decision: Decision
    outcomes: tuple[StatementOutcome, ...]


def evaluate(
    request: RequestContext,
    identity_policies: Sequence[CompiledPolicy],
    resource_policy: CompiledPolicy | None = None,
) -> Decision:
    """`resource_policy` is None where the resource has none: an account, or a queue without one."""
    action = request.action
    assert action in ACTION_NAMES, action
    denied = _identity_deny(request, identity_policies)
    if denied is not None:
        return denied
    kind = request.caller.kind
    same_account = _is_same_account(request)
    owner = same_account and kind is CallerKind.ROOT
    if resource_policy is not None and not (owner and action in UNLOCKING_ACTIONS):
        if resource_policy.unreadable is not None:
            return Decision(False, Reason.UNREADABLE_RESOURCE)
        for statement in resource_policy.candidates(action).denies:
            if statement.fit(request.caller) is not Fit.NONE and statement.holds(request):
                return Decision(False, Reason.DENIED_BY_RESOURCE, statement.place)
    if owner:
        return Decision(True, Reason.ALLOWED_AS_OWNER)
    if same_account:
        return _within_account(request, identity_policies, resource_policy)
    return _across_accounts(request, identity_policies, resource_policy)


def simulate(
    request: RequestContext,
    identity_policies: Sequence[CompiledPolicy],
    resource_policy: CompiledPolicy | None = None,
) -> Simulation:
    """The decision, and of each statement whether it matches or what of it does not."""
    policies = [*identity_policies, *([resource_policy] if resource_policy is not None else [])]
    outcomes = [
        StatementOutcome(statement.place, statement.denies, _mismatch(statement, request))
        for policy in policies
        for statement in policy.statements
    ]
    return Simulation(evaluate(request, identity_policies, resource_policy), tuple(outcomes))


def _identity_deny(request: RequestContext, policies: Sequence[CompiledPolicy]) -> Decision | None:
    for policy in policies:
        if policy.unreadable is not None:
            return Decision(False, Reason.UNREADABLE_IDENTITY)
        for statement in policy.candidates(request.action).denies:
            if statement.holds(request):
                return Decision(False, Reason.DENIED_BY_IDENTITY, statement.place)
    return None


def _is_same_account(request: RequestContext) -> bool:
    caller = request.caller
    if caller.account_id is None or caller.account_id != request.resource_account_id:
        return False
    return request.resource_arn.startswith(f"arn:{caller.partition}:")


def _within_account(
    request: RequestContext, identity_policies: Sequence[CompiledPolicy], resource_policy: CompiledPolicy | None
) -> Decision:
    found = _identity_allow(request, identity_policies)
    if found is not None:
        return Decision(True, Reason.ALLOWED_BY_IDENTITY, found.place)
    for statement, fit in _resource_allows(request, resource_policy):
        if fit is Fit.NAMED:
            return Decision(True, Reason.ALLOWED_BY_RESOURCE, statement.place)
    return Decision(False, Reason.NOT_ALLOWED_BY_IDENTITY)


def _across_accounts(
    request: RequestContext, identity_policies: Sequence[CompiledPolicy], resource_policy: CompiledPolicy | None
) -> Decision:
    opened = next(_resource_allows(request, resource_policy), None)
    if opened is None or request.action not in CROSS_ACCOUNT_ACTIONS:
        return Decision(False, Reason.NOT_ALLOWED_BY_RESOURCE)
    place = opened[0].place
    if request.caller.kind in (CallerKind.ROOT, CallerKind.ANONYMOUS, CallerKind.SERVICE):
        return Decision(True, Reason.ALLOWED_BY_RESOURCE, place)
    if _identity_allow(request, identity_policies) is None:
        return Decision(False, Reason.NOT_ALLOWED_BY_IDENTITY)
    return Decision(True, Reason.ALLOWED_BY_BOTH, place)


def _identity_allow(request: RequestContext, policies: Sequence[CompiledPolicy]) -> CompiledStatement | None:
    for policy in policies:
        for statement in policy.candidates(request.action).allows:
            if statement.holds(request):
                return statement
    return None


def _resource_allows(
    request: RequestContext, policy: CompiledPolicy | None
) -> Iterator[tuple[CompiledStatement, Fit]]:
    if policy is None:
        return
    for statement in policy.candidates(request.action).allows:
        fit = statement.fit(request.caller)
        if fit is not Fit.NONE and statement.holds(request):
            yield statement, fit


def _mismatch(statement: CompiledStatement, request: RequestContext) -> str | None:
    if request.action not in statement.actions:
        return "action"
    if statement.fit(request.caller) is Fit.NONE:
        return "principal"
    if not statement.resource_fits(request):
        return "resource"
    failed = (condition.label for condition in statement.conditions if not condition.holds(request))
    return next(failed, None)
