"""May this principal do this? Pure: no clock, no IO. docs/policies.md says what policies can say.

Surface: other planes may import this module.

How it is used (messages/admission.py):

    policy = load_policy(text, PolicyKind.IDENTITY, "keys/AKPS...")      once for a stored text, kept
    policies = join_policies([policy, ...])                              once for a caller, kept
    request = RequestContext(caller, "sqs:SendMessage", resource_arn, now_ms, region, source_ip=...)
    decision = evaluate(request, policies, policy_of_the_queue)

Which actions an operation asks for, and on what, is the table in `actions.py`.
"""

from __future__ import annotations

from frontend.authz.actions import GRANTABLE_NAMES, SQS_OPERATIONS
from frontend.authz.compiled_policy import (
    NO_POLICY,
    CompiledPolicy,
    StatementPlace,
    compile_policy,
    join_policies,
    load_policy,
)
from frontend.authz.evaluation import Decision, Reason, Simulation, evaluate, simulate
from frontend.authz.policy_document import (
    PolicyKind,
    count_floating_patterns,
    count_several_values_wildcards,
    parse_document,
)
from frontend.authz.policy_error import PolicyError, PolicyProblem
from frontend.authz.policy_lines import line_of
from frontend.authz.refusal_text import refusal_text
from frontend.authz.request_context import Caller, CallerKind, RequestContext
from frontend.authz.review import Remark, review

__all__ = [
    "GRANTABLE_NAMES",
    "NO_POLICY",
    "SQS_OPERATIONS",
    "Caller",
    "CallerKind",
    "CompiledPolicy",
    "Decision",
    "PolicyError",
    "PolicyKind",
    "PolicyProblem",
    "Reason",
    "Remark",
    "RequestContext",
    "Simulation",
    "StatementPlace",
    "compile_policy",
    "count_floating_patterns",
    "count_several_values_wildcards",
    "evaluate",
    "join_policies",
    "line_of",
    "load_policy",
    "parse_document",
    "refusal_text",
    "review",
    "simulate",
]
