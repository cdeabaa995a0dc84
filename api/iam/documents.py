"""Policy documents on their way to a row: what is to be said of one while it is edited, and then understood or refused,
and in one form. The evaluator's own parser and review say it, so what passes here is what is stored and weighed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from api.iam.errors import IamError, invalid_policy
from frontend.authz import PolicyError, PolicyKind, compile_policy, line_of, review
from frontend.authz.scopes import ScopeError, scope_policy


class LintRemark(NamedTuple):
    """`line` is the one that it is about. `refused` remarks keep the policy from being stored; the others tell what it
    will do."""

    line: int
    path: str
    text: str
    refused: bool


def lint_policy(text: str, kind: PolicyKind, queue_arn: str | None = None) -> list[LintRemark]:
    """Refusals first, then by line. Empty where there is nothing to say."""
    found = review(text, kind, queue_arn)
    remarks = {LintRemark(line_of(text, one.path), one.path, one.text, one.refused) for one in found}
    return sorted(remarks, key=lambda one: (not one.refused, one.line, one.path, one.text))


def stored_form(document: object, member: str = "policy") -> str:
    """JSON without white space of a document that was read from a request. Raises IamError."""
    return stored_text(_compact(document), member)


def stored_text(text: str, member: str = "policy") -> str:
    """The same of a text as its author wrote it: members named twice are refused, too. Raises IamError."""
    try:
        compile_policy(text, PolicyKind.IDENTITY, member)
        compact = _compact(json.loads(text))
        compile_policy(compact, PolicyKind.IDENTITY, member)
    except PolicyError as error:
        raise invalid_policy(error, member) from None
    return compact


def scoped_text(account_id: str, scopes: Sequence[str], queues: Sequence[str]) -> str:
    """The policy of a key with these scopes. Raises IamError."""
    try:
        return stored_text(scope_policy(account_id, scopes, queues), "scopes")
    except ScopeError as error:
        raise IamError("invalid-request", f"{error.member} {error}.", f"/{error.member}") from None


def _compact(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
