"""Refusals of this app."""

from __future__ import annotations

from api.absence import NOTHING_HERE
from frontend.authz import PolicyError


class AccessDenied(Exception):
    """Policies do not allow it; the text says which action, on what. `action` and `arn` are given where the audit trail
    does not have it yet: what answers the caller notes it."""

    def __init__(self, text: str, action: str = "", arn: str = "") -> None:
        super().__init__(text)
        self.action = action
        self.arn = arn


class IamError(Exception):
    """An operating error: `code` is one of STATUS, `text` is for the caller, `member` the member of the request."""

    def __init__(self, code: str, text: str, member: str = "") -> None:
        super().__init__(text)
        self.status = STATUS[code]
        self.code = code
        self.text = text
        self.member = member


STATUS = {
    "invalid-policy": 400,
    "invalid-request": 400,
    "not-found": 404,
    "already-exists": 409,
    "policy-attached": 409,
    "over-limit": 403,
}


def not_found() -> IamError:
    return IamError("not-found", NOTHING_HERE)


def invalid_policy(error: PolicyError, member: str) -> IamError:
    """`$.Statement[0].Effect` of the policy as a JSON pointer below `member`."""
    path = error.path.removeprefix("$").replace("[", ".").replace("]", "").replace(".", "/")
    return IamError("invalid-policy", f"The policy is refused: {error.path}: {error.text}.", f"/{member}{path}")
