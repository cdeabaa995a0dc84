"""Policy documents on their way to a row: understood or refused, and in one form."""

from __future__ import annotations

import json

from api.iam.errors import invalid_policy
from frontend.authz import PolicyError, PolicyKind, compile_policy


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


def _compact(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
