"""A pass: with it the control plane makes one request for messages on a person's page.

    Authorization: Penstock-Page CLAIM.MAC
    CLAIM  base64url of JSON {account_id, person_id, source_ip, is_secure, issued_ms, acting_as}
    MAC    hex HMAC-SHA-256 under internal.key of  "page" LF method LF target LF CLAIM LF hex sha256(body)

The control plane has looked at the session, the role and the state of the account before it made one. The MAC binds the
pass to one request about messages: method, target and body. What the person's policies say was weighed before; the
front end weighs what the policy of the queue says of the person. The pass opens nothing else; until
PAGE_PASS_AGE_MS_MAX it would open the same request once more. Pure.

Surface: other planes may import this module.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re

import msgspec

from frontend.authn.principal import Principal
from frontend.authn.rights import page_rights

SCHEME = b"penstock-page "
PAGE_PASS_AGE_MS_MAX = 30_000
PERSON_PREFIX = "person:"
_CHARS_MAX = 1_024
_PLACES = re.compile(
    rb"/v1/(?:message-counts|queues/[A-Za-z0-9_.-]+/(?:messages|scheduled|parked-groups)(?:/[a-z-]+)?)"
)


class PagePass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    account_id: str
    person_id: str
    source_ip: str
    is_secure: bool
    issued_ms: int
    # The member as whom an operator acts: policies of queues take the operator for that one.
    acting_as: str = ""


_decode = msgspec.json.Decoder(PagePass).decode


def make_page_pass(key: bytes, method: str, target: bytes, body: bytes, page_pass: PagePass) -> str:
    """The value of the Authorization header."""
    claim = base64.urlsafe_b64encode(msgspec.json.encode(page_pass))
    return f"Penstock-Page {claim.decode()}.{_mac(key, method, target, claim, body)}"


def open_page_pass(
    key: bytes, authorization: bytes, method: str, path: bytes, query: bytes, body: bytes, now_ms: int
) -> Principal | None:
    """Who the pass was made for; None where it does not open this request."""
    if len(authorization) > _CHARS_MAX or _PLACES.fullmatch(path) is None:
        return None
    claim, _, mac = authorization[len(SCHEME) :].strip().partition(b".")
    target = path + b"?" + query if query else path
    if not hmac.compare_digest(_mac(key, method, target, claim, body).encode(), mac):
        return None
    try:
        found = _decode(base64.urlsafe_b64decode(claim))
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return None
    if abs(now_ms - found.issued_ms) > PAGE_PASS_AGE_MS_MAX:
        return None
    rights = page_rights(found.account_id, found.acting_as or found.person_id)
    return Principal(found.account_id, PERSON_PREFIX + found.person_id, 0, found.source_ip, found.is_secure, rights)


def _mac(key: bytes, method: str, target: bytes, claim: bytes, body: bytes) -> str:
    text = b"\n".join((b"page", method.encode(), target, claim, hashlib.sha256(body).hexdigest().encode()))
    return hmac.digest(key, text, "sha256").hex()
