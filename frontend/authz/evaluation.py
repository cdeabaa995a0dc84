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
the queue's policy; otherwise a policy that denies all could not be repaired.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from frontend.authz.actions import ACTION_NAMES, CROSS_ACCOUNT_ACTIONS
from frontend.authz.compiled_policy import NO_POLICY, Candidates, CompiledPolicy, CompiledStatement, StatementPlace
from frontend.authz.policy_principal import Fit
from frontend.authz.request_context import CallerKind, RequestContext, split_arn

# The root of the owner may do these whatever the policy of the queue says.
UNLOCKING_ACTIONS = frozenset(("sqs:GetQueueAttributes", "sqs:RemovePermission", "sqs:SetQueueAttributes"))

# Callers without identity policies.
_WITHOUT_OWN_SIDE = frozenset((CallerKind.ROOT, CallerKind.ANONYMOUS, CallerKind.SERVICE))


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
    request: RequestContext, identity_policy: CompiledPolicy, resource_policy: CompiledPolicy = NO_POLICY
) -> Decision:
    """`identity_policy` is all policies of the caller, joined. NO_POLICY stands where there is none."""
    action = request.action
    assert action in ACTION_NAMES, action
    if identity_policy.unreadable is not None:
        return Decision(False, Reason.UNREADABLE_IDENTITY)
    identity = identity_policy.candidates(action)
    for statement in identity.denies:
        if statement.holds(request):
            return Decision(False, Reason.DENIED_BY_IDENTITY, statement.place)
    same_account = _is_same_account(request)
    owner = same_account and request.caller.kind is CallerKind.ROOT
    if not (owner and action in UNLOCKING_ACTIONS):
        denied = _resource_deny(request, resource_policy)
        if denied is not None:
            return denied
    if owner:
        return Decision(True, Reason.ALLOWED_AS_OWNER)
    resource = resource_policy.candidates(action)
    if same_account:
        return _within_account(request, identity, resource)
    return _across_accounts(request, identity, resource)


def simulate(
    request: RequestContext, identity_policy: CompiledPolicy, resource_policy: CompiledPolicy = NO_POLICY
) -> Simulation:
    """The decision, and of each statement whether it matches or what of it does not."""
    outcomes = [
        StatementOutcome(statement.place, statement.denies, _mismatch(statement, request))
        for policy in (identity_policy, resource_policy)
        for statement in policy.statements
    ]
    return Simulation(evaluate(request, identity_policy, resource_policy), tuple(outcomes))


def _is_same_account(request: RequestContext) -> bool:
    caller = request.caller
    _, partition, _, _, account_id, _ = split_arn(request.resource_arn)
    return caller.account_id == account_id and caller.partition == partition


def _resource_deny(request: RequestContext, policy: CompiledPolicy) -> Decision | None:
    if policy.unreadable is not None:
        return Decision(False, Reason.UNREADABLE_RESOURCE)
    for statement in policy.candidates(request.action).denies:
        if statement.fit(request.caller) is not Fit.NONE and statement.holds(request):
            return Decision(False, Reason.DENIED_BY_RESOURCE, statement.place)
    return None


def _within_account(request: RequestContext, identity: Candidates, resource: Candidates) -> Decision:
    for statement in identity.allows:
        if statement.holds(request):
            return Decision(True, Reason.ALLOWED_BY_IDENTITY, statement.place)
    for statement in resource.allows:
        if statement.fit(request.caller) is Fit.NAMED and statement.holds(request):
            return Decision(True, Reason.ALLOWED_BY_RESOURCE, statement.place)
    return Decision(False, Reason.NOT_ALLOWED_BY_IDENTITY)


def _across_accounts(request: RequestContext, identity: Candidates, resource: Candidates) -> Decision:
    caller = request.caller
    opened = (one for one in resource.allows if one.fit(caller) is not Fit.NONE and one.holds(request))
    statement = next(opened, None)
    if statement is None or request.action not in CROSS_ACCOUNT_ACTIONS:
        return Decision(False, Reason.NOT_ALLOWED_BY_RESOURCE)
    if caller.kind in _WITHOUT_OWN_SIDE:
        return Decision(True, Reason.ALLOWED_BY_RESOURCE, statement.place)
    if any(one.holds(request) for one in identity.allows):
        return Decision(True, Reason.ALLOWED_BY_BOTH, statement.place)
    return Decision(False, Reason.NOT_ALLOWED_BY_IDENTITY)


def _mismatch(statement: CompiledStatement, request: RequestContext) -> str | None:
    if request.action not in statement.actions:
        return "action"
    if statement.fit(request.caller) is Fit.NONE:
        return "principal"
    if not statement.resource_fits(request):
        return "resource"
    failed = (condition.label for condition in statement.conditions if not condition.holds(request))
    return next(failed, None)
