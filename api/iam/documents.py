"""Policy documents on their way to a row: understood or refused, and in one form."""

from __future__ import annotations

import json
from collections.abc import Sequence

from api.iam.errors import IamError, invalid_policy
from frontend.authz import PolicyError, PolicyKind, compile_policy
from frontend.authz.scopes import ScopeError, scope_policy


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
