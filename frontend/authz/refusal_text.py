"""What a caller is told who may not do something, in the words that SDKs and people know from SQS. Pure.

Surface: other planes may import this module.
"""

from __future__ import annotations

from frontend.authz.evaluation import Decision, Reason
from frontend.authz.request_context import CallerKind, RequestContext

_EXPLICIT = "with an explicit deny in {} policy"
_IMPLICIT = "because no {} policy allows the {} action"
_IDENTITY, _RESOURCE = "identity-based", "resource-based"


def refusal_text(request: RequestContext, decision: Decision, queue_url: str) -> str:
    """The text of AccessDenied. A policy that cannot be understood is told as a deny."""
    assert not decision.allowed
    caller = request.caller
    if caller.kind in (CallerKind.ANONYMOUS, CallerKind.SERVICE):
        return f"Access to the resource {queue_url} is denied."
    action = request.action.lower()
    match decision.reason:
        case Reason.NOT_ALLOWED_BY_IDENTITY:
            because = _IMPLICIT.format(_IDENTITY, action)
        case Reason.NOT_ALLOWED_BY_RESOURCE:
            because = _IMPLICIT.format(_RESOURCE, action)
        case Reason.DENIED_BY_RESOURCE | Reason.UNREADABLE_RESOURCE:
            because = _EXPLICIT.format(f"a {_RESOURCE}")
        case _:
            because = _EXPLICIT.format(f"an {_IDENTITY}")
    asked = f"not authorized to perform: {action} on resource: {request.resource_arn}"
    return f"User: {caller.session_arn or caller.arn} is {asked} {because}"
