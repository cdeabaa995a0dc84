"""A pass: with it the control plane makes one request for messages on a person's page.

    Authorization: Penstock-Page CLAIM.MAC
    CLAIM  the principal, as in `vouching.py`
    MAC    hex HMAC-SHA-256 under internal.key of  "page" LF method LF target LF CLAIM LF hex sha256(body)

The control plane has looked at the session, the role and the state of the account before it made one. The MAC binds the
pass to one request about messages: method, target and body. What the person's policies say was weighed before; the
front end weighs what the policy of the queue says of the person. The pass opens nothing else; until
PAGE_PASS_AGE_MS_MAX it would open the same request once more. Pure.

Surface: other planes may import this module.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from frontend.authn.principal import PERSON_PREFIX, Principal, person_id_of
from frontend.authn.rights import page_rights
from frontend.authn.vouching import PrincipalError, claim_of, principal_of_claim

SCHEME = b"penstock-page "
PAGE_PASS_AGE_MS_MAX = 30_000
_CHARS_MAX = 1_024
_PLACES = re.compile(
    rb"/v1/(?:message-counts|queues/[A-Za-z0-9_.-]+/(?:messages|scheduled|parked-groups)(?:/[a-z-]+)?)"
)


def make_page_pass(key: bytes, method: str, target: bytes, body: bytes, who: Principal, issued_ms: int) -> str:
    """The value of the Authorization header. `who` is a person, or an operator who acts as one: policies of queues take
    the operator for that one."""
    claim = claim_of(who, issued_ms)
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
        found = principal_of_claim(claim, now_ms, PAGE_PASS_AGE_MS_MAX)
    except PrincipalError:
        return None
    if not found.name.startswith(PERSON_PREFIX):
        return None
    return found._replace(rights=page_rights(found.account_id, person_id_of(found.acting_as or found.name)))


def _mac(key: bytes, method: str, target: bytes, claim: bytes, body: bytes) -> str:
    text = b"\n".join((b"page", method.encode(), target, claim, hashlib.sha256(body).hexdigest().encode()))
    return hmac.digest(key, text, "sha256").hex()
