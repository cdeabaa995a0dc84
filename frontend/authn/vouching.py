"""How a principal travels between the planes: a claim, and a MAC that binds it to one request.

    CLAIM  base64url (unpadded or padded) of JSON {account_id, name, kind, source_ip, is_secure, user_agent, referer,
           acting_as, request_id, issued_ms}; members that have their default are left out

    X-Penstock-Principal      CLAIM: a front end vouches for a caller whom it has authenticated
    X-Penstock-Principal-Mac  hex HMAC-SHA-256 under internal.key of
                              method LF target LF CLAIM LF hex sha256(body)

`target` is the path, with `?query` where there is one, byte for byte as sent. The MAC is compared in constant time and
before anything in the claim is parsed; an old one is refused, so a captured one is of little use. Rights do not
travel: who takes the principal over reads them. The pass of a page (`page_pass.py`) carries the same claim the other
way. Pure: the clock is a parameter.

Surface: other planes may import this module.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

from frontend.authn.principal import Principal, PrincipalKind, without_rights
from frontend.limits import PRINCIPAL_AGE_MS_MAX, PRINCIPAL_CHARACTERS_MAX

PRINCIPAL_HEADER = "X-Penstock-Principal"
MAC_HEADER = "X-Penstock-Principal-Mac"


class PrincipalError(Exception):
    """The request does not come from a front end of this installation."""


class _Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    account_id: str
    name: str
    issued_ms: int
    kind: PrincipalKind = PrincipalKind.KEY
    source_ip: str = ""
    is_secure: bool = False
    user_agent: str | None = None
    referer: str | None = None
    acting_as: str = ""
    request_id: str = ""


_decode = msgspec.json.Decoder(_Claim).decode


def claim_of(principal: Principal, issued_ms: int) -> bytes:
    told = _Claim(
        principal.account_id,
        principal.name,
        issued_ms,
        principal.kind,
        principal.source_ip,
        principal.is_secure,
        principal.user_agent,
        principal.referer,
        principal.acting_as,
        principal.request_id,
    )
    return base64.urlsafe_b64encode(msgspec.json.encode(told))


def principal_of_claim(claim: bytes, now_ms: int, age_ms_max: int) -> Principal:
    """Of a claim whose MAC has been compared. Raises PrincipalError."""
    try:
        told = _decode(base64.urlsafe_b64decode(claim + b"=" * (-len(claim) % 4)))
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise PrincipalError("the principal does not parse") from None
    if abs(now_ms - told.issued_ms) > age_ms_max:
        raise PrincipalError("the principal is too old")
    return Principal(
        told.account_id,
        told.name,
        source_ip=told.source_ip,
        is_secure=told.is_secure,
        rights=without_rights(told.account_id, told.name, told.kind, told.acting_as),
        user_agent=told.user_agent,
        referer=told.referer,
        kind=told.kind,
        acting_as=told.acting_as,
        request_id=told.request_id,
    )


def unproven_holder(claim: bytes) -> str:
    """Whose call it is, by a claim whose MAC was not compared: good for places that callers share, and for no right.
    The account; a person in none stands for itself. "" where it does not parse."""
    if len(claim) > PRINCIPAL_CHARACTERS_MAX:
        return ""
    try:
        told = _decode(base64.urlsafe_b64decode(claim + b"=" * (-len(claim) % 4)))
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return ""
    return told.account_id or told.name


def vouch(
    key: bytes, method: str, target: bytes, body: bytes, principal: Principal, issued_ms: int
) -> list[tuple[str, str]]:
    """The headers."""
    claim = claim_of(principal, issued_ms).decode()
    return [(PRINCIPAL_HEADER, claim), (MAC_HEADER, principal_mac(key, method, target, claim, body))]


def principal_mac(key: bytes, method: str, target: bytes, claim: str, body: bytes) -> str:
    digest = hashlib.sha256(body).hexdigest()
    text = b"\n".join((method.encode(), target, claim.encode(), digest.encode()))
    return hmac.digest(key, text, "sha256").hex()


def verify_principal(
    key: bytes, method: str, target: bytes, claim: str, mac: str, body: bytes, now_ms: int
) -> Principal:
    """Raises PrincipalError."""
    if not claim or len(claim) > PRINCIPAL_CHARACTERS_MAX or not claim.isascii():
        raise PrincipalError("there is no principal")
    expected = principal_mac(key, method, target, claim, body)
    if not hmac.compare_digest(expected.encode(), mac.encode()):
        raise PrincipalError("the MAC does not match")
    return principal_of_claim(claim.encode(), now_ms, PRINCIPAL_AGE_MS_MAX)
