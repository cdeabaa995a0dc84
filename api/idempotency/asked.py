"""Which outcome a request asks for: its caller, its idempotency key, and what it asks.

    Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"

A string of RFC 8941 without parameters, as draft-ietf-httpapi-idempotency-key-header has it. Pure, but for the pepper.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from typing import NamedTuple

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from api import limits
from api.internal.authentication import raw_target
from api.people.authentication import SignedIn
from api.query_parameters import without_signature
from api.secrets import pepper
from frontend.authn.principal import PERSON_PREFIX, Principal

HEADER = "Idempotency-Key"
_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")


class AskedOutcome(NamedTuple):
    """`key_hash` is of the caller and the key, `request_hash` of what is asked."""

    account_id: str
    actor: str
    key_hash: bytes
    request_hash: bytes

    @property
    def lock_number(self) -> int:
        """Of the advisory lock that a request with this key holds."""
        number: int = struct.unpack(">q", self.key_hash[:8])[0]
        return number


def outcome_asked(request: Request) -> AskedOutcome | None:
    """None of a request without the header. Raises ValidationError, which names the header."""
    given = request.headers.get(HEADER)
    if given is None:
        return None
    key = parse_key(given)
    account_id, actor = _caller(request)
    if_match = request.headers.get("If-Match", "").encode()
    target = without_signature(raw_target(request._request))
    parts = ((request.method or "").encode(), target, if_match, request._request.body)
    key_hash = _hash(b"key", account_id.encode(), actor.encode(), key.encode())
    return AskedOutcome(account_id, actor, key_hash, _hash(b"request", *parts))


def form_asked(person_id: str, form_id: str) -> AskedOutcome:
    """Of a form of a page, which its person sends once, with any content."""
    actor = f"{PERSON_PREFIX}{person_id}"
    key_hash = _hash(b"form", actor.encode(), form_id.encode())
    return AskedOutcome("", actor, key_hash, key_hash)


def parse_key(given: str) -> str:
    """Raises ValidationError."""
    match = _STRING.fullmatch(given.strip(" \t"))
    key = "" if match is None else _ESCAPED.sub(r"\1", match[1])
    if not 1 <= len(key) <= limits.IDEMPOTENCY_KEY_CHARACTERS_MAX:
        length = f"1 to {limits.IDEMPOTENCY_KEY_CHARACTERS_MAX}"
        raise ValidationError({HEADER: f'must be one string of {length} printable ASCII characters in quotes: "..."'})
    return key


def _caller(request: Request) -> tuple[str, str]:
    user = request.user
    if isinstance(user, Principal):
        return user.account_id, user.name
    assert isinstance(user, SignedIn), "operations without a caller take no key"
    return "", f"{PERSON_PREFIX}{user.person.pk}"


def _hash(*parts: bytes) -> bytes:
    text = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return hmac.digest(pepper(), b"penstock-idempotency" + text, hashlib.sha256)
