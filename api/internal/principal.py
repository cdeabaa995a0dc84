"""Who is asking: the header with which the front end vouches for a caller it has authenticated and authorised.

    X-Penstock-Principal      base64url (unpadded or padded) of JSON {account_id, access_key_id, request_id, issued_ms,
                              source_ip, is_secure, user_agent, referer}
    X-Penstock-Principal-Mac  hex HMAC-SHA-256 under internal.key of
                              method LF target LF principal header LF hex sha256(body)

`target` is the path, with `?query` where there is one, byte for byte as sent. The MAC is compared in constant time and
before anything in the header is parsed; an old header is refused, so a captured one is of little use. Pure: the clock
is a parameter.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

from api import limits

PRINCIPAL_HEADER = "X-Penstock-Principal"
MAC_HEADER = "X-Penstock-Principal-Mac"


class PrincipalError(Exception):
    """The request does not come from a front end of this installation."""


class ForwardedPrincipal(msgspec.Struct, frozen=True):
    account_id: str
    access_key_id: str
    request_id: str
    issued_ms: int
    source_ip: str = ""
    is_secure: bool = False
    user_agent: str | None = None
    referer: str | None = None


_decode = msgspec.json.Decoder(ForwardedPrincipal).decode


def principal_mac(key: bytes, method: str, target: bytes, principal: str, body: bytes) -> str:
    digest = hashlib.sha256(body).hexdigest()
    text = b"\n".join((method.encode(), target, principal.encode(), digest.encode()))
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def verify_principal(
    key: bytes, method: str, target: bytes, principal: str, mac: str, body: bytes, now_ms: int
) -> ForwardedPrincipal:
    """The principal. Raises PrincipalError."""
    if not principal or len(principal) > limits.PRINCIPAL_CHARACTERS_MAX or not principal.isascii():
        raise PrincipalError("there is no principal")
    expected = principal_mac(key, method, target, principal, body)
    if not hmac.compare_digest(expected.encode(), mac.encode()):
        raise PrincipalError("the MAC does not match")
    try:
        found = _decode(base64.urlsafe_b64decode(principal + "=" * (-len(principal) % 4)))
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise PrincipalError("the principal does not parse") from None
    if abs(now_ms - found.issued_ms) > limits.PRINCIPAL_AGE_MS_MAX:
        raise PrincipalError("the principal is too old")
    return found
